// Opening: RFC 9293 §3.5, §3.10.7.2-4; options of the SYN.
#include <cerrno>

#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {
namespace {

class Open : public TcpTest {};
INSTANTIATE_TEST_SUITE_P(Iss, Open, ::testing::Range(0, 6));

TEST_P(Open, Active) {
  Peer p(ours(), theirs());
  p.config.timestamps = p.config.sack = p.config.window_scaling = true;
  open_active(p.t, p.config, p.pool, p.iss, p.now);
  const auto syn = p.out();
  ASSERT_EQ(syn.size(), 1u);
  EXPECT_EQ(syn[0].flags, kSyn);
  EXPECT_EQ(syn[0].seq, 0u);
  EXPECT_TRUE(syn[0].options.has_mss);
  EXPECT_EQ(syn[0].options.mss, 1460);
  EXPECT_TRUE(syn[0].options.sack_permitted);
  EXPECT_TRUE(syn[0].options.has_timestamps);
  EXPECT_TRUE(syn[0].options.has_window_scale);
  const Effects e = p.in(kSyn | kAck, 0, 1);
  EXPECT_TRUE(has(e, Effects::kConnected));
  EXPECT_EQ(state(p.t), State::kEstablished);
  const auto ack = p.out();
  ASSERT_EQ(ack.size(), 1u);
  EXPECT_EQ(ack[0].flags, kAck);
  EXPECT_EQ(ack[0].seq, 1u);
  EXPECT_EQ(ack[0].ack, 1u);
  EXPECT_EQ(ack[0].options.ts_ecr, p.ts_val);
  EXPECT_EQ(effective_mss(p.t), 1448);
}

TEST_P(Open, Passive) {
  Peer p(ours(), theirs());
  const auto o = p.syn_options();
  open_passive(p.t, p.config, p.pool, p.make(kSyn, 0, 0, "", o), p.iss, p.now);
  const auto synack = p.out();
  ASSERT_EQ(synack.size(), 1u);
  EXPECT_EQ(synack[0].flags, kSyn | kAck);
  EXPECT_EQ(synack[0].seq, 0u);
  EXPECT_EQ(synack[0].ack, 1u);
  EXPECT_FALSE(synack[0].options.has_timestamps);  // not offered, not answered
  EXPECT_FALSE(synack[0].options.has_window_scale);
  EXPECT_TRUE(has(p.in(kAck, 1, 1), Effects::kConnected));
  EXPECT_EQ(state(p.t), State::kEstablished);
}

TEST_P(Open, PassiveWithDataAndFinOnTheLastAck) {
  Peer p(ours(), theirs());
  const auto o = p.syn_options();
  open_passive(p.t, p.config, p.pool, p.make(kSyn, 0, 0, "", o), p.iss, p.now);
  p.out();
  const Effects e = p.in(kAck | kFin, 1, 1, "hello");
  EXPECT_TRUE(has(e, Effects::kConnected));
  EXPECT_TRUE(has(e, Effects::kPeerClosed));
  EXPECT_EQ(state(p.t), State::kCloseWait);
  EXPECT_EQ(p.read(), "hello");
  const auto a = p.out();
  ASSERT_EQ(a.size(), 1u);
  EXPECT_EQ(a[0].ack, 7u);
}

TEST_P(Open, Simultaneous) {
  Peer p(ours(), theirs());
  open_active(p.t, p.config, p.pool, p.iss, p.now);
  p.out();
  p.in(kSyn, 0, 0);
  EXPECT_EQ(state(p.t), State::kSynReceived);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].flags, kSyn | kAck);
  EXPECT_EQ(o[0].ack, 1u);
  EXPECT_TRUE(has(p.in(kSyn | kAck, 0, 1), Effects::kConnected));  // figure 8: the crossed SYN-ACK
  EXPECT_EQ(state(p.t), State::kEstablished);
  p.out();
  p.write("x");
  const auto d = p.out();
  ASSERT_EQ(d.size(), 1u);
  EXPECT_EQ(d[0].data, "x");
}

