// Explicit congestion notification: negotiation, marks, echoes (RFC 3168 §6.1, RFC 8257 §3).
#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {
namespace {

constexpr auto kEce = SegFlags::kEce;
constexpr auto kCwr = SegFlags::kCwr;
using wire::Ecn;

class EcnTest : public TcpTest {
 protected:
  /// Active open with ECN asked for; the SYN-ACK says `answer`.
  static void connect(Peer& p, SegFlags answer = kEce) {
    open_active(p.t, p.config, p.pool, p.iss, p.now);
    const auto syn = p.out();
    ASSERT_EQ(syn.size(), 1u);
    EXPECT_TRUE(syn[0].is(kSyn | kEce | kCwr));
    p.in(kSyn | kAck | answer, 0, 1);
    const auto ack = p.out();
    ASSERT_EQ(ack.size(), 1u);
    EXPECT_TRUE(ack[0].is(kAck));
    p.t.quick_acks = 0;
  }
};
INSTANTIATE_TEST_SUITE_P(Iss, EcnTest, ::testing::Range(0, 6));

TEST_P(EcnTest, ActiveOpenAsks) {  // RFC 3168 §6.1.1
  Peer p(ours(), theirs());
  p.config.ecn = EcnMode::kRequest;
  connect(p);
  EXPECT_TRUE(p.t.ecn_on);
}

TEST_P(EcnTest, AnswerWithBothFlagsIsNone) {  // §6.1.1: an old host that reflects the flags
  Peer p(ours(), theirs());
  p.config.ecn = EcnMode::kRequest;
  connect(p, kEce | kCwr);
  EXPECT_FALSE(p.t.ecn_on);
}

TEST_P(EcnTest, UnaskedAnswerIsNone) {
  Peer p(ours(), theirs());
  open_active(p.t, p.config, p.pool, p.iss, p.now);
  EXPECT_TRUE(p.out()[0].is(kSyn));
  p.in(kSyn | kAck | kEce, 0, 1);
  EXPECT_FALSE(p.t.ecn_on);
  p.out();
}

TEST_P(EcnTest, RepeatedSynAsksNoMore) {  // §6.1.1.1
  Peer p(ours(), theirs());
  p.config.ecn = EcnMode::kRequest;
  open_active(p.t, p.config, p.pool, p.iss, p.now);
  p.out();
  const auto again = p.after(Duration::ms(1100));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_TRUE(again[0].is(kSyn));
}

TEST_P(EcnTest, PassiveOpenAgrees) {  // net.ipv4.tcp_ecn = 2
  for (const EcnMode mode : {EcnMode::kOff, EcnMode::kRequest, EcnMode::kAccept}) {
    for (const Ecn on_syn : {Ecn::kNotEct, Ecn::kEct0}) {
      Peer p(ours(), theirs());
      p.config.ecn = mode;
      p.ecn = on_syn;
      const auto o = p.syn_options();
      open_passive(p.t, p.config, p.pool, p.make(kSyn | kEce | kCwr, 0, 0, "", o), p.iss, p.now);
      const auto reply = p.out();
      ASSERT_EQ(reply.size(), 1u);
      const bool agreed = mode != EcnMode::kOff && on_syn == Ecn::kNotEct;
      EXPECT_TRUE(reply[0].is(agreed ? kSyn | kAck | kEce : kSyn | kAck));
      EXPECT_EQ(p.t.ecn_on, agreed);
    }
  }
}

TEST_P(EcnTest, OnlyNewDataIsMarked) {  // §6.1.4, §6.1.5, §6.1.6
  Peer p(ours(), theirs());
  p.config.ecn = EcnMode::kRequest;
  connect(p);
  p.write(text(100));
  const auto data = p.out();
  ASSERT_EQ(data.size(), 1u);
  EXPECT_EQ(data[0].ecn, Ecn::kEct0);
  const auto again = p.after(Duration::ms(2500));
  ASSERT_GE(again.size(), 1u);
  EXPECT_TRUE(again.back().retransmission);
  EXPECT_EQ(again.back().ecn, Ecn::kNotEct);
  p.in(kAck, 1, 101, "x");
  const auto ack = p.after(Duration::ms(50));
  ASSERT_EQ(ack.size(), 1u);
  EXPECT_EQ(ack[0].ecn, Ecn::kNotEct);
}

TEST_P(EcnTest, NobodyMarksWithoutAgreement) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(100));
  EXPECT_EQ(p.out()[0].ecn, Ecn::kNotEct);
  p.ecn = Ecn::kCe;
  p.in(kAck, 1, 101, "x");
  for (const Out& o : p.after(Duration::ms(50))) EXPECT_TRUE(o.is(kAck));
}

