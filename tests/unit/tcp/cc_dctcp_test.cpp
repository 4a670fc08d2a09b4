// DCTCP's window against the formulas of RFC 8257 §3.3, computed here.
#include <gtest/gtest.h>

#include "stack/tcp/cc.h"

namespace vireo::tcp {
namespace {

constexpr uint32_t kMss = 1000;
const Instant kNow = Instant::from_ns(1'000'000'000'000);

struct Sender {
  CongestionControl c;
  StreamOffset una = 1;
  StreamOffset nxt = 1;

  Sender() {
    cc_start(c, CcKind::kDctcp, kMss, false);
    nxt = una + c.cwnd;
  }
  /// A window of data of which `marked` of `of` segments were marked.
  void window(int marked, int of) {
    const StreamOffset end = nxt;
    int i = 0;
    int seen = 0;
    bool reacted = false;
    while (una < end) {
      CcAck a;
      a.acked = kMss;
      a.mss = kMss;
      a.flight = static_cast<uint32_t>(nxt - una);
      a.ece = i++ % of < marked;
      seen += a.ece ? 1 : 0;
      una += kMss;
      nxt = std::max(nxt, una + c.cwnd);
      a.snd_una = una;
      a.snd_nxt = nxt;
      cc_on_ack(c, a, kNow);
      if (a.ece && !reacted) {
        cc_on_congestion(c, CcEvent::kEcn, a.flight, kMss, kNow);
        reacted = true;
      }
    }
    cc_recovered(c);
    fraction = static_cast<double>(seen) / i;
  }
  double fraction = 0;  ///< M of the latest window
};

TEST(Dctcp, AlphaFollowsTheMarkedFraction) {  // alpha = (1 - g) alpha + g M, g = 1/16, alpha_0 = 1
  Sender s;
  s.c.cwnd = 200'000;
  s.c.ssthresh = 100'000;
  s.nxt = s.una + s.c.cwnd;
  EXPECT_EQ(s.c.dctcp.alpha, 1.0);
  double alpha = 1;
  s.c.dctcp.window_end = s.nxt;
  s.window(0, 10);
  alpha = alpha * 15 / 16;
  for (const int marked : {0, 10, 3, 3, 3, 0, 0, 7}) {
    ASSERT_NEAR(s.c.dctcp.alpha, alpha, 1e-12);
    s.window(marked, 10);
    EXPECT_NEAR(s.fraction, marked / 10.0, 0.05);
    alpha = alpha * 15 / 16 + s.fraction / 16;
  }
}

TEST(Dctcp, ReducesByHalfOfAlpha) {  // cwnd = cwnd (1 - alpha / 2)
  Sender s;
  s.c.cwnd = 100'000;
  s.c.dctcp.alpha = 0.25;
  cc_on_congestion(s.c, CcEvent::kEcn, 100'000, kMss, kNow);
  EXPECT_EQ(s.c.cwnd, 87'500u);
  EXPECT_EQ(s.c.ssthresh, 87'500u);
  cc_recovered(s.c);
  s.c.dctcp.alpha = 1;
  cc_on_congestion(s.c, CcEvent::kEcn, 87'500, kMss, kNow);
  EXPECT_EQ(s.c.cwnd, 43'750u);
}

TEST(Dctcp, LossHalves) {  // §3.5
  Sender s;
  s.c.cwnd = 100'000;
  s.c.dctcp.alpha = 0;
  cc_on_congestion(s.c, CcEvent::kLoss, 100'000, kMss, kNow);
  EXPECT_EQ(s.c.ssthresh, 50'000u);
}

TEST(Dctcp, NeverBelowTwoSegments) {
  Sender s;
  for (int i = 0; i < 100; ++i) {
    cc_on_congestion(s.c, CcEvent::kEcn, s.c.cwnd, kMss, kNow);
    cc_recovered(s.c);
  }
  EXPECT_EQ(s.c.cwnd, 2 * kMss);
}

TEST(Dctcp, AnEchoGrowsNothing) {  // RFC 3168 §6.1.2
  Sender s;
  CcAck a;
  a.acked = a.mss = kMss;
  a.cwnd_limited = true;
  a.ece = true;
  cc_on_ack(s.c, a, kNow);
  EXPECT_EQ(s.c.cwnd, 10 * kMss);
}

TEST(CcChange, KeepsTheWindow) {
  Sender s;
  s.c.cwnd = 30'000;
  s.c.ssthresh = 30'000;
  for (const CcKind k : {CcKind::kCubic, CcKind::kReno, CcKind::kDctcp}) {
    cc_change(s.c, k);
    EXPECT_EQ(s.c.kind, k);
    EXPECT_EQ(s.c.cwnd, 30'000u);
    EXPECT_EQ(cc_kind(cc_name(k)), k);
  }
  EXPECT_FALSE(cc_kind("none"));
  EXPECT_FALSE(cc_kind("bbr"));
}

}  // namespace
}  // namespace vireo::tcp
