// CUBIC against the formulas of RFC 9438, computed here in floating point.
#include <gtest/gtest.h>

#include <cmath>

#include "stack/tcp/cc.h"

namespace vireo::tcp {
namespace {

constexpr uint32_t kMss = 1460;
constexpr double kC = 0.4;
constexpr double kBeta = 0.7;
const Instant kStart = Instant::from_ns(1'000'000'000'000);

/// A window-limited sender: one ACK a segment, evenly spread over a round trip.
struct Sender {
  CongestionControl c;
  Instant now = kStart;
  Duration rtt = Duration::ms(100);
  StreamOffset una = 1;

  explicit Sender(Duration round_trip = Duration::ms(100)) : rtt(round_trip) {
    cc_start(c, CcKind::kCubic, kMss, false);
  }
  void ack(uint32_t bytes = kMss) {
    CcAck a;
    a.acked = bytes;
    a.mss = kMss;
    a.flight = c.cwnd;
    a.cwnd_limited = true;
    a.rtt = a.srtt = a.min_rtt = rtt;
    una += bytes;
    a.snd_una = una;
    a.snd_nxt = una + c.cwnd;
    const uint32_t before = c.cwnd;
    cc_on_ack(c, a, now);
    EXPECT_GE(c.cwnd, before) << "an ACK shrank the window";
  }
  void round() {
    const uint32_t n = std::max(c.cwnd / kMss, 1U);
    for (uint32_t i = 0; i < n; ++i) {
      now = now + rtt / n;
      ack();
    }
  }
  /// A loss, repaired at once.
  void lose(CcEvent e = CcEvent::kLoss) {
    cc_on_congestion(c, e, c.cwnd, kMss, now);
    if (e == CcEvent::kLoss) c.cwnd = c.ssthresh;
    cc_recovered(c);
  }
  double segments() const { return static_cast<double>(c.cwnd) / kMss; }
};

TEST(Cubic, MultiplicativeDecrease) {  // RFC 9438 §4.6
  Sender s;
  s.c.cwnd = 100 * kMss;
  s.lose();
  EXPECT_EQ(s.c.ssthresh, 70u * kMss);
  EXPECT_EQ(s.c.cubic.w_max, 100u * kMss);
}

// The sender's buffer or the peer's window held the flight below what the window had grown to: that
// says nothing of the path. Of twice the flight at most (RFC 7661 §4.2).
TEST(Cubic, MultiplicativeDecreaseOfAWindowNotAllUsed) {  // RFC 9438 §4.6, as Linux
  for (const auto& [flight, ssthresh] :
       {std::pair{100U, 70U}, {60U, 70U}, {50U, 70U}, {30U, 42U}}) {
    Sender s;
    s.c.cwnd = 100 * kMss;
    cc_on_congestion(s.c, CcEvent::kLoss, flight * kMss, kMss, s.now);
    EXPECT_NEAR(s.c.ssthresh, ssthresh * kMss, 1) << flight;
  }
}

TEST(Cubic, FollowsTheCurveThroughThePlateau) {  // RFC 9438 §4.2, §4.4, §4.5
  Sender s;
  const double w_max = 1000;
  s.c.cwnd = static_cast<uint32_t>(w_max) * kMss;
  s.lose();
  const double epoch_cwnd = kBeta * w_max;
  const double k = std::cbrt((w_max - epoch_cwnd) / kC);
  const auto w_cubic = [&](double t) { return kC * std::pow(t - k, 3) + w_max; };
  const double rtt = 0.1;
  s.now = s.now + s.rtt;
  s.ack();
  const Instant epoch = s.now;
  double worst = 0;
  for (int i = 0; i < 160; ++i) {
    s.round();
    const double t = static_cast<double>((s.now - epoch).ns()) * 1e-9;
    // The window is steered to where the curve will be a round trip later, so it lies between the
    // curve now and the curve then; within a segment at the turns.
    EXPECT_GE(s.segments(), w_cubic(t - rtt) - 1) << t;
    EXPECT_LE(s.segments(), w_cubic(t + rtt) + 1) << t;
    worst = std::max(worst, std::abs(s.segments() - w_cubic(t)) / w_cubic(t));
  }
  EXPECT_LT(worst, 0.01);
  EXPECT_GT(s.segments(), w_max * 1.1);  // convex: past the plateau by now
}

TEST(Cubic, EveryAckByTheFormula) {  // RFC 9438 §4.2, §4.3, one ACK at a time
  Sender s;
  s.c.cwnd = 60 * kMss;
  s.lose();
  const double w_max = 60;
  double cwnd = s.segments();
  const double cwnd_prior = 60;
  const double k = std::cbrt((w_max - cwnd) / kC);
  double w_est = cwnd;
  const double alpha = 3 * (1 - kBeta) / (1 + kBeta);
  const Instant epoch = s.now;
  const double rtt = 0.1;
  bool reno_region = false;
  bool cubic_region = false;
  for (int i = 0; i < 20'000; ++i) {
    if (i > 0) s.now = s.now + Duration::ns(s.rtt.ns() / 50);
    s.ack();
    const double t = static_cast<double>((s.now - epoch).ns()) * 1e-9;
    const auto w_cubic = [&](double at) { return kC * std::pow(at - k, 3) + w_max; };
    w_est += (w_est < cwnd_prior ? alpha : 1.0) / cwnd;
    if (w_cubic(t) < w_est) {
      reno_region = true;
      cwnd = std::max(cwnd, w_est);
    } else {
      cubic_region = true;
      cwnd += (std::clamp(w_cubic(t + rtt), cwnd, 1.5 * cwnd) - cwnd) / cwnd;
    }
    ASSERT_NEAR(s.segments(), cwnd, 0.02 + cwnd * 1e-4) << i;
  }
  EXPECT_TRUE(reno_region);
  EXPECT_TRUE(cubic_region);
}

TEST(Cubic, RenoFriendlyOnShortPaths) {  // RFC 9438 §4.3: alpha until cwnd_prior, then 1
  Sender s(Duration::us(50));
  s.c.cwnd = 20 * kMss;
  s.lose();
  const uint32_t from = s.c.cwnd;
  double expected = from;
  for (int i = 0; i < 60; ++i) {
    const bool climbing = expected < 20.0 * kMss;
    s.round();
    expected += (climbing ? 3 * (1 - kBeta) / (1 + kBeta) : 1.0) * kMss;
  }
  EXPECT_NEAR(s.c.cwnd, expected, 2.5 * kMss);
}

TEST(Cubic, FastConvergence) {  // RFC 9438 §4.7
  Sender s;
  s.c.cwnd = 100 * kMss;
  s.lose();
  s.c.cwnd = 80 * kMss;  // did not come back to 100
  s.lose();
  EXPECT_EQ(s.c.cubic.w_max, static_cast<uint32_t>(80 * kMss * 1.7 / 2));
  EXPECT_EQ(s.c.ssthresh, 56u * kMss);
}

TEST(Cubic, AfterATimeoutTheCurveBeginsAtItsPlateau) {  // RFC 9438 §4.8
  Sender s;
  s.c.cwnd = 100 * kMss;
  s.lose(CcEvent::kTimeout);
  EXPECT_EQ(s.c.cwnd, kMss);
  EXPECT_EQ(s.c.ssthresh, 70u * kMss);
  while (s.c.in_slow_start()) s.round();
  s.ack();
  EXPECT_EQ(s.c.cubic.k, 0.0F);
  EXPECT_GE(s.c.cubic.w_max, 70u * kMss);
  EXPECT_LE(s.c.cubic.w_max, 74u * kMss);
}

TEST(Cubic, EcnLowersLess) {  // RFC 8511 §3
  Sender s;
  s.c.cwnd = 100 * kMss;
  s.lose(CcEvent::kEcn);
  EXPECT_EQ(s.c.cwnd, 85u * kMss);
}

TEST(Cubic, UndoGoesOnFromTheSamePoint) {  // RFC 9438 §4.9
  Sender s;
  s.c.cwnd = 400 * kMss;
  s.lose();
  for (int i = 0; i < 20; ++i) s.round();
  const uint32_t before = s.c.cwnd;
  const uint32_t w_max = s.c.cubic.w_max;
  ASSERT_LT(before, w_max);
  Sender twin = s;
  s.lose();
  s.now = s.now + s.rtt;
  twin.now = twin.now + twin.rtt;
  cc_undo(s.c);
  EXPECT_EQ(s.c.cwnd, before);
  EXPECT_EQ(s.c.cubic.w_max, w_max);
  for (int i = 0; i < 20; ++i) {
    s.round();
    twin.round();
  }
  EXPECT_NEAR(s.segments(), twin.segments(), twin.segments() * 0.02);
}

TEST(Cubic, UndoOfTheFirstSlowStart) {  // RFC 9438 §4.9, RFC 9406
  Sender s;
  ASSERT_TRUE(s.c.first_slow_start);
  s.lose();
  EXPECT_FALSE(s.c.first_slow_start);
  cc_undo(s.c);
  EXPECT_TRUE(s.c.first_slow_start);
  EXPECT_TRUE(s.c.in_slow_start());
  const uint32_t before = s.c.cwnd;
  s.round();
  EXPECT_EQ(s.c.cwnd, 2 * before);
}

TEST(Cubic, SilenceDoesNotCount) {  // RFC 9438 §4.2, §5.8
  Sender s;
  s.c.cwnd = 400 * kMss;
  s.lose();
  for (int i = 0; i < 10; ++i) s.round();
  Sender twin = s;
  s.now = s.now + Duration::s(3600);  // nothing to send, or too little to fill the window
  for (int i = 0; i < 5; ++i) {
    s.round();
    twin.round();
  }
  EXPECT_NEAR(s.segments(), twin.segments(), twin.segments() * 0.01);
}

TEST(Cubic, RoundTripOfAMicrosecond) {  // TCP.md case 23
  for (const uint32_t mss : {48U, 536U, 1460U, 65'483U}) {
    CongestionControl c;
    cc_start(c, CcKind::kCubic, mss, false);
    Instant now = kStart;
    StreamOffset una = 1;
    for (int i = 0; i < 50'000; ++i) {
      if (i % 1000 == 999) {
        cc_on_congestion(c, i % 5000 == 4999 ? CcEvent::kTimeout : CcEvent::kLoss, c.cwnd, mss,
                         now);
        if (c.cwnd > c.ssthresh) c.cwnd = c.ssthresh;
        cc_recovered(c);
      }
      now = now + Duration::ns(i % 3);  // ACKs in the same tick too
      CcAck a;
      a.acked = 1 + static_cast<uint32_t>(i) % mss;
      a.mss = mss;
      a.cwnd_limited = true;
      a.rtt = a.srtt = a.min_rtt = Duration::us(1);
      a.snd_una = una += a.acked;
      a.snd_nxt = una + c.cwnd;
      const uint32_t before = c.cwnd;
      cc_on_ack(c, a, now);
      ASSERT_GE(c.cwnd, before);
      ASSERT_GE(c.cwnd, mss);
      ASSERT_LE(c.cwnd, CongestionControl::kMaxWindow);
    }
  }
}

TEST(Cubic, AckDivisionGainsNothing) {  // TCP.md 3.10 row 13
  Sender whole(Duration::ms(10));
  whole.c.cwnd = 50 * kMss;
  whole.lose();
  Sender divided = whole;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 50; ++i) {
      whole.now = whole.now + Duration::us(200);
      whole.ack();
      for (int j = 0; j < 73; ++j) {
        divided.now = divided.now + Duration::ns(200'000 / 73);
        divided.ack(20);
      }
    }
  }
  EXPECT_NEAR(divided.c.cwnd, whole.c.cwnd, kMss);
}

TEST(Cubic, ManyYearsAndTheLargestWindow) {
  Sender s;
  s.c.cwnd = CongestionControl::kMaxWindow - kMss;
  s.lose();
  for (int i = 0; i < 1000; ++i) {
    s.now = s.now + s.rtt;
    s.ack(1 << 20);
  }
  s.now = s.now + Duration::s(100LL * 365 * 86400);
  s.ack();
  EXPECT_LE(s.c.cwnd, CongestionControl::kMaxWindow);
}

TEST(Idle, HalfTheWindowForEachTimeout) {  // RFC 5681 §4.1, RFC 2861 §3.2, as Linux
  Sender s;
  s.c.cwnd = 160 * kMss;
  s.c.ssthresh = 100 * kMss;
  cc_on_idle(s.c, kMss, Duration::ms(700), Duration::ms(300));
  EXPECT_EQ(s.c.cwnd, 40u * kMss);
  EXPECT_EQ(s.c.ssthresh, 120u * kMss);
  cc_on_idle(s.c, kMss, Duration::s(1'000'000), Duration::ms(300));
  EXPECT_EQ(s.c.cwnd, 10u * kMss);
  s.c.cwnd = 3 * kMss;
  cc_on_idle(s.c, kMss, Duration::s(1'000'000), Duration::ms(300));
  EXPECT_EQ(s.c.cwnd, 3u * kMss);  // never raised
}

}  // namespace
}  // namespace vireo::tcp
