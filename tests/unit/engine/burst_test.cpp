// Devices that segment (TxFrame::mss), in virtual time: two engines at the ends of one link, the
// same programs, the same harm on the wire, once with frames that the device cuts and once without.
// What is on the wire is the same, byte for byte and to the nanosecond.
#include <gtest/gtest.h>

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "core/checksum.h"
#include "dev/mem/mem_link.h"
#include "stack/engine/engine.h"
#include "stack/wire/parse.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr uint16_t kPort = 80;
constexpr const char* kV4[] = {"10.0.0.1", "10.0.0.2"};
constexpr const char* kV6[] = {"fd00::1", "fd00::2"};
constexpr net::Mac kMacs[] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};

/// What is done with a link and two programs.
struct Story {
  bool v6 = false;
  uint64_t seed = 1;
  MemImpairments there{.delay = Duration::ms(2)};
  MemImpairments back{.delay = Duration::ms(2)};
  tcp::Config config{};
  IpSettings ip{};
  uint32_t bytes = 600'000;
  uint32_t chunk = 100'000;
  Duration between{};         ///< writes
  bool more = false;          ///< MSG_MORE on each write but the last
  uint32_t urgent_at = 0;     ///< the write that reaches this is urgent, 0: none
  uint32_t mtu_falls_at = 0;  ///< so many bytes read, and the way carries 1200 bytes; 0: never
  bool is_silent = false;     ///< of which no router tells
  bool is_fast = false;       ///< RFC 7413: the first chunk goes with the SYN
};

struct Told {
  Instant at;
  unsigned by = 0;
  std::vector<std::byte> bytes;
};

/// What came of it.
struct Outcome {
  std::vector<Told> frames;
  uint64_t bursts = 0;
  uint64_t retransmits = 0;
  uint64_t sent_packets = 0, sent_bytes = 0;  ///< as the engine counts them
  uint64_t wire_frames = 0, wire_bytes = 0;
  tcp::Info info{};
  std::string failure;
};

std::byte stream_byte(uint64_t i) {
  return static_cast<std::byte>((i * 0x9e3779b97f4a7c15ULL) >> 56);
}

std::vector<std::byte> stream(uint64_t from, size_t n) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = stream_byte(from + i);
  return bytes;
}

constexpr FastConnect kFast{.data_follows = true, .without_cookie = true};

class Pair {
 public:
  Pair(const Story& story, const MemDeviceOptions& device)
      : story_(story),
        clock_(Instant::from_ns(int64_t{10} * 366 * 86'400 * 1'000'000'000)),
        link_(story.seed, story.there, story.back, clock_, device) {
    for (unsigned i = 0; i < 2; ++i) {
      auto mirror = net::Mirror::open();
      VIREO_ASSERT(mirror.has_value());
      mirrors_[i] = std::move(*mirror);
      mirrors_[i]->store().publish(
          tables({.v4 = kV4[i], .v6 = kV6[i], .mac = kMacs[i], .router_mac = kMacs[1 - i]}));
      EngineConfig config;
      config.arena_bytes = size_t{16} << 20;
      config.huge_pages = false;
      config.secret = {story.seed, ~story.seed};
      const MemEnd end = i == 0 ? MemEnd::kA : MemEnd::kB;
      DeviceOpener opener = [this, end](const net::Link&,
                                        Arena&) -> Carried<std::unique_ptr<Device>> {
        return link_.release(end);
      };
      auto engine = Engine::create(EngineId(static_cast<uint8_t>(i)), config, std::move(opener),
                                   *mirrors_[i], {on_tcp, on_accept, on_udp}, stats_[i]);
      VIREO_ASSERT(engine.has_value());
      engines_[i] = std::move(*engine);
      VIREO_ASSERT(engines_[i]->open_all_ports().has_value());
      link_.wire(end).set_filter([this, i](std::span<const std::byte> frame, uint64_t) {
        out_.frames.push_back({clock_.now(), i, {frame.begin(), frame.end()}});
        return i == 0 ? befalls(frame) : MemVerdict::kPass;
      });
    }
  }

