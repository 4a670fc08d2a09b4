// HyStart++ (RFC 9406 §4.2) alone and under CUBIC.
#include <gtest/gtest.h>

#include "stack/tcp/cc.h"

namespace vireo::tcp {
namespace {

constexpr uint32_t kMss = 1000;

/// A sender in slow start whose rounds have a given round trip.
struct Start {
  CongestionControl c;
  Instant now = Instant::from_ns(1'000'000'000'000);
  StreamOffset una = 1;
  StreamOffset nxt = 1;

  Start() {
    cc_start(c, CcKind::kCubic, kMss, false);
    nxt = una + c.cwnd;
  }
  void round(Duration rtt, uint32_t samples = 1000) {
    const StreamOffset end = nxt;
    while (una < end) {
      CcAck a;
      a.acked = kMss;
      a.mss = kMss;
      a.cwnd_limited = true;
      a.srtt = a.min_rtt = rtt;
      if (samples > 0) {
        --samples;
        a.rtt = rtt;
      }
      una += kMss;
      a.snd_una = una;
      a.snd_nxt = nxt;
      cc_on_ack(c, a, now);
      nxt = una + c.cwnd;
    }
    now = now + rtt;
  }
};

TEST(HyStart, SteadyRoundTripDoublesEachRound) {
  Start s;
  for (uint32_t cwnd = 10'000; cwnd < 1'000'000; cwnd *= 2) {
    EXPECT_EQ(s.c.cwnd, cwnd);
    s.round(Duration::ms(40));
  }
  EXPECT_TRUE(s.c.in_slow_start());
}

TEST(HyStart, RiseBelowTheThresholdIsIgnored) {  // RttThresh = clamp(4 ms, 40/8, 16 ms)
  Start s;
  s.round(Duration::ms(40));
  s.round(Duration::us(44'990));
  EXPECT_EQ(s.c.cwnd, 40'000u);
  EXPECT_FALSE(s.c.hystart.is_conservative());
}

TEST(HyStart, RiseEntersConservativeSlowStart) {
  Start s;
  s.round(Duration::ms(40));
  const uint32_t before = s.c.cwnd;
  s.round(Duration::ms(45));  // the eighth sample shows it
  EXPECT_TRUE(s.c.hystart.is_conservative());
  EXPECT_LT(s.c.cwnd, 2 * before);
  const uint32_t at = s.c.cwnd;
  s.round(Duration::ms(45));
  EXPECT_NEAR(s.c.cwnd, at + at / 4, 2 * kMss);  // CSS_GROWTH_DIVISOR
}

TEST(HyStart, FewSamplesSayNothing) {  // N_RTT_SAMPLE
  Start s;
  s.round(Duration::ms(40));
  s.round(Duration::ms(80), 7);
  s.round(Duration::ms(80), 7);
  EXPECT_FALSE(s.c.hystart.is_conservative());
}

TEST(HyStart, FiveConservativeRoundsEndSlowStart) {  // CSS_ROUNDS, the first partial one counted
  Start s;
  s.round(Duration::ms(40));
  for (int i = 0; i < 4; ++i) {
    s.round(Duration::ms(50));
    EXPECT_TRUE(s.c.in_slow_start()) << i;
  }
  s.round(Duration::ms(50));
  EXPECT_FALSE(s.c.in_slow_start());
  EXPECT_FALSE(s.c.first_slow_start);
  EXPECT_GE(s.c.cwnd, s.c.ssthresh);
  // RFC 9438 §4.10: the curve begins at its plateau.
  s.round(Duration::ms(50));
  EXPECT_EQ(s.c.cubic.k, 0.0F);
}

TEST(HyStart, NoiseIsForgivenInConservativeSlowStart) {
  Start s;
  s.round(Duration::ms(40));
  s.round(Duration::ms(50));
  ASSERT_TRUE(s.c.hystart.is_conservative());
  s.round(Duration::ms(41));
  EXPECT_FALSE(s.c.hystart.is_conservative());
  const uint32_t at = s.c.cwnd;
  s.round(Duration::ms(41));
  EXPECT_NEAR(s.c.cwnd, 2 * at, 2 * kMss);
}

TEST(HyStart, AnAckCountsForEightSegmentsAtMost) {  // L = 8, unpaced
  HyStart h;
  EXPECT_EQ(h.on_ack(20'000, kMss, Duration::ms(1), 20'001, 50'000).grow, 8u * kMss);
}

TEST(HyStart, OnlyTheFirstSlowStart) {  // §4.3
  Start s;
  cc_on_congestion(s.c, CcEvent::kTimeout, s.c.cwnd, kMss, s.now);
  cc_recovered(s.c);
  s.c.ssthresh = 1'000'000;
  s.nxt = s.una + s.c.cwnd;
  for (int i = 0; i < 6; ++i) s.round(Duration::ms(40 + 20 * i));
  EXPECT_EQ(s.c.cwnd, 64'000u);
}

}  // namespace
}  // namespace vireo::tcp