TEST_P(EcnTest, EchoLastsUntilCwr) {  // §6.1.3
  Peer p(ours(), theirs());
  p.config.ecn = EcnMode::kRequest;
  connect(p);
  p.ecn = Ecn::kCe;
  p.in(kAck, 1, 1, "a");
  auto o = p.out();  // at once
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(o[0].is(kAck | kEce));
  p.ecn = Ecn::kEct0;
  p.in(kAck, 2, 1, "b");
  p.write("r");  // the echo rides on data
  o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(o[0].is(kAck | kEce));
  p.in(kAck | kCwr, 3, 2, "c");
  o = p.after(Duration::ms(50));
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(o[0].is(kAck));
  p.ecn = Ecn::kCe;
  p.in(kAck | kCwr, 4, 2, "d");  // CWR and marked anew
  o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(o[0].is(kAck | kEce));
}

TEST_P(EcnTest, EchoLowersTheWindowOnceAWindow) {  // §6.1.2; RFC 8511 §3: by 0.8
  Peer p(ours(), theirs());
  p.config.ecn = EcnMode::kRequest;
  connect(p);
  p.write(text(40'000));
  ASSERT_EQ(p.out().size(), 10u);
  p.in(kAck | kEce, 1, 1 + 1460);
  EXPECT_EQ(p.t.cc.cwnd, 11'680u);
  EXPECT_EQ(p.t.cc.ssthresh, 11'680u);
  for (uint32_t i = 2; i <= 4; ++i) p.in(kAck | kEce, 1, 1 + i * 1460);
  EXPECT_EQ(p.t.cc.cwnd, 11'680u);
  const auto next = p.out();
  ASSERT_GE(next.size(), 2u);
  EXPECT_TRUE(next[0].is(kAck | kCwr));  // once
  EXPECT_TRUE(next[1].is(kAck));
  p.in(kAck | kEce, 1, 1 + 10 * 1460);  // the CWR is beyond it
  EXPECT_EQ(p.t.cc.ssthresh, 11'680u);
  p.in(kAck, 1, 1 + 11 * 1460);
  EXPECT_FALSE(p.t.cc.in_episode);
  p.in(kAck | kEce, 1, 1 + 12 * 1460);
  EXPECT_LT(p.t.cc.ssthresh, 11'680u);
}

TEST_P(EcnTest, LossAndEchoOfOneWindowLowerOnce) {  // §6.1.2
  Peer p(ours(), theirs());
  p.config.ecn = EcnMode::kRequest;
  connect(p);
  p.write(text(40'000));
  p.out();
  p.in(kAck | kEce, 1, 1 + 1460);
  const uint32_t ssthresh = p.t.cc.ssthresh;
  p.out();
  for (int i = 0; i < 4; ++i) p.in(kAck | kEce, 1, 1 + 1460);
  EXPECT_EQ(p.t.cc.ssthresh, ssthresh);
}

TEST_P(EcnTest, DctcpAsksMarksAllAndTellsEachChange) {  // RFC 8257 §3.2, §3.5
  Peer p(ours(), theirs());
  p.config.congestion = CcKind::kDctcp;
  p.config.ecn = EcnMode::kOff;
  connect(p);
  ASSERT_TRUE(p.t.ecn_on);
  p.ecn = Ecn::kEct0;
  p.in(kAck, 1, 1, "aaaa");
  EXPECT_TRUE(p.out().empty());  // delayed
  p.ecn = Ecn::kCe;
  p.in(kAck, 5, 1, "bb");
  auto o = p.out();
  ASSERT_EQ(o.size(), 2u);
  EXPECT_TRUE(o[0].is(kAck));  // what came before
  EXPECT_EQ(o[0].ack, 5u);
  EXPECT_EQ(o[0].ecn, Ecn::kEct0);
  EXPECT_TRUE(o[1].is(kAck | kEce));
  EXPECT_EQ(o[1].ack, 7u);
  EXPECT_LE(o[0].ack + o[0].window, o[1].ack + o[1].window);
  p.in(kAck, 7, 1, "cc");  // no change: delayed again
  EXPECT_TRUE(p.out().empty());
  p.ecn = Ecn::kEct0;
  p.in(kAck, 9, 1, "dd");
  o = p.out();
  ASSERT_EQ(o.size(), 2u);
  EXPECT_TRUE(o[0].is(kAck | kEce));
  EXPECT_EQ(o[0].ack, 9u);
  EXPECT_TRUE(o[1].is(kAck));
  EXPECT_EQ(o[1].ack, 11u);
}

TEST_P(EcnTest, DctcpLowersByAlpha) {  // RFC 8257 §3.3
  Peer p(ours(), theirs());
  p.config.congestion = CcKind::kDctcp;
  connect(p);
  p.t.cc.dctcp.alpha = 0.5;
  p.write(text(40'000));
  ASSERT_EQ(p.out().size(), 10u);
  p.in(kAck | kEce, 1, 1 + 1460);
  EXPECT_EQ(p.t.cc.cwnd, 14'600u * 3 / 4);
  for (uint32_t i = 2; i <= 4; ++i) p.in(kAck | kEce, 1, 1 + i * 1460);
  EXPECT_EQ(p.t.cc.cwnd, 14'600u * 3 / 4) << "once a window";
  const auto next = p.out();
  ASSERT_FALSE(next.empty());
  EXPECT_TRUE(next[0].is(kAck | kCwr));
}

}  // namespace
}  // namespace vireo::tcp
