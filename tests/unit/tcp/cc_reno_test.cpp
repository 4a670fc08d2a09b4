// The window alone, without a connection: what every algorithm shares, and Reno.
#include <gtest/gtest.h>

#include "stack/tcp/cc.h"

namespace vireo::tcp {
namespace {

constexpr uint32_t kMss = 1000;
const Instant kNow = Instant::from_ns(1'000'000'000'000);

CcAck ack(uint32_t bytes) {
  CcAck a;
  a.acked = bytes;
  a.mss = kMss;
  a.cwnd_limited = true;
  return a;
}

CongestionControl started(CcKind kind = CcKind::kReno) {
  CongestionControl c;
  cc_start(c, kind, kMss, false);
  return c;
}

TEST(Reno, SlowStartThenOneSegmentPerWindow) {  // RFC 5681 §3.1
  CongestionControl c = started();
  EXPECT_EQ(c.cwnd, 10'000u);
  c.cwnd = 20'000;
  cc_on_congestion(c, CcEvent::kLoss, 30'000, kMss, kNow);  // beyond cwnd: let out by SACK
  EXPECT_EQ(c.ssthresh, 10'000u);
  c.cwnd = c.ssthresh;
  cc_recovered(c);
  for (int i = 0; i < 10; ++i) cc_on_ack(c, ack(1000), kNow);
  EXPECT_EQ(c.cwnd, 11'000u);
  cc_on_congestion(c, CcEvent::kTimeout, 400, kMss, kNow);
  EXPECT_EQ(c.ssthresh, 2000u);
  EXPECT_EQ(c.cwnd, 1000u);
}

TEST(Reno, AckDivisionGainsNothing) {  // RFC 3465 §2.1: bytes are counted, not ACKs
  CongestionControl c = started();
  for (int i = 0; i < 1000; ++i) cc_on_ack(c, ack(1), kNow);
  EXPECT_EQ(c.cwnd, 11'000u);
  c.ssthresh = c.cwnd;
  for (int i = 0; i < 11'000; ++i) cc_on_ack(c, ack(1), kNow);
  EXPECT_EQ(c.cwnd, 12'000u);
}

TEST(Reno, StretchAckCountsTwoSegments) {  // RFC 3465 §2.2, L = 2
  CongestionControl c = started();
  cc_on_ack(c, ack(10'000), kNow);
  EXPECT_EQ(c.cwnd, 12'000u);
}

TEST(Reno, UnusedWindowDoesNotGrow) {  // RFC 7661 §4.1
  CongestionControl c = started();
  CcAck a = ack(1000);
  a.cwnd_limited = false;
  cc_on_ack(c, a, kNow);
  a.cwnd_limited = true;
  a.recovering = true;
  cc_on_ack(c, a, kNow);
  EXPECT_EQ(c.cwnd, 10'000u);
}

TEST(Congestion, OneEpisodeLowersSsthreshOnce) {  // RFC 5681 §3.1, RFC 6582 §3.2
  CongestionControl c = started();
  cc_on_congestion(c, CcEvent::kEcn, 10'000, kMss, kNow);
  const uint32_t ssthresh = c.ssthresh;
  EXPECT_EQ(c.cwnd, ssthresh);
  cc_on_congestion(c, CcEvent::kLoss, 8000, kMss, kNow);
  EXPECT_EQ(c.cwnd, ssthresh);
  for (int i = 0; i < 5; ++i) {
    cc_on_congestion(c, CcEvent::kTimeout, 1000, kMss, kNow);
    EXPECT_EQ(c.cwnd, kMss);
  }
  EXPECT_EQ(c.ssthresh, ssthresh);
  cc_recovered(c);
  cc_on_congestion(c, CcEvent::kLoss, 8000, kMss, kNow);
  EXPECT_LT(c.ssthresh, ssthresh);
}

TEST(Congestion, UndoRestoresAndHappensOnce) {  // RFC 3522 §3.2, RFC 5682 §3
  CongestionControl c = started();
  cc_undo(c);
  EXPECT_EQ(c.cwnd, 10'000u);
  c.cwnd = 40'000;
  cc_on_congestion(c, CcEvent::kTimeout, 40'000, kMss, kNow);
  cc_on_congestion(c, CcEvent::kTimeout, 40'000, kMss, kNow);
  EXPECT_EQ(c.cwnd, kMss);
  EXPECT_EQ(c.ssthresh, 20'000u);
  cc_undo(c);
  EXPECT_EQ(c.cwnd, 40'000u);
  EXPECT_EQ(c.ssthresh, CongestionControl::kMaxWindow);
  c.cwnd = 5000;
  cc_undo(c);
  EXPECT_EQ(c.cwnd, 5000u);
}

TEST(Congestion, UndoAfterTheEpisodeKeepsWhatGrewSince) {
  CongestionControl c = started();
  cc_on_congestion(c, CcEvent::kLoss, 10'000, kMss, kNow);
  c.cwnd = c.ssthresh;
  cc_recovered(c);
  c.cwnd = 12'000;
  cc_undo(c);
  EXPECT_EQ(c.cwnd, 12'000u);
}

TEST(NoControl, OnlyThePeersWindow) {  // VMA_TCP_CC_ALGO=2
  CongestionControl c = started(CcKind::kNone);
  EXPECT_EQ(c.cwnd, CongestionControl::kMaxWindow);
  cc_on_congestion(c, CcEvent::kTimeout, 20'000, kMss, kNow);
  c.cwnd = 5000;  // recovery's
  cc_recovered(c);
  cc_on_idle(c, kMss, Duration::s(10), Duration::s(1));
  cc_on_ack(c, ack(1), kNow);
  EXPECT_EQ(c.cwnd, CongestionControl::kMaxWindow);
}

TEST(InitialWindow, Rfc6928) {
  EXPECT_EQ(initial_window(1460), 14'600u);
  EXPECT_EQ(initial_window(536), 5360u);
  EXPECT_EQ(initial_window(9000), 18'000u);
  CongestionControl c;
  cc_start(c, CcKind::kReno, kMss, true);  // RFC 5681 §3.1: the SYN was lost
  EXPECT_EQ(c.cwnd, kMss);
}

}  // namespace
}  // namespace vireo::tcp
