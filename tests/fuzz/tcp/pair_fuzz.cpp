// Two control blocks and a wire that the bytes rule: segments are lost, doubled, delayed, cut in
// two, bereft of their options, given false windows, SACK blocks, flags and late ACKs. No mutation
// forges what TCP cannot tell from the truth (sequence numbers and payload in the window, an ACK of
// what never arrived, a timestamp to come), so after it stops, everything written must arrive, both
// sides must end, and that in bounded virtual time. A forged RST may end the connection: then what
// came is a prefix.
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "stack/tcp/fast_path/nagle.h"
#include "stack/tcp/tcb.h"
#include "stack/wire/tcp_options.h"
#include "tests/fuzz/tcp/bytes.h"
#include "tests/fuzz/tcp/fuzzers.h"
#include "tests/fuzz/tcp/invariants.h"

namespace vireo::fuzz {

namespace {

using namespace tcp;

constexpr uint32_t kFrames = 256;
constexpr uint32_t kFrameBytes = 2048;
constexpr unsigned kMaxSteps = 300;
constexpr uint32_t kMaxWritten = 60'000;
constexpr Duration kWire = Duration::ms(5);
constexpr Duration kToTheEnd = Duration::s(240);  ///< after the wire is healed

struct Flying {
  Instant at;
  unsigned to = 0;
  Seq32 seq, ack;
  uint16_t window = 0, urgent = 0;
  SegFlags flags{};
  std::vector<uint8_t> options;
  std::vector<std::byte> payload;
};

struct Host {
  explicit Host(std::vector<std::byte>& memory) : pool(memory, kFrameBytes) {}
  PacketPool pool;
  Config config{{.oob_inline = true}};  // every byte in its place
  Tcb t;
  Watch watch;
  Seq32 iss;
  bool opened = false;
  bool eof = false;
  uint64_t written = 0;
  uint64_t read = 0;
};

class Run {
 public:
  Run(const uint8_t* data, size_t size)
      : in_(data, size), host_{Host(memory(0)), Host(memory(1))} {}
  ~Run() {
    for (Host& h : host_) {
      release(h.t);
      require(h.pool.free_count() == h.pool.size(), "a frame was leaked");
    }
  }

  void run() {
    configure();
    for (unsigned side = 0; side < (both_open_ ? 2U : 1U); ++side) {
      host_[side].opened = true;
      open_active(host_[side].t, host_[side].config, host_[side].pool, host_[side].iss, now_);
      if (syn_data_) write_with_syn(side);
      pump(side);
    }
    for (unsigned i = 0; i < kMaxSteps && !in_.empty(); ++i) step();
    heal();
  }

 private:
  static std::vector<std::byte>& memory(unsigned side) {
    static std::vector<std::byte> all[2] = {std::vector<std::byte>(kFrames * kFrameBytes),
                                            std::vector<std::byte>(kFrames * kFrameBytes)};
    return all[side];
  }
  Host& host(unsigned side) { return host_[side]; }

