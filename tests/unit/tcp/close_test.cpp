// Closing: RFC 9293 §3.6, §3.10.4; what Linux does with unread data; TIME-WAIT.
#include <cerrno>

#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {
namespace {

class Close : public TcpTest {};
INSTANTIATE_TEST_SUITE_P(Iss, Close, ::testing::Range(0, 6));

TEST_P(Close, ActiveThroughTimeWait) {
  Peer p(ours(), theirs());
  p.establish_active();
  close(p.t, p.now);
  EXPECT_EQ(state(p.t), State::kFinWait1);
  auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(o[0].is(kFin | kAck));
  p.in(kAck, 1, 2);
  EXPECT_EQ(state(p.t), State::kFinWait2);
  EXPECT_TRUE(has(p.in(kFin | kAck, 1, 2), Effects::kClosed));
  EXPECT_EQ(state(p.t), State::kTimeWait);
  o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].flags, kAck);
  EXPECT_EQ(o[0].ack, 2u);
  p.now = p.now + Duration::s(50);
  p.in(kFin | kAck, 1, 2);  // our ACK was lost: again, and the wait starts anew
  EXPECT_EQ(p.out().size(), 1u);
  p.after(Duration::s(20));
  EXPECT_EQ(state(p.t), State::kTimeWait);
  p.after(Duration::s(41));
  EXPECT_EQ(state(p.t), State::kClosed);
}

TEST_P(Close, FinAndAckTogetherInFinWait1) {
  Peer p(ours(), theirs());
  p.establish_active();
  close(p.t, p.now);
  p.out();
  p.in(kFin | kAck, 1, 2);
  EXPECT_EQ(state(p.t), State::kTimeWait);
}

TEST_P(Close, Simultaneous) {
  Peer p(ours(), theirs());
  p.establish_active();
  close(p.t, p.now);
  p.out();
  p.in(kFin | kAck, 1, 1);
  EXPECT_EQ(state(p.t), State::kClosing);
  EXPECT_EQ(p.out().size(), 1u);
  p.in(kAck, 2, 2);
  EXPECT_EQ(state(p.t), State::kTimeWait);
}

TEST_P(Close, Passive) {
  Peer p(ours(), theirs());
  p.establish_active();
  EXPECT_TRUE(has(p.in(kFin | kAck, 1, 1), Effects::kPeerClosed));
  EXPECT_EQ(state(p.t), State::kCloseWait);
  EXPECT_TRUE(can_send(p.t));
  p.write("bye");
  EXPECT_EQ(p.out().back().data, "bye");
  close(p.t, p.now);
  EXPECT_EQ(state(p.t), State::kLastAck);
  EXPECT_TRUE(p.out().back().is(kFin | kAck));
  EXPECT_TRUE(has(p.in(kAck, 2, 5), Effects::kClosed));
  EXPECT_EQ(state(p.t), State::kClosed);
  EXPECT_EQ(error(p.t), 0);
}

TEST_P(Close, HalfCloseGoesOnReceiving) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("request");
  shutdown_write(p.t, p.now);
  EXPECT_FALSE(can_send(p.t));
  p.out();
  p.in(kAck, 1, 9);
  EXPECT_EQ(state(p.t), State::kFinWait2);
  p.after(Duration::s(300));  // not an orphan: no limit
  EXPECT_EQ(state(p.t), State::kFinWait2);
  for (uint32_t i = 0; i < 10; ++i) p.in(kAck, 1 + 100 * i, 9, text(100));
  EXPECT_EQ(p.read().size(), 1000u);
  p.in(kFin | kAck, 1001, 9);
  EXPECT_EQ(state(p.t), State::kTimeWait);
}

TEST_P(Close, UnreadDataIsAnsweredWithReset) {  // RFC 2525 §2.17
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kAck, 1, 1, "unread");
  p.write("unsent");
  close(p.t, p.now);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(has(o[0].flags, kRst));
  EXPECT_EQ(o[0].seq, 1u);
  EXPECT_EQ(state(p.t), State::kClosed);
}

TEST_P(Close, AClosedConnectionArmsNoTimer) {
  Peer p(ours(), theirs());
  p.establish_active();
  set_cork(p.t, true, p.now);
  p.write("held back");
  abort(p.t, p.now);
  p.out();
  ASSERT_EQ(state(p.t), State::kClosed);
  set_cork(p.t, true, p.now);
  EXPECT_TRUE(deadline(p.t).is_never());
}