/// Of an older connection of the same ports, which the peer still has, or has in TIME-WAIT.
TEST_P(Open, SynIsRepeatedSoonAfterTheAckOfAnother) {
  Peer p(ours(), theirs());
  p.config.timestamps = true;
  open_active(p.t, p.config, p.pool, p.iss, p.now);
  const auto first = p.out();
  ASSERT_EQ(first.size(), 1u);
  p.in(kAck, 700, 5000);
  const auto reset = p.out();
  ASSERT_EQ(reset.size(), 1u);
  EXPECT_EQ(reset[0].flags, kRst);
  EXPECT_EQ(reset[0].seq, 5000u);
  const auto again = p.until(p.now + Duration::ms(3));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].flags, kSyn);
  EXPECT_EQ(again[0].seq, 0u);
  EXPECT_GT(again[0].options.ts_val, first[0].options.ts_val);
  p.in(kAck, 700, 5000);  // once: who answers so again waits for the timeout
  p.out();
  EXPECT_TRUE(p.until(p.now + Duration::ms(900)).empty());
  EXPECT_TRUE(has(p.in(kSyn | kAck, 0, 1), Effects::kConnected));
  EXPECT_EQ(p.t.cc.cwnd, 10U * effective_mss(p.t)) << "no segment was lost (RFC 5681 §3.1)";
}

TEST_P(Open, SynIsRepeatedAfter1_2_4_8_16_32SecondsThenTimesOut) {
  Peer p(ours(), theirs());
  open_active(p.t, p.config, p.pool, p.iss, p.now);
  const Instant start = p.now;
  const auto o = p.until(p.now + Duration::s(300));
  ASSERT_EQ(o.size(), 7u);
  const int64_t at[7] = {0, 1, 3, 7, 15, 31, 63};
  for (unsigned i = 0; i < 7; ++i) {
    EXPECT_EQ(o[i].flags, kSyn);
    EXPECT_EQ((o[i].at - start).s(), at[i]);
  }
  EXPECT_TRUE(has(p.effects, Effects::kError));
  EXPECT_EQ(error(p.t), ETIMEDOUT);
  EXPECT_EQ(state(p.t), State::kClosed);
}

TEST_P(Open, AfterALostSynTheInitialWindowIsOneSegment) {
  Peer p(ours(), theirs());
  open_active(p.t, p.config, p.pool, p.iss, p.now);
  p.after(Duration::ms(1500));
  p.in(kSyn | kAck, 0, 1);
  p.out();
  p.write(text(20'000));
  EXPECT_EQ(p.out().size(), 1u);  // RFC 5681 §3.1
}

TEST_P(Open, SynAckIsRepeatedByTimerAndByTheRepeatedSyn) {
  Peer p(ours(), theirs());
  const auto o = p.syn_options();
  open_passive(p.t, p.config, p.pool, p.make(kSyn, 0, 0, "", o), p.iss, p.now);
  p.out();
  const auto again = p.after(Duration::ms(1100));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].flags, kSyn | kAck);
  p.in(kSyn, 0, 0);
  const auto third = p.out();
  ASSERT_EQ(third.size(), 1u);
  EXPECT_EQ(third[0].flags, kSyn | kAck);
  p.in(kAck, 1, 1);
  EXPECT_EQ(state(p.t), State::kEstablished);
}

TEST_P(Open, SynAckGivesUp) {
  Peer p(ours(), theirs());
  const auto o = p.syn_options();
  open_passive(p.t, p.config, p.pool, p.make(kSyn, 0, 0, "", o), p.iss, p.now);
  EXPECT_EQ(p.after(Duration::s(300)).size(), 6u);
  EXPECT_EQ(state(p.t), State::kClosed);
}

TEST_P(Open, ResetRefuses) {
  Peer p(ours(), theirs());
  open_active(p.t, p.config, p.pool, p.iss, p.now);
  p.out();
  EXPECT_EQ(p.in(kRst, 0, 0), Effects::kNone);  // no ACK: a blind one
  EXPECT_EQ(p.in(kRst | kAck, 0, 2), Effects::kNone);
  EXPECT_EQ(state(p.t), State::kSynSent);
  EXPECT_TRUE(has(p.in(kRst | kAck, 0, 1), Effects::kError));
  EXPECT_EQ(error(p.t), ECONNREFUSED);
  EXPECT_EQ(state(p.t), State::kClosed);
  EXPECT_TRUE(p.out().empty());
}