  void configure() {
    constexpr uint16_t kMss[] = {1460, 1448, 536, 100, 1700, 48, 700, 1460};
    constexpr uint32_t kBuffers[] = {131072, 65535, 20'000, 4096, 3001, 1000};
    const uint8_t way = in_.u8();
    both_open_ = (way & 7) == 7;
    fast_open_ = (way & 8) != 0;
    syn_data_ = (way & 32) != 0;
    for (Host& h : host_) {
      Config& c = h.config;
      c.mss = in_.pick(kMss);
      c.rcv_buf = in_.pick(kBuffers);
      c.snd_buf = in_.pick(kBuffers);
      c.wscale = in_.u8() % 15;
      const uint8_t bits = in_.u8();
      c.window_scaling = (bits & 1) == 0;
      c.timestamps = (bits & 2) == 0;
      c.sack = (bits & 4) == 0;
      c.nodelay = (bits & 8) != 0;
      c.cork = (bits & 16) != 0;
      c.quickack = (bits & 32) != 0;
      c.congestion = (bits & 64) != 0 ? CcKind::kReno : CcKind::kCubic;
      if ((bits & 128) != 0) c.mtu_probing = MtuProbing::kAlways;
      c.mtu_base = 100;
      c.mtu_interval_s = 1;
      c.ts_offset = in_.u8() * 0x01010101U;
      c.rto_max = Duration::s(2);
      c.retries2 = 250;  // the wire is bad, not cut
      c.syn_retries = c.synack_retries = 250;
      h.iss = Seq32(in_.pick(kIss));
    }
  }

  void step() {
    const unsigned side = in_.u8() & 1;
    switch (in_.u8() % 12) {
      case 0:
      case 1:
        write(side, 1 + in_.u16() % 8000, in_.flag());
        break;
      case 2:
        read(side, in_.u16());
        break;
      case 3:
        // In SYN_SENT it would be the end, in words that the peer does not hear.
        if ((in_.u8() & 15) == 0 && host(side).t.is_synchronized())
          shutdown_write(host(side).t, now_);
        break;
      case 4:
        set_cork(host(side).t, in_.flag(), now_);
        break;
      case 5:
        set_rcv_buf(host(side).t, 1000 + in_.u16());
        break;
      case 6:
        set_mss(host(side).t, static_cast<uint16_t>(100 + in_.below(1600)));
        break;
      case 7:
        pass(Duration::us(in_.u16()));
        break;
      case 8:
        pass(Duration::ms(in_.below(3000)));
        break;
      case 9:
        mutate_any();
        break;
      default:
        mutate();
        break;
    }
    pump(0);
    pump(1);
  }

  // ---- the programs
  void write_with_syn(unsigned side) {
    Host& h = host(side);
    constexpr uint8_t kCookie[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    constexpr uint16_t kMss[] = {1460, 536, 100, 9000};
    std::vector<std::byte> data(in_.u16() % 4000);
    for (uint32_t i = 0; i < data.size(); ++i) data[i] = stream_byte(side, i);
    const iovec v{data.data(), data.size()};
    h.written = begin_fast_open(
        h.t, {.cookie = kCookie, .peer_mss = in_.pick(kMss), .data = {&v, 1}}, now_);
    check(h.t, h.watch);
  }
  void write(unsigned side, uint32_t bytes, bool more) {
    Host& h = host(side);
    if (!can_send(h.t) || h.written >= kMaxWritten) return;
    std::vector<std::byte> data(bytes);
    for (uint32_t i = 0; i < bytes; ++i) data[i] = stream_byte(side, h.written + i);
    const iovec v{data.data(), bytes};
    if (!more && may_append_nagled(h.t, bytes)) {
      append_nagled(h.t, data.data(), bytes);
      h.written += bytes;
    } else {
      h.written += append(h.t, {&v, 1}, more, now_);
    }
    check(h.t, h.watch);
  }
  void read(unsigned side, uint32_t bytes) {
    Host& h = host(side);
    PacketChain& q = recv_queue(h.t);
    uint32_t took = 0;
    while (took < bytes && !q.empty()) {
      const PacketBuf* b = q.front();
      const uint32_t n = std::min<uint32_t>(bytes - took, b->length);
      for (uint32_t i = 0; i < n; ++i)
        require(b->data()[i] == stream_byte(1 - side, h.read + i), "a wrong byte is delivered");
      q.trim_front(n);
      h.read += n;
      took += n;
    }
    require(h.read <= host(1 - side).written, "more was delivered than written");
    consumed(h.t, took, now_);
    check(h.t, h.watch);
    if (q.empty() && peer_closed(h.t)) {
      require(h.read == host(1 - side).written, "the end came before the last byte");
      h.eof = true;
    }
  }

  // ---- the wire
  void pump(unsigned side) {
    Host& h = host(side);
    Plan p;
    for (unsigned n = 0; next_segment(h.t, now_, p); ++n) {
      require(n < 20'000, "next_segment() never ends");
      check(h.t, h.watch, p, side);
      Flying f{.at = now_ + kWire,
               .to = 1 - side,
               .seq = p.seq,
               .ack = p.ack,
               .window = p.window,
               .urgent = p.urgent,
               .flags = p.flags,
               .options = {p.options, p.options + p.options_length},
               .payload = {}};
      if (p.length > 0) {
        const std::byte* data = p.packet->frame + p.at;
        f.payload.assign(data, data + p.length);
      }
      sent(h.t, p, now_);
      check(h.t, h.watch);
      if (flying_.size() < 2000) flying_.push_back(std::move(f));
    }
    if (h.t.state != State::kClosed) check_idle(h.t);
  }
  void arrive(const Flying& f) {
    Host& h = host(f.to);
    Segment s;
    s.seq = f.seq;
    s.ack = f.ack;
    s.window = f.window;
    s.flags = f.flags;
    s.urgent = f.urgent;
    s.options = f.options;
    if (!f.payload.empty()) {
      PacketRef b(h.pool.take());
      if (!b) return;  // the ring was out of frames: a loss
      b->data_at = static_cast<uint16_t>(54 + f.options.size());
      std::memcpy(b->data(), f.payload.data(), f.payload.size());
      b->length = static_cast<uint16_t>(f.payload.size());
      s.payload.push_back(std::move(b));
    }
    if (h.t.state == State::kClosed) {
      if (!h.opened && has(s.flags, SegFlags::kSyn) &&
          !has(s.flags, SegFlags::kAck | SegFlags::kRst)) {
        h.opened = true;
        if (fast_open_)
          open_fast(h.t, h.config, h.pool, std::move(s), h.iss, now_);
        else
          open_passive(h.t, h.config, h.pool, s, h.iss, now_);
      } else {
        answer_for_nobody(f.to, s);
      }
      return;
    }
    (void)input(h.t, std::move(s), now_);
    check(h.t, h.watch);
  }
  void answer_for_nobody(unsigned side, const Segment& s) {
    Plan p;
    if (!reset_for(s, s.payload.bytes(), p)) return;
    flying_.push_back({.at = now_ + kWire,
                       .to = 1 - side,
                       .seq = p.seq,
                       .ack = p.ack,
                       .window = 0,
                       .urgent = 0,
                       .flags = p.flags,
                       .options = {},
                       .payload = {}});
  }
  /// Delivers and fires in the order of time until `d` from now.
  void pass(Duration d) {
    const Instant end = now_ + d;
    for (unsigned n = 0;; ++n) {
      require(n < 200'000, "too much happens");
      pump(0);
      pump(1);
      const auto next = std::ranges::min_element(flying_, {}, &Flying::at);
      const Instant wire = next == flying_.end() ? Instant::never() : next->at;
      const Instant at = std::min({wire, deadline(host(0).t), deadline(host(1).t)});
      if (at.is_never() || at > end) break;
      now_ = std::max(now_, at);
      if (wire <= now_) {
        const Flying f = std::move(*next);
        flying_.erase(next);
        arrive(f);
      }
      for (Host& h : host_) {
        if (deadline(h.t) > now_) continue;
        (void)on_deadline(h.t, now_);
        require(deadline(h.t) > now_, "a deadline does not move on");
        check(h.t, h.watch);
      }
      if (healed_) {
        read(0, UINT32_MAX);
        read(1, UINT32_MAX);
        if (over()) return;
      }
    }
    now_ = std::max(now_, end);
  }

  // ---- harm
  void mutate_any() {
    for (uint32_t n = in_.below(8); n > 0 && !flying_.empty(); --n) mutate();
  }
  void mutate() {
    if (flying_.empty()) return;
    const size_t i = in_.u8() % flying_.size();
    Flying& f = flying_[i];
    const bool syn = has(f.flags, SegFlags::kSyn);
    switch (in_.u8() % 16) {
      case 0:
      case 1:
        flying_.erase(flying_.begin() + static_cast<ptrdiff_t>(i));
        return;
      case 2: {
        Flying twin = f;
        twin.at = f.at + Duration::ms(in_.below(256));
        if (flying_.size() < 2000) flying_.push_back(std::move(twin));
        return;
      }
      case 3:
      case 4:
        f.at = f.at + Duration::us(100 * int64_t{in_.u16() % 3000});
        return;
      case 5:
        if (!syn) split(i);
        return;
      case 6:
        if (!syn) f.window = in_.u16();
        return;
      case 7:
        if (!syn) f.window = 0;
        return;
      case 8:
        // Without timestamps where they were agreed on it may be dropped: that is a loss.
        if (!syn) f.options.clear();
        return;
      case 9:
        if (!syn) false_sack(f);
        return;
      case 10:
        f.flags = f.flags | static_cast<SegFlags>(in_.u8() & 0xc8);  // PSH, ECE, CWR
        return;
      case 11:
        f.flags = f.flags | SegFlags::kUrg;
        f.urgent = in_.u16();
        return;
      case 12:  // an ACK of long ago
        if (!syn && has(f.flags, SegFlags::kAck)) f.ack = f.ack - in_.u16() % 4000;
        return;
      case 13: {  // the tail was cut off
        if (f.payload.empty()) return;
        f.payload.resize(in_.u16() % f.payload.size());
        f.flags = f.flags & ~SegFlags::kFin;
        return;
      }
      case 14:
        if (in_.u8() != 0x5a) return;
        forge_reset(f);
        return;
      default:
        bare(f);
        return;
    }
  }
  /// A middlebox makes two segments of one.
  void split(size_t i) {
    Flying& f = flying_[i];
    if (f.payload.size() < 2) return;
    const size_t cut = 1 + in_.u16() % (f.payload.size() - 1);
    Flying rest = f;
    rest.seq = f.seq + static_cast<uint32_t>(cut);
    rest.payload.erase(rest.payload.begin(), rest.payload.begin() + static_cast<ptrdiff_t>(cut));
    f.payload.resize(cut);
    f.flags = f.flags & ~SegFlags::kFin;
    flying_.push_back(std::move(rest));
  }
  /// Blocks around what is outstanding, true or not: a receiver that lies, or reneges.
  void false_sack(Flying& f) {
    const Tcb& t = host(f.to).t;
    const auto span = static_cast<uint32_t>(t.snd_max - t.snd_una);
    std::vector<uint8_t> o(40);
    wire::TcpOptionWriter w(std::span<uint8_t, 40>(o.data(), 40));
    uint32_t val = 0;
    uint32_t ecr = 0;
    if (wire::parse_aligned_timestamps(f.options, val, ecr)) w.timestamps(val, ecr);
    wire::SackBlock blocks[4];
    const uint32_t n = 1 + in_.below(4);
    for (uint32_t k = 0; k < n; ++k) {
      blocks[k].left = t.snd_seq(t.snd_una) + (span == 0 ? 0 : in_.u16() % span);
      blocks[k].right = blocks[k].left + in_.u16() % 6000;
    }
    w.sack({blocks, n});
    o.resize(w.size());
    f.options = std::move(o);
  }
  void forge_reset(Flying& f) {
    f.flags = SegFlags::kRst;
    f.payload.clear();
    killed_ = true;
  }
  /// The same header once more without its payload: a duplicate ACK.
  void bare(const Flying& f) {
    if (has(f.flags, SegFlags::kSyn | SegFlags::kFin | SegFlags::kRst) || flying_.size() > 1900)
      return;
    const Flying copy{.at = f.at + Duration::us(in_.below(256)),
                      .to = f.to,
                      .seq = f.seq,
                      .ack = f.ack,
                      .window = f.window,
                      .urgent = 0,
                      .flags = f.flags,
                      .options = f.options,
                      .payload = {}};
    for (uint32_t n = 1 + in_.below(4); n > 0; --n) flying_.push_back(copy);
  }

  // ---- the end
  bool over() const {
    for (const Host& h : host_) {
      if (h.opened && h.t.state != State::kClosed && h.t.state != State::kTimeWait) return false;
      if (!killed_ && !h.eof) return false;
    }
    return true;
  }
  void heal() {
    healed_ = true;
    const Instant limit = now_ + kToTheEnd;
    while (!over()) {
      require(now_ < limit, "not over in bounded time though the wire is whole");
      for (unsigned side : {0U, 1U}) {
        Host& h = host(side);
        read(side, UINT32_MAX);
        set_cork(h.t, false, now_);
        if (h.t.is_synchronized()) shutdown_write(h.t, now_);
        // Nothing of ours is out that the dead could answer: only the program knows when to stop.
        if (killed_ && h.t.state == State::kFinWait2) close(h.t, now_);
        if (h.opened && h.t.state == State::kClosed && h.t.error != 0)
          require(killed_, "a connection failed though nothing killed it");
      }
      // A side that never came to be has nothing to say.
      if (!host(1).opened && host(0).t.state == State::kClosed) return;
      pass(Duration::s(1));
    }
    if (killed_) return;
    for (unsigned side : {0U, 1U})
      require(host(side).read == host(1 - side).written, "not everything arrived");
  }

  Bytes in_;
  Host host_[2];
  bool both_open_ = false;
  bool fast_open_ = false;  ///< the passive side takes data on the SYN, and speaks at once
  bool syn_data_ = false;   ///< the active side's first bytes go with its SYN
  bool healed_ = false;
  bool killed_ = false;
  Instant now_ = Instant::from_ns(1'000'000'000'000);
  std::deque<Flying> flying_;
};

}  // namespace

int fuzz_pair(const uint8_t* data, size_t size) {
  Run(data, size).run();
  return 0;
}

}  // namespace vireo::fuzz
