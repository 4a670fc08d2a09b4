// A hand-made peer for one Tcb: segments in and out with numbers relative to each side's SYN, and a
// clock that only the test moves.
#pragma once

#include <gtest/gtest.h>
#include <sys/uio.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/packet.h"
#include "stack/tcp/fast_path/nagle.h"
#include "stack/tcp/tcb.h"
#include "stack/wire/tcp_options.h"

namespace vireo::tcp {

/// The six initial numbers under which wrap mistakes show.
inline constexpr uint32_t kIss[6] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0u - 1460u};

inline constexpr auto kSyn = SegFlags::kSyn;
inline constexpr auto kAck = SegFlags::kAck;
inline constexpr auto kFin = SegFlags::kFin;
inline constexpr auto kRst = SegFlags::kRst;
inline constexpr auto kPsh = SegFlags::kPsh;

/// A segment that the Tcb sent.
struct Out {
  uint32_t seq = 0;  ///< relative to our ISS
  uint32_t ack = 0;  ///< relative to the peer's ISS
  uint32_t window = 0;
  uint32_t urgent = 0;
  SegFlags flags{};
  std::string data;
  wire::TcpOptions options;
  bool retransmission = false;
  wire::Ecn ecn{};
  Instant at;
  bool is(SegFlags f) const { return (flags & ~kPsh) == f; }
  std::vector<std::pair<uint32_t, uint32_t>> sack;  ///< relative to the peer's ISS
};

class Peer {
 public:
  explicit Peer(uint32_t our_iss = 1000, uint32_t peer_iss = 5000, uint32_t frames = 512)
      : memory(size_t{frames} * 2048), pool(memory, 2048), iss(our_iss), irs(peer_iss) {
    config.mss = 1460;
    config.timestamps = false;
    config.window_scaling = false;
    config.sack = false;
    config.nodelay = true;
    config.congestion = CcKind::kReno;  // the simplest windows to foretell
  }
  ~Peer() {
    release(t);
    EXPECT_EQ(pool.free_count(), pool.size()) << "a frame was leaked";
  }

