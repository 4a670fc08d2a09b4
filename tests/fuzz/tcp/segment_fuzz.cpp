// One control block in every state: the bytes say what the program calls, what arrives and how much
// time passes. The peer's payload is a function of its place in the stream, so what is delivered
// can be compared whatever overlaps whatever. Invariants after every step: invariants.h.
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "stack/tcp/burst.h"
#include "stack/tcp/fast_path/nagle.h"
#include "stack/tcp/tcb.h"
#include "stack/wire/tcp_options.h"
#include "tests/fuzz/tcp/bytes.h"
#include "tests/fuzz/tcp/fuzzers.h"
#include "tests/fuzz/tcp/invariants.h"

namespace vireo::fuzz {

namespace {

using namespace tcp;

constexpr uint32_t kFrames = 64;
constexpr uint32_t kFrameBytes = 2048;
constexpr unsigned kMaxSteps = 400;
constexpr unsigned kMaxSegments = 20'000;  ///< more than a full pool gives, cut to the least MSS

class Run {
 public:
  Run(const uint8_t* data, size_t size) : in_(data, size), memory_(kFrames * kFrameBytes) {
    // Memory that was never written must not look like a stream.
    std::memset(memory_.data(), 0xee, memory_.size());
  }
  ~Run() {
    for (const Held& h : held_) let_go(h);
    release(t_);
    require(pool_.free_count() == pool_.size(), "a frame was leaked");
  }

  void run() {
    configure();
    open();
    for (unsigned i = 0; i < kMaxSteps && !in_.empty(); ++i) {
      step();
      settle();
    }
    // Whatever happened: an abort ends it with nothing left to do.
    tcp::abort(t_, now_);
    pump(kMaxSegments);
    require(t_.state == State::kClosed, "alive after abort");
    check(t_, watch_);
  }

 private:
  struct Held {  ///< a frame that the device still reads
    PacketBuf* packet;
    uint16_t at;
    std::vector<std::byte> copy;
  };