  Outcome run() {
    tcp::Config config = story_.config;
    config.mss = 65'495;
    const ListenOptions options{.fast_open = story_.is_fast ? 16U : 0U,
                                .fast_open_without_cookie = story_.is_fast,
                                .ip = story_.ip};
    const IpAddr any = story_.v6 ? IpAddr() : IpAddr::any_v4();
    auto listener = engines_[1]->tcp_listen({any, kPort, 0}, false, 16, config, &accepted_,
                                            accepted_.stats, options);
    VIREO_ASSERT(listener.has_value());
    const char* const* addresses = story_.v6 ? kV6 : kV4;
    auto route = engines_[0]->route({.dst = ip(addresses[1]), .src = ip(addresses[0])});
    VIREO_ASSERT(route.has_value());
    auto flow = engines_[0]->tcp_connect(
        *route, {ip(addresses[0]), 40'000, 0}, {ip(addresses[1]), kPort, 0}, config, story_.ip,
        &connected_, connected_.stats, now(), story_.is_fast ? &kFast : nullptr);
    VIREO_ASSERT(flow.has_value());
    connected_.flow = *flow;
    if (story_.is_fast) {
      const auto first = stream(0, story_.chunk);
      const iovec v{const_cast<std::byte*>(first.data()), first.size()};
      written_ = static_cast<uint32_t>(engines_[0]->tcp_send_syn(**flow, kFast, {&v, 1}, now()));
      if (written_ == 0) out_.failure = "no data on the SYN";
    }
    const Instant end = now() + Duration::s(300);
    while (!is_over_ && now() < end && out_.failure.empty()) {
      settle();
      act(**listener);
      Instant next = std::min(link_.next_event(), write_at_ > now() ? write_at_ : Instant::never());
      for (auto& e : engines_)
        next = std::min(next, std::max(e->next_deadline(), now() + Wheel::kTick));
      link_.step(std::max(next, now()));
    }
    if (!is_over_ && out_.failure.empty()) out_.failure = "did not end";
    out_.bursts = link_.stats(MemEnd::kA).tx_bursts;
    out_.retransmits = stats_[0].retransmits.get();
    out_.sent_packets = stats_[0].tx_packets.get();
    out_.sent_bytes = stats_[0].tx_bytes.get();
    out_.wire_frames = link_.wire(MemEnd::kA).stats().sent;
    out_.wire_bytes = link_.wire(MemEnd::kA).stats().sent_bytes;
    engines_[1]->tcp_close_listener(**listener, now());
    return std::move(out_);
  }

 private:
  struct End {
    TcpFlow* flow = nullptr;
    SocketStats stats;
    tcp::Effects effects = tcp::Effects::kNone;
  };
  static void on_tcp(TcpFlow& f, tcp::Effects e) { static_cast<End*>(f.owner)->effects |= e; }
  static void on_accept(Listener&) {}
  static void on_udp(UdpFlow&) {}

  Instant now() const { return clock_.now(); }

  /// Until they rest, or wait for a ring that only time makes room in.
  void settle() {
    for (int i = 0; i < 100; ++i) {
      bool is_worked = false;
      for (auto& e : engines_) {
        e->lock().lock();
        is_worked |= e->poll(now()) || e->next_deadline() <= now();
        e->unlock();
      }
      link_.step(now());
      if (!is_worked) return;
    }
  }

  /// A way that carries less than it did (RFC 1191 §4): the frame is dropped, and the router says
  /// so unless it is silent.
  MemVerdict befalls(std::span<const std::byte> frame) {
    if (story_.mtu_falls_at == 0 || read_ < story_.mtu_falls_at || frame.size() <= 14 + 1200)
      return MemVerdict::kPass;
    if (!story_.is_silent) too_big_ = wire::parse_frame(frame).tcp().seq();
    return MemVerdict::kDrop;
  }

  void act(Listener& l) {
    if (const auto quoted = std::exchange(too_big_, std::nullopt)) {
      auto f =
          icmp_error_frame({ip(kV4[0]), 40'000, 0}, {ip(kV4[1]), kPort, 0}, *quoted, 3, 4, 1200);
      link_.inject(MemEnd::kB, f);
    }
    if (accepted_.flow == nullptr) {
      accepted_.flow = engines_[1]->tcp_accept(l);
      if (accepted_.flow != nullptr) accepted_.flow->owner = &accepted_;
      if (accepted_.flow != nullptr) accepted_.flow->stats = &accepted_.stats;
    }
    write();
    read();
  }

  void write() {
    if (connected_.flow == nullptr || now() < write_at_) return;
    tcp::Tcb& t = connected_.flow->tcb;
    while (written_ < story_.bytes && tcp::can_send(t)) {
      const uint32_t n = std::min(story_.chunk, story_.bytes - written_);
      auto bytes = stream(written_, n);
      const iovec v{bytes.data(), n};
      const bool is_last = written_ + n == story_.bytes;
      size_t took;
      if (story_.urgent_at != 0 && written_ < story_.urgent_at &&
          written_ + n >= story_.urgent_at) {
        took = tcp::append(t, {&v, 1}, false, now());
        tcp::mark_urgent(t);
        engines_[0]->tcp_progress(*connected_.flow, now());
      } else {
        took = engines_[0]->tcp_send(*connected_.flow, {&v, 1}, story_.more && !is_last, now());
      }
      written_ += static_cast<uint32_t>(took);
      if (took < n) return;
      if (story_.between > Duration()) {
        write_at_ = now() + story_.between;
        return;
      }
    }
    if (written_ < story_.bytes) return;
    out_.info = tcp::info(t);
    engines_[0]->tcp_close(*std::exchange(connected_.flow, nullptr), UniqueFd(), false, now());
  }

  void read() {
    if (accepted_.flow == nullptr) return;
    PacketChain& q = tcp::recv_queue(accepted_.flow->tcb);
    uint32_t took = 0;
    for (; !q.empty(); q.pop_front()) {
      for (const std::byte b : std::as_const(*q.front()).bytes())
        if (b != stream_byte(read_++)) out_.failure = "wrong byte " + std::to_string(read_ - 1);
      took += q.front()->length;
    }
    if (took > 0) engines_[1]->tcp_received(*accepted_.flow, took, now());
    if (!tcp::peer_closed(accepted_.flow->tcb)) return;
    if (read_ != story_.bytes) out_.failure = "read " + std::to_string(read_);
    engines_[1]->tcp_close(*std::exchange(accepted_.flow, nullptr), UniqueFd(), false, now());
    settle();
    is_over_ = true;
  }

  Story story_;
  VirtualClock clock_;
  MemLink link_;
  std::unique_ptr<net::Mirror> mirrors_[2];
  EngineStats stats_[2];
  std::unique_ptr<Engine> engines_[2];
  End connected_, accepted_;
  uint32_t written_ = 0;
  uint32_t read_ = 0;
  Instant write_at_;
  std::optional<Seq32> too_big_;
  bool is_over_ = false;
  Outcome out_;
};

/// The identification of an IPv4 packet that may not be fragmented means nothing (RFC 6864 §4.1),
/// and a device counts it up where a single segment has 0.
std::vector<std::byte> without_free_id(std::vector<std::byte> f) {
  if (f[12] != std::byte{0x08} || (f[20] & std::byte{0x40}) == std::byte{0}) return f;
  for (const size_t at : {18, 19, 24, 25}) f[at] = std::byte{0};
  return f;
}

constexpr MemDeviceOptions kPlain{
    .rx_ring = 1024, .tx_ring = 1024, .inline_head = true, .max_body_slices = 16};
constexpr MemDeviceOptions kSegments{.rx_ring = 1024,
                                     .tx_ring = 1024,
                                     .inline_head = true,
                                     .max_body_slices = 16,
                                     .tso_max_bytes = 262'144};

/// Tells the story twice. @return how it went with a device that segments.
Outcome same_on_the_wire(const Story& story) {
  const Outcome one = Pair(story, kPlain).run();
  Outcome cut = Pair(story, kSegments).run();
  EXPECT_EQ(one.failure, "");
  EXPECT_EQ(cut.failure, "");
  EXPECT_EQ(one.bursts, 0U);
  if (story.chunk >= 3000) {
    EXPECT_GT(cut.bursts, 0U) << "else nothing was compared";
  }
  const size_t n = std::min(one.frames.size(), cut.frames.size());
  for (size_t i = 0; i < n; ++i) {
    const Told &a = one.frames[i], &b = cut.frames[i];
    const auto f = wire::parse_frame(b.bytes);
    EXPECT_TRUE(f && (f.proto != IpProto::kTcp || wire::l4_checksum_ok(f))) << "frame " << i;
    EXPECT_TRUE(!f || f.is_v6 || wire::ipv4_header_ok(f)) << "frame " << i;
    const bool is_same =
        a.at == b.at && a.by == b.by && without_free_id(a.bytes) == without_free_id(b.bytes);
    EXPECT_TRUE(is_same) << "frame " << i << " of " << a.bytes.size() << " and " << b.bytes.size()
                         << " bytes, at " << (a.at - b.at).ns() << " ns from each other";
    if (!is_same) break;
  }
  EXPECT_EQ(one.frames.size(), cut.frames.size());
  // The counters are those of segments.
  EXPECT_EQ(cut.sent_packets, cut.wire_frames);
  EXPECT_EQ(cut.sent_bytes, cut.wire_bytes);
  EXPECT_EQ(one.info.segs_out, cut.info.segs_out);
  EXPECT_EQ(one.info.bytes_sent, cut.info.bytes_sent);
  EXPECT_EQ(one.info.data_segs_out, cut.info.data_segs_out);
  EXPECT_EQ(one.retransmits, cut.retransmits);
  return cut;
}

TEST(Burst, Bulk) {
  const Outcome o = same_on_the_wire({});
  EXPECT_EQ(o.retransmits, 0U);
  EXPECT_LT(o.bursts, 100U) << "415 segments";
}
TEST(Burst, Ipv6) { same_on_the_wire({.v6 = true}); }

TEST(Burst, LossAndSackRecovery) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Story s{.v6 = seed % 2 == 0, .seed = seed};
    s.there.loss = 0.03;
    s.back.loss = 0.01;
    s.config.sack = seed % 4 != 3;
    s.config.congestion = static_cast<tcp::CcKind>(seed % 3);
    EXPECT_GT(same_on_the_wire(s).retransmits, 0U);
  }
}

TEST(Burst, ReorderingAndDuplicates) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Story s{.seed = seed};
    s.there.reorder = 0.05;
    s.there.duplicate = 0.02;
    s.back.reorder = 0.05;
    same_on_the_wire(s);
  }
}