  /// Options that the peer's segments carry.
  std::vector<uint8_t> syn_options() const {
    std::vector<uint8_t> o(40);
    wire::SynOptions s;
    s.mss = peer_mss;
    s.sack_permitted = config.sack;
    s.timestamps = config.timestamps;
    s.ts_val = ts_val;
    s.ts_ecr = ts_ecr;
    if (config.window_scaling) s.window_scale = peer_wscale;
    o.resize(wire::emit_syn_options(std::span<uint8_t, 40>(o.data(), 40), s));
    return o;
  }
  std::vector<uint8_t> ts_options() const {
    std::vector<uint8_t> o(40);
    wire::TcpOptionWriter w(std::span<uint8_t, 40>(o.data(), 40));
    w.timestamps(ts_val, ts_ecr);
    o.resize(w.size());
    return o;
  }
  Segment make(SegFlags flags, uint32_t seq, uint32_t ack, const std::string& data,
               std::span<const uint8_t> options) {
    Segment s;
    s.seq = irs + seq;
    s.ack = has(flags, kAck) ? iss + ack : Seq32(0);
    s.window = window;
    s.ecn = ecn;
    s.flags = flags;
    s.options = options;
    if (!data.empty()) {
      PacketRef b(pool.take());
      EXPECT_TRUE(b);
      std::memcpy(b->data(), data.data(), data.size());
      b->length = static_cast<uint16_t>(data.size());
      s.payload.push_back(std::move(b));
    }
    return s;
  }
  Effects in(SegFlags flags, uint32_t seq, uint32_t ack, const std::string& data = "") {
    const bool syn = has(flags, kSyn);
    const std::vector<uint8_t> o = syn                                    ? syn_options()
                                   : config.timestamps && send_timestamps ? ts_options()
                                                                          : std::vector<uint8_t>{};
    Segment s = make(flags, seq, ack, data, o);
    s.segments = coalesced;
    return input(t, std::move(s), now);
  }
  /// Everything the Tcb wants to say now.
  std::vector<Out> out(unsigned most = 10'000) {
    std::vector<Out> all;
    Plan p;
    while (all.size() < most && next_segment(t, now, p)) {
      Out o;
      o.seq = p.seq.value() - iss.value();
      o.ack = p.ack.value() - irs.value();
      o.window = p.window;
      o.urgent = p.urgent;
      o.flags = p.flags;
      o.retransmission = p.retransmission;
      o.ecn = p.ecn;
      o.at = now;
      if (p.length > 0)
        o.data.assign(reinterpret_cast<const char*>(p.packet->frame + p.at), p.length);
      o.options = wire::parse_tcp_options({p.options, p.options_length}, has(p.flags, kSyn));
      for (unsigned i = 0; i < o.options.sack_count; ++i)
        o.sack.emplace_back(o.options.sack[i].left.value() - irs.value(),
                            o.options.sack[i].right.value() - irs.value());
      all.push_back(std::move(o));
      sent(t, p, now);
    }
    EXPECT_LT(all.size(), 10'000u) << "next_segment never ends";
    return all;
  }
  /// Lets time pass up to `until`, firing deadlines; what was said on the way.
  std::vector<Out> until(Instant end) {
    std::vector<Out> all;
    while (true) {
      for (Out& o : out()) all.push_back(std::move(o));
      const Instant d = deadline(t);
      if (d.is_never() || d > end) break;
      now = std::max(now, d);
      effects |= on_deadline(t, now);
    }
    now = end;
    for (Out& o : out()) all.push_back(std::move(o));
    return all;
  }
  std::vector<Out> after(Duration d) { return until(now + d); }

  size_t write(const std::string& s, bool more = false) {
    if (!more && may_append_nagled(t, s.size())) {
      append_nagled(t, s.data(), s.size());
      Plan p;
      EXPECT_FALSE(next_segment(t, now, p)) << "what was held may leave";
      return s.size();
    }
    const iovec v{const_cast<char*>(s.data()), s.size()};
    return append(t, {&v, 1}, more, now);
  }
  std::string read(size_t most = 1u << 30) {
    std::string s;
    PacketChain& q = recv_queue(t);
    while (!q.empty() && s.size() < most) {
      const auto n = static_cast<uint32_t>(std::min<size_t>(most - s.size(), q.front()->length));
      s.append(reinterpret_cast<const char*>(q.front()->data()), n);
      q.trim_front(n);
    }
    consumed(t, static_cast<uint32_t>(s.size()), now);
    return s;
  }

  void establish_active() {
    open_active(t, config, pool, iss, now);
    ASSERT_EQ(out().size(), 1u);
    in(kSyn | kAck, 0, 1);
    const auto o = out();
    ASSERT_EQ(o.size(), 1u);
    ASSERT_EQ(state(t), State::kEstablished);
    t.quick_acks = 0;  // tests of delayed ACKs want them delayed
  }
  void establish_passive() {
    const auto o = syn_options();
    open_passive(t, config, pool, make(kSyn, 0, 0, "", o), iss, now);
    ASSERT_EQ(out().size(), 1u);
    in(kAck, 1, 1);
    ASSERT_EQ(state(t), State::kEstablished);
    t.quick_acks = 0;
    out();
  }

  std::vector<std::byte> memory;
  PacketPool pool;
  Config config;
  Tcb t;
  Seq32 iss, irs;
  Instant now = Instant::from_ns(1'000'000'000'000);
  Effects effects{};
  uint16_t window = 65535;  ///< the peer's next window field
  uint16_t peer_mss = 1460;
  uint8_t peer_wscale = 0;
  wire::Ecn ecn = wire::Ecn::kNotEct;  ///< of the peer's next segments
  uint32_t ts_val = 100, ts_ecr = 0;
  uint8_t coalesced = 1;  ///< segments of the wire in each that comes in
  bool send_timestamps = true;
};

/// Fixture: every test under six pairs of initial numbers.
class TcpTest : public ::testing::TestWithParam<int> {
 protected:
  static uint32_t ours() { return kIss[GetParam()]; }
  static uint32_t theirs() { return kIss[(GetParam() + 3) % 6]; }
};

inline std::string text(size_t n, char first = 'a') {
  std::string s(n, ' ');
  for (size_t i = 0; i < n; ++i) s[i] = static_cast<char>(first + static_cast<char>(i % 26));
  return s;
}

}  // namespace vireo::tcp
