// Devices that segment (TxFrame::mss), in virtual time: two engines at the ends of one link, the
// same programs, the same harm on the wire, once with frames that the device cuts and once without.
// What is on the wire is the same, byte for byte and to the nanosecond.
#include <gtest/gtest.h>

#include <netinet/in.h>

#include <algorithm>
#include <map>

#include "core/checksum.h"
#include "tests/unit/engine/transfer.h"

namespace vireo::test {
namespace {

/// The identification of an IPv4 packet that may not be fragmented means nothing (RFC 6864 §4.1),
/// and a device counts it up where a single segment has 0.
std::vector<std::byte> without_free_id(std::vector<std::byte> f) {
  if (f[12] != std::byte{0x08} || (f[20] & std::byte{0x40}) == std::byte{0}) return f;
  for (const size_t at : {18U, 19U, 24U, 25U}) f[at] = std::byte{0};
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