TEST_P(Open, UnacceptableAckIsReset) {
  Peer p(ours(), theirs());
  open_active(p.t, p.config, p.pool, p.iss, p.now);
  p.out();
  p.in(kSyn | kAck, 0, 77);
  auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].flags, kRst);
  EXPECT_EQ(o[0].seq, 77u);
  EXPECT_EQ(state(p.t), State::kSynSent);
  const auto so = p.syn_options();
  open_passive(p.t, p.config, p.pool, p.make(kSyn, 0, 0, "", so), p.iss, p.now);
  p.out();
  p.in(kAck, 1, 2);
  o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].flags, kRst);
  EXPECT_EQ(o[0].seq, 2u);
  EXPECT_EQ(state(p.t), State::kSynReceived);
}

TEST_P(Open, ResetInSynReceivedEndsIt) {
  Peer p(ours(), theirs());
  const auto o = p.syn_options();
  open_passive(p.t, p.config, p.pool, p.make(kSyn, 0, 0, "", o), p.iss, p.now);
  p.out();
  p.in(kRst, 2, 0);  // in the window, not exact: challenged
  EXPECT_EQ(state(p.t), State::kSynReceived);
  p.in(kRst, 1, 0);
  EXPECT_EQ(state(p.t), State::kClosed);
}

TEST_P(Open, TheWindowOfASynIsNeverScaled) {
  Peer p(ours(), theirs());
  p.config.window_scaling = true;
  p.peer_wscale = 7;
  p.window = 1000;
  p.establish_active();
  p.write(text(5000));
  size_t total = 0;
  for (const Out& o : p.out()) total += o.data.size();
  EXPECT_EQ(total, 1000u);
  p.window = 100;  // now 12800
  p.in(kAck, 1, 1 + 1000);
  total = 0;
  for (const Out& o : p.out()) total += o.data.size();
  EXPECT_EQ(total, 4000u);
}

TEST_P(Open, MssOptions) {
  const struct {
    uint16_t option;
    uint16_t mss;
  } cases[] = {{0, 536}, {1, 48}, {8, 48}, {47, 48}, {48, 48}, {100, 100}, {9000, 1460}};
  for (const auto& c : cases) {
    Peer p(ours(), theirs());
    p.peer_mss = c.option;
    p.establish_active();
    EXPECT_EQ(effective_mss(p.t), c.mss) << c.option;
  }
  Peer p(ours(), theirs());
  p.peer_mss = 50;
  p.config.timestamps = true;
  p.establish_active();
  EXPECT_EQ(effective_mss(p.t), 48);
}

TEST_P(Open, DataOnTheSynIsLeftForRetransmission) {
  Peer p(ours(), theirs());
  const auto o = p.syn_options();
  open_passive(p.t, p.config, p.pool, p.make(kSyn, 0, 0, "early", o), p.iss, p.now);
  const auto s = p.out();
  ASSERT_EQ(s.size(), 1u);
  EXPECT_EQ(s[0].ack, 1u);
  p.in(kAck, 1, 1, "early");
  EXPECT_EQ(p.read(), "early");
}

TEST_P(Open, IcmpErrorFailsTheConnectOnlyIfItQuotesTheSyn) {
  Peer p(ours(), theirs());
  open_active(p.t, p.config, p.pool, p.iss, p.now);
  p.out();
  EXPECT_EQ(icmp_error(p.t, p.iss + 5, EHOSTUNREACH, false, p.now), Effects::kNone);
  EXPECT_TRUE(has(icmp_error(p.t, p.iss, EHOSTUNREACH, false, p.now), Effects::kError));
  EXPECT_EQ(error(p.t), EHOSTUNREACH);
}

TEST_P(Open, ShutdownBeforeEstablishedSendsFinAfterwards) {
  Peer p(ours(), theirs());
  const auto o = p.syn_options();
  open_passive(p.t, p.config, p.pool, p.make(kSyn, 0, 0, "", o), p.iss, p.now);
  p.out();
  shutdown_write(p.t, p.now);
  p.in(kAck, 1, 1);
  EXPECT_EQ(state(p.t), State::kFinWait1);
  const auto f = p.out();
  ASSERT_EQ(f.size(), 1u);
  EXPECT_TRUE(f[0].is(kFin | kAck));
}

}  // namespace
}  // namespace vireo::tcp