TEST(Burst, AFullQueueOnTheWay) {
  Story s{.bytes = 2'000'000};
  s.there.bytes_per_second = 5'000'000;
  s.there.queue_frames = 20;
  EXPECT_GT(same_on_the_wire(s).retransmits, 0U);
}

/// RFC 3168 §6.1.2, RFC 8257: ECT on all of them, CWR on the first of new data after the cut.
TEST(Burst, CongestionMarks) {
  for (const auto cc : {tcp::CcKind::kCubic, tcp::CcKind::kDctcp}) {
    Story s{.bytes = 2'000'000};
    s.config.congestion = cc;
    s.config.ecn = tcp::EcnMode::kRequest;
    s.there.bytes_per_second = 20'000'000;
    s.there.ecn_mark_frames = 20;
    const Outcome o = same_on_the_wire(s);
    EXPECT_EQ(o.retransmits, 0U);
    unsigned ect = 0, cwr = 0;
    for (const Told& t : o.frames) {
      const auto f = wire::parse_frame(t.bytes);
      if (t.by != 0 || f.payload().empty()) continue;
      ect += (f.tos & 3) != 0;
      cwr += (f.tcp().flag_bits & 0x80) != 0;
    }
    EXPECT_GT(ect, 1300U);
    EXPECT_GT(cwr, 0U);
  }
}

