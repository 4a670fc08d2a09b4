// Segments that leave as one where the path takes more than a frame of ours holds
// (stack/tcp/fast_path/jumbo.h).
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/engine/transfer.h"

namespace vireo::test {
namespace {

constexpr MemDeviceOptions kJumbo{
    .rx_ring = 1024, .tx_ring = 1024, .inline_head = true, .max_body_slices = 16, .mtu = 9000};
constexpr size_t kHeads = 14 + 20 + 32;
constexpr size_t kMax = kHeads + 5 * 1789;  // five frames of one size in 8948 bytes

Outcome tell(Story s, const MemDeviceOptions& device = kJumbo) {
  s.mtu = s.there.mtu = s.back.mtu = 9000;
  const Outcome o = Pair(s, device).run();
  EXPECT_EQ(o.failure, "");
  for (const Told& t : o.frames) {
    const auto f = wire::parse_frame(t.bytes);
    EXPECT_TRUE(f && (f.proto != IpProto::kTcp || wire::l4_checksum_ok(f)));
    EXPECT_TRUE(!f || f.is_v6 || wire::ipv4_header_ok(f));
  }
  EXPECT_EQ(o.sent_packets, o.wire_frames) << "counted as on the wire";
  EXPECT_EQ(o.sent_bytes, o.wire_bytes);
  return o;
}

size_t longest(const Outcome& o, size_t from = 0) {
  size_t most = 0;
  for (size_t i = from; i < o.frames.size(); ++i)
    if (o.frames[i].by == 0) most = std::max(most, o.frames[i].bytes.size());
  return most;
}

TEST(Joined, LongSegmentsCarryIt) {
  const Outcome o = tell({});
  EXPECT_EQ(longest(o), kMax);
  EXPECT_EQ(o.retransmits, 0U);
  const auto of_data = std::ranges::count_if(
      o.frames, [](const Told& t) { return t.by == 0 && t.bytes.size() > kHeads; });
  EXPECT_LT(of_data, 100) << "336 frames of ours hold it";
  EXPECT_GE(o.info.data_segs_out, static_cast<uint32_t>(of_data) - 1);
  EXPECT_LE(o.info.data_segs_out, static_cast<uint32_t>(of_data));
}

TEST(Joined, Ipv6) { EXPECT_GT(longest(tell({.v6 = true})), 8900U); }

TEST(Joined, OddPieces) {
  for (const uint32_t chunk : {1U, 1000U, 1789U, 1791U, 3577U, 4096U, 8946U})
    tell({.bytes = chunk == 1 ? 5000U : 150'000U, .chunk = chunk});
}

TEST(Joined, LossAndReordering) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Story s{.v6 = seed % 2 == 0, .seed = seed, .bytes = 2'000'000};
    s.there.loss = 0.03;
    s.back.loss = 0.01;
    s.there.duplicate = 0.02;
    s.config.sack = seed % 4 != 3;
    s.config.congestion = static_cast<tcp::CcKind>(seed % 3);
    const Outcome o = tell(s);
    EXPECT_GT(o.retransmits, 0U);
    EXPECT_GT(longest(o), 8000U);
  }
}

TEST(Joined, NeedsADeviceThatGathers) {
  MemDeviceOptions one = kJumbo;
  one.max_body_slices = 1;
  EXPECT_LE(longest(tell({}, one)), kHeads + 1792);
}

TEST(Joined, ARouterTellsThatItTakesLess) {
  const Outcome o = tell({.mtu_falls_at = 200'000, .falls_to = 4000});
  EXPECT_EQ(longest(o), kMax);
  // The frames that were on the way when it fell, and what told of it.
  EXPECT_LE(longest(o, o.frames.size() / 2), 14 + 4000U);
  EXPECT_GT(longest(o, o.frames.size() / 2), 2 * 1789U);
}

/// What is sent again is short and arrives: nothing else would tell of it.
TEST(Joined, APathThatLosesTheLongInSilence) {
  const Outcome o =
      tell({.bytes = 3'000'000, .mtu_falls_at = 200'000, .falls_to = 4000, .is_silent = true});
  EXPECT_EQ(longest(o), kMax);
  EXPECT_LE(longest(o, o.frames.size() / 2), 14 + 4000U);
  EXPECT_LT((o.frames.back().at - o.frames.front().at).ns(), Duration::s(5).ns());
}

}  // namespace
}  // namespace vireo::test
