#include "stack/ip/pmtu.h"

#include <gtest/gtest.h>

namespace vireo::ip {
namespace {

const IpAddr kA = *IpAddr::parse("10.0.0.1");
const IpAddr kB = *IpAddr::parse("2001:db8::1");
Instant at(int64_t s) { return Instant::from_ns(s * 1'000'000'000); }

TEST(Pmtu, LowersNeverRaisesAndForgets) {
  PmtuTable t(FlowHashKey{1, 2});
  EXPECT_EQ(t.get(kA, 1500, at(0)), 1500U);
  EXPECT_TRUE(t.report(kA, 1400, 1500, at(0)));
  EXPECT_EQ(t.get(kA, 1500, at(1)), 1400U);
  EXPECT_FALSE(t.report(kA, 1450, 1500, at(1))) << "never raised by a report";
  EXPECT_EQ(t.get(kA, 1500, at(1)), 1400U);
  EXPECT_EQ(t.get(kA, 1300, at(1)), 1300U) << "the link is smaller";
  EXPECT_FALSE(t.report(kA, 1400, 1500, at(500))) << "nothing new";
  EXPECT_EQ(t.get(kA, 1500, at(601)), 1400U) << "but kept on";
  EXPECT_EQ(t.get(kA, 1500, at(1100)), 1500U) << "ten minutes after the last report";
  EXPECT_TRUE(t.report(kA, 1450, 1500, at(1100)));
  EXPECT_EQ(t.get(kA, 1500, at(1100)), 1450U);
  EXPECT_LE(t.first_expiry(), at(1700));
  EXPECT_FALSE(t.expire(at(1699)));
  EXPECT_EQ(t.first_expiry(), at(1700));
  EXPECT_TRUE(t.expire(at(1700)));
  EXPECT_TRUE(t.first_expiry().is_never());
}

TEST(Pmtu, FloorsOfBothFamilies) {
  PmtuTable t(FlowHashKey{1, 2});
  EXPECT_TRUE(t.report(kA, 68, 1500, at(0)));
  EXPECT_EQ(t.get(kA, 1500, at(0)), 552U);
  EXPECT_TRUE(t.report(kB, 68, 1500, at(0)));
  EXPECT_EQ(t.get(kB, 1500, at(0)), 1280U);
  EXPECT_FALSE(t.report(*IpAddr::parse("10.0.0.2"), 1500, 1500, at(0))) << "the link's own";
  EXPECT_FALSE(t.report(*IpAddr::parse("10.0.0.2"), 9000, 1500, at(0)));
}

TEST(Pmtu, AFloodKeepsItsSizeAndTheLatest) {
  PmtuTable t(FlowHashKey::random());
  for (uint32_t i = 0; i < 100000; ++i) {
    const IpAddr a = IpAddr::v4(be32(0x0b000000 + i));
    t.report(a, 1000, 1500, at(i / 1000));
    ASSERT_EQ(t.get(a, 1500, at(i / 1000)), 1000U);
  }
  unsigned known = 0;
  for (uint32_t i = 0; i < 100000; ++i)
    known += t.get(IpAddr::v4(be32(0x0b000000 + i)), 1500, at(100)) == 1000 ? 1 : 0;
  EXPECT_LE(known, PmtuTable::kCapacity);
  EXPECT_GT(known, PmtuTable::kCapacity / 2);
}

}  // namespace
}  // namespace vireo::ip