  void configure() {
    constexpr uint16_t kMss[] = {1460, 1448, 536, 100, 48, 40, 1700, 9000};
    constexpr uint32_t kBuffers[] = {131072, 65535, 20000, 4096, 3001, 1000, 1, 1'000'000};
    config_.mss = in_.pick(kMss);
    config_.rcv_buf = in_.pick(kBuffers);
    config_.snd_buf = std::min(in_.pick(kBuffers), 200'000U);
    config_.wscale = in_.u8();
    const uint8_t bits = in_.u8();
    config_.window_scaling = (bits & 1) == 0;
    config_.timestamps = (bits & 2) == 0;
    config_.sack = (bits & 4) == 0;
    config_.nodelay = (bits & 8) != 0;
    config_.cork = (bits & 16) != 0;
    config_.quickack = (bits & 32) != 0;
    config_.keepalive = (bits & 64) != 0;
    config_.congestion = (bits & 128) != 0 ? CcKind::kReno : CcKind::kCubic;
    if ((config_.wscale & 64) != 0) config_.mtu_probing = MtuProbing::kAlways;
    config_.mtu_base = 100;
    config_.mtu_interval_s = 1;
    config_.ts_offset = in_.u8() * 0x01010101U;
    config_.keep_idle = Duration::s(10);
    config_.keep_interval = Duration::s(5);
    config_.keep_count = 3;
    iss_ = Seq32(in_.pick(kIss));
    irs_ = Seq32(in_.pick(kIss));
  }

  void open() {
    const uint8_t way = in_.u8();
    const bool handshake = (way & 4) == 0;
    const bool fast = (way & 8) != 0;
    if ((way & 1) == 0) {
      open_active(t_, config_, pool_, iss_, now_);
      if (fast) data_on_syn();
      settle();
      if (!handshake) return;
      pump(1);
      const uint64_t taken = fast ? nudge(t_.snd_max - 1) : 0;  // of our data; all, some, a lie
      arrive(SegFlags::kSyn | SegFlags::kAck, irs_, iss_ + 1 + static_cast<uint32_t>(taken),
             in_.u16(), syn_options(), fast ? in_.below(2000) : 0);
    } else {
      const auto o = syn_options();
      const uint16_t window = in_.u16();
      Segment s = make(SegFlags::kSyn, irs_, Seq32(0), window, o, fast ? in_.below(2000) : 0);
      if (fast)
        open_fast(t_, config_, pool_, std::move(s), iss_, now_);
      else
        open_passive(t_, config_, pool_, s, iss_, now_);
      settle();
      if (!handshake) return;
      pump(1);
      if (fast && in_.flag()) return;  // what a program does before the handshake is over
      arrive(SegFlags::kAck, t_.rcv_seq(t_.rcv_nxt), iss_ + 1, in_.u16(), usual_options(), 0);
    }
    settle();
  }

  /// RFC 7413: our SYN asks for a cookie, or has data and shows one or not; now and then it waits
  /// for that a while.
  void data_on_syn() {
    const uint8_t how = in_.u8();
    if ((how & 1) != 0) {
      defer_syn(t_);
      pass(Duration::ms(in_.below(3000)));
    }
    constexpr uint8_t kCookie[16] = {1, 2, 3, 4};
    constexpr uint16_t kMss[] = {1460, 536, 9000, 48, 40, 0};
    const size_t bytes = (how & 2) != 0 ? in_.below(5000) : 0;
    std::vector<std::byte> data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = stream_byte(0, i);
    const iovec v[2] = {{data.data(), bytes / 3}, {data.data() + bytes / 3, bytes - bytes / 3}};
    const size_t taken = begin_fast_open(
        t_,
        {.cookie = std::span(kCookie).first((how & 4) != 0 ? 0 : 4 + (how >> 4) % 7 * 2),
         .without_cookie = (how & 8) != 0,
         .peer_mss = in_.pick(kMss),
         .data = v},
        now_);
    require(taken <= bytes && t_.snd_end - 1 == taken, "snd_end and what the SYN took differ");
  }

  void step() {
    switch (in_.u8() % 24) {
      case 0:
        return write(in_.u16(), in_.flag());
      case 1:
        return read(in_.u16());
      case 2:
        return write(1 + in_.below(200), false);
      case 3:
        return shutdown_write(t_, now_);
      case 4:
        discarded_ = true;
        return tcp::close(t_, now_);
      case 5:
        if (in_.u8() % 8 != 0) return;
        discarded_ = true;
        return tcp::abort(t_, now_);
      case 6:
        return set_option();
      case 7:
        return pass(Duration::ms(in_.below(300)));
      case 8:
        return pass(Duration::ms(int64_t{in_.u16()} * 10));
      case 9:
        return pass(to_deadline());
      case 10:
        return pump(1 + in_.below(4));
      case 11:
      case 12:
        return pump(kMaxSegments);
      case 13:
        return icmp();
      case 14:
        return strangers();
      case 15:
        return syn_again();
      default:
        return segment();
    }
  }

  // ---- the program
  void write(uint32_t bytes, bool more) {
    if (!can_send(t_)) return;
    const uint64_t at = t_.snd_end - 1;
    std::vector<std::byte> data(bytes);
    for (uint32_t i = 0; i < bytes; ++i) data[i] = stream_byte(0, at + i);
    const uint32_t room = send_room(t_);
    if (!more && may_append_nagled(t_, bytes)) {
      require(bytes <= room, "append_nagled() takes more than there is");
      append_nagled(t_, data.data(), bytes);
      Plan p;
      require(!next_segment(t_, now_, p), "what was held may leave");
      return;
    }
    const uint32_t cut = bytes / 3;
    const iovec v[2] = {{data.data(), cut}, {data.data() + cut, bytes - cut}};
    const size_t taken = append(t_, v, more, now_);
    require(taken <= bytes && taken <= room, "append() takes more than there is");
    require(t_.snd_end - 1 == at + taken, "snd_end and what append() took differ");
  }
  void read(uint32_t bytes) {
    PacketChain& q = recv_queue(t_);
    uint32_t took = 0;
    while (took < bytes && !q.empty()) {
      const PacketBuf* b = q.front();
      const uint32_t n = std::min<uint32_t>(bytes - took, b->length);
      for (uint32_t i = 0; i < n; ++i)
        require(b->data()[i] == stream_byte(1, read_ + i), "a wrong byte is delivered");
      q.trim_front(n);
      read_ += n;
      took += n;
    }
    consumed(t_, took, now_);
  }
  void set_option() {
    constexpr uint32_t kBuffers[] = {1, 500, 3000, 20'000, 131072};
    switch (in_.u8() % 10) {
      case 0:
        return set_nodelay(t_, in_.flag(), now_);
      case 1:
        return set_cork(t_, in_.flag(), now_);
      case 2:
        return set_quickack(t_, in_.flag(), now_);
      case 3:
        return set_keepalive(t_, in_.flag(), Duration::s(1 + in_.below(20)),
                             Duration::s(1 + in_.below(20)), static_cast<uint8_t>(1 + in_.below(9)),
                             now_);
      case 4:
        return set_user_timeout(t_, Duration::ms(int64_t{in_.u16()}));
      case 5:
        return set_rcv_buf(t_, in_.pick(kBuffers));
      case 6:
        return set_snd_buf(t_, in_.pick(kBuffers));
      case 7:
        return set_rto_min(t_, Duration::ms(1 + in_.below(1000)));
      case 8:
        return set_mss(t_, static_cast<uint16_t>(48 + in_.below(1700)));
      default:
        return set_fin_timeout(t_, Duration::ms(1 + in_.below(5000)));
    }
  }

  // ---- time
  Duration to_deadline() const {
    const Instant at = deadline(t_);
    return at.is_never() ? Duration::ms(1) : std::max(at - now_, Duration::ns(0));
  }
  /// Time goes by as the engine sees it: each deadline is met in its turn, and each time what is
  /// to be said is said, save now and then.
  void pass(Duration d) {
    const Instant end = now_ + d;
    const bool mute = (in_.u8() & 7) == 1;
    for (unsigned n = 0;; ++n) {
      require(n < 100'000, "deadlines without end");
      if (!mute) pump(kMaxSegments);
      const Instant at = deadline(t_);
      if (at.is_never() || at > end) break;
      now_ = std::max(now_, at);
      (void)on_deadline(t_, now_);
      require(deadline(t_) > now_, "a deadline does not move on");
      check(t_, watch_);
      if (n > 2000) break;  // a probe a minute for ever is right, but enough
    }
    now_ = std::max(now_, end);
  }

  // ---- the wire
  void pump(unsigned most) {
    Plan p;
    Plan again;
    for (unsigned n = 0; n < most; ++n) {
      if (!next_segment(t_, now_, p)) {
        if (t_.state != State::kClosed) check_idle(t_);
        return;
      }
      require(n < kMaxSegments - 1, "next_segment() never ends");
      require(next_segment(t_, now_, again) && again.seq == p.seq && again.length == p.length &&
                  again.flags == p.flags && again.window == p.window && again.kind == p.kind,
              "next_segment() twice gives two answers");
      Burst burst;
      const BurstLimits limits{UINT16_MAX, 16, static_cast<uint16_t>(most - n)};
      if (plan_burst(t_, p, limits, burst)) {
        burst.for_each(p, [&](const Burst::Segment& s) {
          say_next(burst.plan(p, s));
          return true;
        });
        n += burst.segments - 1;
      } else {
        say(p);
      }
    }
  }
  void say(const Plan& p) {
    check(t_, watch_, p, 0);
    hold(p);
    sent(t_, p, now_);
    check(t_, watch_);
  }
  /// A burst is what would have left one by one.
  void say_next(const Plan& p) {
    Plan alone;
    require(next_segment(t_, now_, alone) && alone.seq == p.seq && alone.length == p.length &&
                alone.flags == p.flags && alone.packet == p.packet && alone.at == p.at &&
                alone.ecn == p.ecn && alone.window == p.window,
            "a burst has another segment");
    say(p);
  }
  /// Now and then the device takes its time with a frame; it must not be written meanwhile.
  void hold(const Plan& p) {
    if (p.length == 0 || held_.size() >= 8 || (p.seq.value() & 3) != 0) return;
    ++p.packet->refs;
    ++p.packet->device_refs;
    const std::byte* data = p.packet->frame + p.at;
    held_.push_back({p.packet, p.at, {data, data + p.length}});
  }
  static void let_go(const Held& h) {
    require(std::memcmp(h.packet->frame + h.at, h.copy.data(), h.copy.size()) == 0,
            "a frame was written while the device read it");
    --h.packet->device_refs;
    PacketPool::drop(h.packet);
  }

  std::vector<uint8_t> syn_options() {
    std::vector<uint8_t> o(40);
    wire::SynOptions s;
    constexpr uint16_t kMss[] = {1460, 536, 0, 1, 48, 100, 9000, 65535};
    s.mss = in_.pick(kMss);
    const uint8_t bits = in_.u8();
    s.sack_permitted = (bits & 1) == 0;
    s.timestamps = (bits & 2) == 0;
    s.ts_val = 1000;
    if ((bits & 4) == 0) s.window_scale = static_cast<uint8_t>(bits >> 4);
    o.resize(wire::emit_syn_options(std::span<uint8_t, 40>(o.data(), 40), s));
    return o;
  }
  /// What a peer in good order sends: timestamps if they were agreed on.
  std::vector<uint8_t> usual_options(std::span<const wire::SackBlock> blocks = {}, int32_t val = 1,
                                     int32_t ecr = 0) {
    std::vector<uint8_t> o(40);
    wire::TcpOptionWriter w(std::span<uint8_t, 40>(o.data(), 40));
    if (t_.ts_on)
      w.timestamps(t_.ts_recent + static_cast<uint32_t>(val),
                   timestamp(t_, now_) + static_cast<uint32_t>(ecr));
    w.sack(blocks);
    o.resize(w.size());
    return o;
  }
  std::vector<uint8_t> any_options() {
    switch (in_.u8() % 4) {
      case 0: {
        std::vector<uint8_t> o(in_.below(11) * 4);
        for (uint8_t& b : o) b = in_.u8();
        return o;
      }
      case 1: {
        wire::SackBlock blocks[4];
        const uint32_t n = 1 + in_.below(4);
        for (uint32_t i = 0; i < n; ++i) {
          blocks[i].left = t_.snd_seq(t_.snd_una) + nudge(t_.snd_max - t_.snd_una);
          blocks[i].right = blocks[i].left + nudge(t_.snd_max - t_.snd_una);
        }
        return usual_options({blocks, n});
      }
      case 2:
        return usual_options({}, static_cast<int8_t>(in_.u8()), static_cast<int8_t>(in_.u8()));
      default:
        return usual_options();
    }
  }
  /// A number around [0, span]: mostly inside, often at an edge, sometimes anywhere.
  uint32_t nudge(uint64_t span) {
    const auto s = static_cast<uint32_t>(span);
    switch (in_.u8() % 8) {
      case 0:
        return 0;
      case 1:
        return s;
      case 2:
        return s + 1;
      case 3:
        return 0U - 1 - in_.below(3000);
      case 4:
        return in_.u32();
      case 5:
        return s - in_.below(2000);
      default:
        return s == 0 ? 0 : in_.u16() % s;
    }
  }

  Segment make(SegFlags flags, Seq32 seq, Seq32 ack, uint16_t window,
               std::span<const uint8_t> options, uint32_t length) {
    Segment s;
    s.seq = seq;
    s.ack = ack;
    s.window = window;
    s.flags = flags;
    s.options = options;
    // The SYN that the Tcb took says where the stream begins; the one on its way may come to be it.
    const Seq32 begin = t_.rcv_nxt > 0 ? t_.irs : seq;
    const uint32_t first = seq.value() - begin.value() + (has(flags, SegFlags::kSyn) ? 1 : 0) - 1;
    for (uint32_t i = 0; i < length;) {
      PacketRef b(pool_.take());
      if (!b) break;  // the ring was out of frames: the rest never came
      if (in_.empty() || (window & 1) == 0) b->data_at = static_cast<uint16_t>(54 + options.size());
      const uint32_t n = std::min(length - i, kFrameBytes - b->data_at);
      for (uint32_t k = 0; k < n; ++k) b->data()[k] = stream_byte(1, first + i + k);
      b->length = static_cast<uint16_t>(n);
      s.payload.push_back(std::move(b));
      i += n;
    }
    return s;
  }
  void arrive(SegFlags flags, Seq32 seq, Seq32 ack, uint16_t window,
              const std::vector<uint8_t>& options, uint32_t length) {
    (void)input(t_, make(flags, seq, ack, window, options, length), now_);
  }
  void segment() {
    constexpr SegFlags kFlags[] = {
        SegFlags::kAck,
        SegFlags::kAck,
        SegFlags::kAck | SegFlags::kPsh,
        SegFlags::kAck,
        SegFlags::kAck | SegFlags::kFin,
        SegFlags::kRst,
        SegFlags::kRst | SegFlags::kAck,
        SegFlags::kSyn | SegFlags::kAck,
        SegFlags::kSyn,
        SegFlags::kAck | SegFlags::kUrg,
        SegFlags::kNone,
        SegFlags::kFin,
        SegFlags::kAck | SegFlags::kEce,
        SegFlags::kAck | SegFlags::kCwr,
    };
    const uint8_t shape = in_.u8();
    SegFlags flags = SegFlags::kAck;
    if ((shape & 3) == 3) flags = in_.pick(kFlags);
    if ((shape & 0x7f) == 0x7f) flags = static_cast<SegFlags>(in_.u8());
    Seq32 seq = t_.rcv_seq(t_.rcv_nxt);
    if ((shape & 4) != 0) {
      const uint64_t window = t_.rcv_adv > t_.rcv_nxt ? t_.rcv_adv - t_.rcv_nxt : 0;
      seq = seq + nudge(std::min<uint64_t>(window, 8000));
    }
    Seq32 ack = t_.snd_seq(t_.snd_max);
    if ((shape & 8) != 0) ack = t_.snd_seq(t_.snd_una) + nudge(t_.snd_max - t_.snd_una);
    constexpr uint16_t kWindows[] = {65535, 0, 1, 100, 1460, 30'000, 2920, 536};
    const uint16_t window = (shape & 16) != 0 ? in_.pick(kWindows) : uint16_t{20'000};
    uint32_t length = 0;
    if ((shape & 32) != 0) length = in_.flag() ? 1 + in_.below(100) : in_.below(3000);
    const std::vector<uint8_t> options = (shape & 64) != 0 ? any_options() : usual_options();
    Segment s = make(flags, seq, ack, window, options, length);
    if (has(flags, SegFlags::kUrg)) s.urgent = in_.u16();
    (void)input(t_, std::move(s), now_);
  }
  /// The peer's SYN once more, as after a lost SYN-ACK or from a new life of the peer.
  void syn_again() {
    const uint8_t shape = in_.u8();
    const SegFlags flags = (shape & 1) != 0 ? SegFlags::kSyn | SegFlags::kAck : SegFlags::kSyn;
    arrive(flags, (shape & 2) != 0 ? Seq32(in_.u32()) : irs_,
           t_.snd_seq((shape & 4) != 0 ? t_.snd_una : t_.snd_max), in_.u16(), syn_options(),
           (shape & 8) != 0 ? in_.below(600) : 0);
  }
  void icmp() {
    const Seq32 quoted = t_.snd_seq(t_.snd_una) + nudge(t_.snd_max - t_.snd_una);
    const bool in_flight = is_in_flight(t_, quoted);
    const State before = t_.state;
    (void)icmp_error(t_, quoted, EHOSTUNREACH, in_.flag(), now_);
    if (!in_flight || before > State::kSynReceived)
      require(t_.state == before, "an ICMP error ended a connection (RFC 5927)");
  }
  /// What the engine does for segments without a connection, and in TIME_WAIT.
  void strangers() {
    const std::vector<uint8_t> options = any_options();
    Segment s = make(static_cast<SegFlags>(in_.u8()), t_.rcv_seq(t_.rcv_nxt) + nudge(3000),
                     t_.snd_seq(t_.snd_nxt) + nudge(3000), in_.u16(), options, in_.below(100));
    Plan reply;
    const bool answered = reset_for(s, s.payload.bytes(), reply);
    require(answered != has(s.flags, SegFlags::kRst), "an RST is answered, all else is");
    if (answered)
      require(has(reply.flags, SegFlags::kRst) && reply.length == 0, "no RST for a stranger");
    if (t_.state != State::kTimeWait) return;
    TimeWait w = make_time_wait(t_);
    const TimeWaitVerdict v = time_wait_input(w, s, now_, reply);
    require(v != TimeWaitVerdict::kAck || has(reply.flags, SegFlags::kAck), "no ACK in TIME_WAIT");
    require(v != TimeWaitVerdict::kNewConnection || has(s.flags, SegFlags::kSyn),
            "a new connection without a SYN");
  }

  /// After each step: nothing broke, and the bytes received are those delivered and queued.
  void settle() {
    check(t_, watch_);
    if ((in_.u8() & 15) == 1 && !held_.empty()) {
      let_go(held_.front());
      held_.erase(held_.begin());
    }
    if (discarded_ || t_.rcv_nxt == 0) return;
    const StreamOffset received = t_.rcv_nxt - 1 - (t_.peer_fin ? 1 : 0);
    require(received == read_ + t_.recv_queue.bytes(), "the receive queue's sum");
  }

  Bytes in_;
  std::vector<std::byte> memory_;
  PacketPool pool_{memory_, kFrameBytes};
  Config config_{{.oob_inline = true}};  // every byte in its place
  Tcb t_;
  Watch watch_;
  Seq32 iss_, irs_;
  Instant now_ = Instant::from_ns(1'000'000'000'000);
  uint64_t read_ = 0;
  bool discarded_ = false;
  std::vector<Held> held_;
};

}  // namespace

int fuzz_segment(const uint8_t* data, size_t size) {
  Run(data, size).run();
  return 0;
}

}  // namespace vireo::fuzz
