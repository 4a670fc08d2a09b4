// SO_MAX_PACING_RATE in virtual time, and the rates that TCP_INFO shows.
#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {
namespace {

class Pacing : public TcpTest {};
INSTANTIATE_TEST_SUITE_P(Iss, Pacing, ::testing::Range(0, 6));

TEST_P(Pacing, EachSegmentWaitsForTheOneBefore) {
  Peer p(ours(), theirs());
  p.config.max_pacing_rate = 146'000;  // a full segment each 10 ms
  p.establish_active();
  const Instant start = p.now;
  p.write(text(8 * 1460));
  const auto o = p.after(Duration::ms(100));
  ASSERT_EQ(o.size(), 8u);
  // The first finds a millisecond of credit, which the second may use.
  for (size_t i = 1; i < o.size(); ++i)
    EXPECT_EQ((o[i].at - start).us(), static_cast<int64_t>(i) * 10'000 - 1000) << i;
  EXPECT_TRUE(o[0].at == start);
}

TEST_P(Pacing, AcksAreNotPaced) {
  Peer p(ours(), theirs());
  p.config.max_pacing_rate = 1000;
  p.establish_active();
  p.write(text(1460));
  EXPECT_EQ(p.out().size(), 1u);
  p.write(text(1460));
  p.in(kAck, 1, 1, "a");
  p.in(kAck, 2, 1, "b");
  const auto o = p.after(Duration::ms(50));
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(o[0].is(kAck));
  EXPECT_EQ(o[0].ack, 3u);
}

TEST_P(Pacing, RaisedRateCountsFromTheNextSegment) {
  Peer p(ours(), theirs());
  p.establish_active();
  set_max_pacing_rate(p.t, 14'600);
  p.write(text(5 * 1460));
  EXPECT_EQ(p.out().size(), 1u);
  EXPECT_EQ((deadline(p.t) - p.now).ms(), 99);
  set_max_pacing_rate(p.t, UINT64_MAX);
  EXPECT_EQ(p.out().size(), 4u);
}

TEST_P(Pacing, LateWakeUpsAreCaughtUpWith) {  // by a millisecond at most
  Peer p(ours(), theirs());
  p.config.max_pacing_rate = 14'600'000;  // ten segments a millisecond
  p.establish_active();
  p.write(text(60 * 1460));
  p.t.cc.cwnd = 1 << 20;
  EXPECT_EQ(p.out().size(), 11u);  // the credit, and the one that ends it
  p.now = p.now + Duration::us(550);
  EXPECT_EQ(p.out().size(), 5u);
  p.now = p.now + Duration::ms(20);
  EXPECT_EQ(p.out().size(), 11u);
}

TEST_P(Pacing, RetransmissionsArePacedToo) {
  Peer p(ours(), theirs());
  p.config.max_pacing_rate = 14'600;  // a segment each 100 ms
  p.establish_active();
  p.write(text(3 * 1460));
  const auto o = p.after(Duration::s(3));
  ASSERT_GE(o.size(), 4u);
  for (size_t i = 2; i < o.size(); ++i) EXPECT_GE((o[i].at - o[i - 1].at).ms(), 99) << i;
}

TEST_P(Pacing, InfoShowsTheRates) {
  Peer p(ours(), theirs());
  p.establish_active();
  EXPECT_EQ(info(p.t).max_pacing_rate, UINT64_MAX);
  p.t.rtt.sample(Duration::ms(10), Duration::ms(200), Duration::s(120));
  for (int i = 0; i < 200; ++i)
    p.t.rtt.sample(Duration::ms(10), Duration::ms(200), Duration::s(120));
  EXPECT_NEAR(static_cast<double>(info(p.t).pacing_rate), 2 * 14'600 * 100.0, 30'000);
  set_max_pacing_rate(p.t, 1'000'000);
  EXPECT_EQ(info(p.t).pacing_rate, 1'000'000u);
}

TEST(DeliveryRate, ARoundOverItsTime) {
  DeliveryRate r;
  DeliveryRound round;
  Instant now = Instant::from_ns(1'000'000'000);
  r.on_ack(round, 1, 10'001, false, now);
  r.on_ack(round, 5001, 15'001, false, now + Duration::ms(5));
  EXPECT_EQ(r.bytes_per_second(), 0u);
  r.on_ack(round, 10'001, 20'001, false, now + Duration::ms(10));
  EXPECT_EQ(r.bytes_per_second(), 1'000'000u);
  r.on_ack(round, 20'001, 20'101, true,
           now + Duration::ms(110));  // slower, and not the path's fault
  EXPECT_EQ(r.bytes_per_second(), 1'000'000u);
  EXPECT_FALSE(r.is_app_limited());
}

}  // namespace
}  // namespace vireo::tcp