/// RFC 1191 §6.3: what was in a burst before the router spoke is sent again, smaller.
TEST(Burst, ThePathShrinks) {
  const Outcome o = same_on_the_wire({.mtu_falls_at = 200'000});
  EXPECT_GT(o.retransmits, 0U);
  EXPECT_EQ(o.info.snd_mss, 1148U);
}

/// RFC 4821: and where no router speaks.
TEST(Burst, ThePathShrinksInSilence) {
  Story s{.mtu_falls_at = 200'000, .is_silent = true};
  s.config.mtu_probing = tcp::MtuProbing::kOnBlackHole;
  EXPECT_GT(same_on_the_wire(s).retransmits, 0U);
  s = {.bytes = 2'000'000};
  s.config.mtu_probing = tcp::MtuProbing::kAlways;
  EXPECT_GT(same_on_the_wire(s).info.snd_mss, 1400U);
}

TEST(Burst, CorkMoreAndNagle) {
  for (const uint32_t chunk : {700U, 3000U, 14'481U, 40'000U}) {
    for (int how = 0; how < 4; ++how) {
      Story s{.bytes = 300'000, .chunk = chunk, .between = Duration::us(300)};
      s.config.cork = how == 1;
      s.config.nodelay = how == 2;
      s.more = how == 3;
      same_on_the_wire(s);
    }
  }
}

/// RFC 7413 §4.2: what follows the SYN's data.
TEST(Burst, BehindDataOnTheSyn) {
  const Outcome o = same_on_the_wire({.is_fast = true});
  EXPECT_EQ(o.retransmits, 0U);
  EXPECT_GT(wire::parse_frame(o.frames.front().bytes).payload().size(), 500U);
}

/// RFC 9293 §3.8.5: the pointer is another in each segment.
TEST(Burst, UrgentData) {
  const Outcome o = same_on_the_wire({.bytes = 400'000, .chunk = 40'000, .urgent_at = 200'000});
  EXPECT_TRUE(std::ranges::any_of(o.frames, [](const Told& t) {
    return (wire::parse_frame(t.bytes).tcp().flag_bits & 0x20) != 0;
  }));
}

/// Identifications where routers may fragment: each segment has its own (RFC 6864 §4.2).
TEST(Burst, IdentificationsGoOn) {
  Story s{};
  s.ip.mtu_discover = IP_PMTUDISC_DONT;
  const Outcome o = same_on_the_wire(s);
  uint16_t next = 0;
  bool is_first = true;
  for (const Told& t : o.frames) {
    if (t.by != 0) continue;
    const auto id = static_cast<uint16_t>(std::to_integer<unsigned>(t.bytes[18]) << 8 |
                                          std::to_integer<unsigned>(t.bytes[19]));
    if (!is_first) {
      ASSERT_EQ(id, next);
    }
    is_first = false;
    next = static_cast<uint16_t>(id + 1);
  }
}

/// PSH and FIN are for the last: a program that writes and closes at once says so once.
TEST(Burst, PushAndFinAtTheEndOnly) {
  const Outcome o = same_on_the_wire({.bytes = 14'000, .chunk = 14'000});
  unsigned pushed = 0, fins = 0;
  for (const Told& t : o.frames) {
    if (t.by != 0) continue;
    const auto f = wire::parse_frame(t.bytes);
    pushed += !f.payload().empty() && (f.tcp().flag_bits & 0x08) != 0;
    fins += (f.tcp().flag_bits & 0x01) != 0;
  }
  EXPECT_EQ(pushed, 1U);
  EXPECT_EQ(fins, 1U);
}

/// socket(7) SO_MAX_PACING_RATE: bursts of a millisecond's worth, the rate itself as it was.
TEST(Burst, PacedBurstsAreAMillisecondLong) {
  Story s{.bytes = 1'000'000};
  s.config.max_pacing_rate = 10'000'000;
  const Outcome o = Pair(s, kSegments).run();
  EXPECT_EQ(o.failure, "");
  EXPECT_GT(o.bursts, 50U);
  Instant begin, end;
  uint64_t bytes = 0;
  std::map<int64_t, uint64_t> at_once;
  for (const Told& t : o.frames) {
    const uint64_t n = t.by == 0 ? wire::parse_frame(t.bytes).payload().size() : 0;
    if (n == 0) continue;
    if (bytes == 0) begin = t.at;
    end = t.at;
    bytes += n;
    at_once[t.at.ns()] += n;
  }
  for (const auto& [at, n] : at_once) EXPECT_LE(n, 2 * 10'000U + 1448) << "with a credit as long";
  EXPECT_NEAR(static_cast<double>((end - begin).us()), 100'000, 3000);
}

/// A ring without room takes nothing, and loses nothing.
TEST(Burst, AFullRing) {
  MemDeviceOptions few = kSegments;
  few.tx_ring = 4;
  few.max_body_slices = 3;
  few.tx_time = Duration::us(50);
  const Outcome o = Pair({.bytes = 1'000'000}, few).run();
  EXPECT_EQ(o.failure, "");
  EXPECT_EQ(o.retransmits, 0U);
  EXPECT_GT(o.bursts, 100U);
  EXPECT_EQ(o.sent_packets, o.wire_frames);
  EXPECT_EQ(o.sent_bytes, o.wire_bytes);
}

}  // namespace
}  // namespace vireo::test