TEST_P(Close, DataForAnOrphanIsAnsweredWithReset) {
  Peer p(ours(), theirs());
  p.establish_active();
  close(p.t, p.now);
  p.out();
  p.in(kAck, 1, 2, "late");
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(has(o[0].flags, kRst));
  EXPECT_EQ(state(p.t), State::kClosed);
}

TEST_P(Close, QueuedDataGoesBeforeTheFin) {
  Peer p(ours(), theirs());
  p.config.nodelay = false;
  p.establish_active();
  p.write("a");
  p.out();
  p.write("bc");  // held by Nagle
  close(p.t, p.now);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data, "bc");
  EXPECT_TRUE(o[0].is(kFin | kAck));
}

TEST_P(Close, OrphanInFinWait2IsGivenUp) {  // CVE-2015-5358's kind
  Peer p(ours(), theirs());
  p.establish_active();
  close(p.t, p.now);
  p.out();
  p.in(kAck, 1, 2);
  p.after(Duration::s(59));
  EXPECT_EQ(state(p.t), State::kFinWait2);
  p.after(Duration::s(2));
  EXPECT_EQ(state(p.t), State::kClosed);
  EXPECT_EQ(error(p.t), 0);
}

TEST_P(Close, KeepaliveIsOverWithTheProgram) {  // one timer for it and FIN_WAIT_2, as Linux
  Peer p(ours(), theirs());
  p.establish_active();
  set_keepalive(p.t, true, Duration::s(10), Duration::s(10), 100, p.now);
  shutdown_write(p.t, p.now);
  p.out();
  p.in(kAck, 1, 2);
  ASSERT_EQ(state(p.t), State::kFinWait2);
  EXPECT_EQ(p.after(Duration::ms(10'500)).size(), 1u) << "the program may still read";
  close(p.t, p.now);
  set_keepalive(p.t, true, Duration::s(10), Duration::s(10), 100, p.now);
  EXPECT_TRUE(p.after(Duration::s(59)).empty());
  EXPECT_EQ(state(p.t), State::kFinWait2);
  EXPECT_TRUE(p.after(Duration::s(2)).empty());
  EXPECT_EQ(state(p.t), State::kClosed);
}

TEST_P(Close, EveryStateEndsWhenThePeerVanishes) {  // TCP.md 4.48
  const auto vanish = [](Peer& p) {
    p.until(p.now + Duration::s(4000));
    EXPECT_EQ(state(p.t), State::kClosed);
  };
  {
    Peer p(ours(), theirs());  // FIN_WAIT_1
    p.establish_active();
    close(p.t, p.now);
    vanish(p);
  }
  {
    Peer p(ours(), theirs());  // LAST_ACK
    p.establish_active();
    p.in(kFin | kAck, 1, 1);
    close(p.t, p.now);
    vanish(p);
  }
  {
    Peer p(ours(), theirs());  // CLOSING
    p.establish_active();
    close(p.t, p.now);
    p.out();
    p.in(kFin | kAck, 1, 1);
    vanish(p);
  }
  {
    Peer p(ours(), theirs());  // LAST_ACK, window shut
    p.window = 0;
    p.establish_active();
    p.write("stuck");
    p.in(kFin | kAck, 1, 1);
    close(p.t, p.now);
    vanish(p);
  }
  {
    Peer p(ours(), theirs());  // TIME_WAIT
    p.establish_active();
    close(p.t, p.now);
    p.out();
    p.in(kFin | kAck, 1, 2);
    vanish(p);
  }
}

TEST_P(Close, CloseInSynSentIsSilent) {
  Peer p(ours(), theirs());
  open_active(p.t, p.config, p.pool, p.iss, p.now);
  p.out();
  close(p.t, p.now);
  EXPECT_EQ(state(p.t), State::kClosed);
  EXPECT_TRUE(p.out().empty());
  EXPECT_TRUE(deadline(p.t).is_never());
}

TEST_P(Close, AbortResets) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("abc");
  abort(p.t, p.now);
  EXPECT_EQ(state(p.t), State::kEstablished);  // until it is sent
  EXPECT_EQ(p.in(kAck, 1, 1, "ignored"), Effects::kNone);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(has(o[0].flags, kRst));
  EXPECT_EQ(state(p.t), State::kClosed);
  EXPECT_TRUE(deadline(p.t).is_never());
}

TEST_P(Close, ResetInEachClosingState) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kFin | kAck, 1, 1);
  p.in(kRst, 2, 0);
  EXPECT_EQ(error(p.t), EPIPE);  // CLOSE_WAIT, as Linux
  Peer q(ours(), theirs());
  q.establish_active();
  close(q.t, q.now);
  q.out();
  q.in(kRst, 1, 0);
  EXPECT_EQ(state(q.t), State::kClosed);
}

TEST_P(Close, TimeWaitIgnoresResets) {  // RFC 1337
  Peer p(ours(), theirs());
  p.establish_active();
  close(p.t, p.now);
  p.out();
  p.in(kFin | kAck, 1, 2);
  p.out();
  p.in(kRst, 2, 0);
  EXPECT_EQ(state(p.t), State::kTimeWait);
  TimeWait w = make_time_wait(p.t);
  Plan reply;
  EXPECT_EQ(time_wait_input(w, p.make(kRst, 2, 0, "", {}), p.now, reply), TimeWaitVerdict::kDrop);
}

TEST_P(Close, TimeWaitEntry) {  // RFC 9293 §3.6.1, RFC 6191
  Peer p(ours(), theirs());
  p.config.timestamps = true;
  p.establish_active();
  close(p.t, p.now);
  p.out();
  p.in(kFin | kAck, 1, 2);
  p.out();
  TimeWait w = make_time_wait(p.t);
  static_assert(sizeof(TimeWait) <= 24, "with its keys an entry is 64 bytes");
  Plan r;
  auto o = p.ts_options();
  EXPECT_EQ(time_wait_input(w, p.make(kFin | kAck, 1, 2, "", o), p.now, r),
            TimeWaitVerdict::kRestart);
  EXPECT_EQ(r.ack, p.irs + 2);
  EXPECT_EQ(r.seq, p.iss + 2);
  EXPECT_EQ(r.options_length, 12);
  EXPECT_EQ(time_wait_input(w, p.make(kAck, 2, 2, "", o), p.now, r), TimeWaitVerdict::kDrop);
  EXPECT_EQ(time_wait_input(w, p.make(kAck, 2, 2, "data", o), p.now, r), TimeWaitVerdict::kAck);
  // A new SYN: timestamps decide, then the sequence number.
  w.ts_recent = 0xfffffff0;
  p.ts_val = 10;  // wrapped, newer
  o = p.syn_options();
  EXPECT_EQ(time_wait_input(w, p.make(kSyn, 0, 0, "", o), p.now, r),
            TimeWaitVerdict::kNewConnection);
  p.ts_val = 0xfffffff0;
  o = p.syn_options();
  EXPECT_EQ(time_wait_input(w, p.make(kSyn, 3, 0, "", o), p.now, r),
            TimeWaitVerdict::kNewConnection);
  EXPECT_EQ(time_wait_input(w, p.make(kSyn, 1, 0, "", o), p.now, r), TimeWaitVerdict::kAck);
  p.ts_val = 0xffffffe0;
  o = p.syn_options();
  EXPECT_EQ(time_wait_input(w, p.make(kSyn, 3, 0, "", o), p.now, r), TimeWaitVerdict::kAck);
}

TEST_P(Close, ResetForStrangers) {  // RFC 9293 §3.10.7.1
  Peer p(ours(), theirs());
  Plan r;
  EXPECT_FALSE(reset_for(p.make(kRst, 1, 1, "", {}), 0, r));
  ASSERT_TRUE(reset_for(p.make(kAck, 1, 77, "", {}), 0, r));
  EXPECT_EQ(r.flags, kRst);
  EXPECT_EQ(r.seq, p.iss + 77);  // not 78
  ASSERT_TRUE(reset_for(p.make(kSyn, 0, 0, "", {}), 4, r));
  EXPECT_EQ(r.flags, kRst | kAck);
  EXPECT_EQ(r.seq, Seq32(0));
  EXPECT_EQ(r.ack, p.irs + 5);
}

}  // namespace
}  // namespace vireo::tcp
