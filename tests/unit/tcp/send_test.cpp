// Sending: Nagle, cork, silly windows, probes, the retransmission timer, fast recovery, keepalive.
#include <cerrno>
#include <set>

#include "stack/tcp/fast_path/single_segment.h"
#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {
namespace {

class Send : public TcpTest {};
INSTANTIATE_TEST_SUITE_P(Iss, Send, ::testing::Range(0, 6));

TEST_P(Send, SegmentsOfTheEffectiveMss) {
  Peer p(ours(), theirs());
  p.establish_active();
  const std::string s = text(3000);
  EXPECT_EQ(p.write(s), 3000u);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 3u);
  EXPECT_EQ(o[0].data + o[1].data + o[2].data, s);
  EXPECT_EQ(o[0].data.size(), 1460u);
  EXPECT_FALSE(has(o[0].flags, kPsh));
  EXPECT_TRUE(has(o[2].flags, kPsh));
  EXPECT_EQ(unacked_bytes(p.t), 3000u);
  p.in(kAck, 1, 3001);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
  EXPECT_TRUE(deadline(p.t) > p.now + Duration::ms(500));
}

TEST_P(Send, NagleByMinshall) {  // RFC 9293 §3.7.4
  Peer p(ours(), theirs());
  p.config.nodelay = false;
  p.establish_active();
  p.write("a");
  EXPECT_EQ(p.out().size(), 1u);
  p.write("b");
  EXPECT_TRUE(p.out().empty());
  p.write("c");
  EXPECT_TRUE(p.out().empty());
  p.in(kAck, 1, 2);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data, "bc");
  p.in(kAck, 1, 4);
  // A full segment in flight does not hold a small one back.
  p.write(text(1460));
  p.write("d");
  EXPECT_EQ(p.out().size(), 2u);
}

TEST_P(Send, SmallWritesJoinWhatNagleHolds) {
  Peer p(ours(), theirs());
  p.config.sack = p.config.tlp = true;
  p.config.nodelay = false;
  p.establish_active();
  const std::string all = text(4000);
  auto piece = [&, at = 0u](uint32_t n) mutable {
    return all.substr(std::exchange(at, at + n), n);
  };
  const auto write = [&](const std::string& s) { EXPECT_EQ(p.write(s), s.size()); };
  EXPECT_FALSE(may_append_nagled(p.t, 1)) << "nothing is in flight";
  write(piece(7));
  EXPECT_EQ(p.out().size(), 1u);
  EXPECT_FALSE(may_append_nagled(p.t, 1)) << "nothing waits yet";
  write(piece(101));
  EXPECT_TRUE(p.out().empty());
  for (unsigned held = 101; held + 101 < 1460; held += 101) {
    ASSERT_TRUE(may_append_nagled(p.t, 101));
    write(piece(101));  // asks whether anything may leave
  }
  EXPECT_FALSE(may_append_nagled(p.t, 46 + 1)) << "a full segment does not wait";
  set_cork(p.t, true, p.now);
  EXPECT_FALSE(may_append_nagled(p.t, 1)) << "the cork has a timer";
  p.t.cork = false;
  refresh_prediction(p.t);
  ASSERT_TRUE(may_append_nagled(p.t, 1));
  p.in(kAck, 1, 1, "an answer");
  EXPECT_EQ(p.t.acks_due != 0, !may_append_nagled(p.t, 1)) << "an ACK that is due goes";
  p.out();
  write(piece(100));
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data, all.substr(7, 1460));
  p.in(kAck, 10, 1 + 7 + 1460);
  const auto rest = p.out();
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].data, all.substr(7 + 1460, 14 * 101 + 100 - 1460));
}

// Once for each segment, and not long before it leaves.
TEST_P(Send, WhatIsHeldIsNearlyFullOnce) {
  for (const size_t each : {1, 64, 100, 128, 300}) {
    Peer p(ours(), theirs());
    p.config.sack = p.config.tlp = true;
    p.config.nodelay = false;
    p.establish_active();
    p.write("a");
    p.out();
    p.write("b");
    unsigned times = 0;
    size_t held = 1;
    while (may_append_nagled(p.t, each)) {
      append_nagled(p.t, text(each).data(), each);
      held += each;
      if (!is_nearly_full(p.t, each)) continue;
      ++times;
      EXPECT_GT(held + 128, 1459u);
    }
    EXPECT_EQ(times, each <= 128) << each;  // a longer one may fill what is left of it
  }
}

TEST_P(Send, NothingJoinsWhatHasToGo) {
  for (const bool by_nodelay : {true, false}) {
    Peer p(ours(), theirs());
    p.config.sack = p.config.tlp = true;
    p.config.nodelay = false;
    p.establish_active();
    p.write("a");
    p.out();
    p.write("b");
    ASSERT_TRUE(may_append_nagled(p.t, 1));
    if (by_nodelay) {
      set_nodelay(p.t, true, p.now);
    } else {
      set_cork(p.t, true, p.now);
      set_cork(p.t, false, p.now);
    }
    EXPECT_FALSE(may_append_nagled(p.t, 1));
    EXPECT_EQ(p.out().size(), 1u);
  }
}

TEST_P(Send, NodelayReleasesWhatNagleHeld) {
  Peer p(ours(), theirs());
  p.config.nodelay = false;
  p.establish_active();
  p.write("a");
  p.out();
  p.write("b");
  EXPECT_TRUE(p.out().empty());
  set_nodelay(p.t, true, p.now);
  EXPECT_EQ(p.out().size(), 1u);
}

TEST_P(Send, AWriteWithoutRoomHoldsNothingBack) {  // MSG_MORE that ends in EAGAIN
  Peer p(ours(), theirs());
  p.config.snd_buf = 1500;
  p.config.nodelay = false;
  p.establish_active();
  p.write("a");
  EXPECT_EQ(p.out().size(), 1u);
  p.write(text(1499));
  EXPECT_EQ(p.out().size(), 1u);  // Nagle keeps 39 bytes while the small segment is out
  EXPECT_EQ(p.write("x", true), 0u);
  p.in(kAck, 1, 1462);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data.size(), 39u);
}

TEST_P(Send, ALoneSegmentThatCouldNotLeaveIsNotHeldByAnEarlierMsgMore) {
  Peer p(ours(), theirs());
  p.config.sack = p.config.tlp = true;
  p.establish_active();
  p.write(text(1460), true);  // a full segment goes whatever may follow
  EXPECT_EQ(p.out().size(), 1u);
  p.now = p.now + Duration::ms(1);
  p.in(kAck, 1, 1461);
  ASSERT_TRUE(may_send_single(p.t, 1, p.now));
  PacketBuf* const b = p.pool.take();
  queue_single(p.t, b,
               fill_segment(p.t, b, "x", 1));  // the device's ring is full: no sent_single()
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data, "x");
}

TEST_P(Send, CorkHoldsAPartialSegmentFor200Milliseconds) {  // tcp(7)
  Peer p(ours(), theirs());
  p.establish_active();
  set_cork(p.t, true, p.now);
  p.write(text(1500));
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data.size(), 1460u);
  p.in(kAck, 1, 1461);
  const Instant start = p.now;
  const auto late = p.after(Duration::ms(300));
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].data.size(), 40u);
  EXPECT_EQ((late[0].at - start).ms(), 200);
  p.in(kAck, 1, 1501);
  p.write("x");
  EXPECT_TRUE(p.out().empty());
  set_cork(p.t, false, p.now);
  EXPECT_EQ(p.out().size(), 1u);
}

TEST_P(Send, MsgMoreIsACorkForOneCall) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("head", true);
  EXPECT_TRUE(p.out().empty());
  p.write("body");
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data, "headbody");
}

TEST_P(Send, SillyWindowIsNotFilled) {  // RFC 9293 §3.8.6.2.1
  Peer p(ours(), theirs());
  p.window = 4000;
  p.establish_active();
  p.write(text(6000));
  EXPECT_EQ(p.out().size(), 2u);  // 1080 more would fit: neither a segment nor half the window
  p.window = 100;
  p.in(kAck, 1, 1461);
  EXPECT_TRUE(p.out().empty());
}

TEST_P(Send, ASmallWindowDoesNotDeadlock) {  // TCP.md 4.29: the persist timer overrides
  Peer p(ours(), theirs());
  p.config.nodelay = false;
  p.establish_active();
  p.write("first");
  p.out();
  p.window = 100;
  p.in(kAck, 1, 6);
  p.write(text(1460));
  EXPECT_TRUE(p.out().empty());
  const auto o = p.after(Duration::ms(1500));
  ASSERT_GE(o.size(), 1u);
  EXPECT_EQ(o[0].data.size(), 100u);
}

TEST_P(Send, ZeroWindowIsProbedWithDataAndBackoff) {  // RFC 9293 §3.8.6.1
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("x");
  p.out();
  p.now = p.now + Duration::ms(1);
  p.window = 0;
  p.in(kAck, 1, 2);
  p.write("abcdef");
  EXPECT_TRUE(p.out().empty());
  const Instant start = p.now;
  std::vector<Out> probes;
  for (int i = 0; i < 4; ++i) {
    const Instant d = deadline(p.t);
    ASSERT_FALSE(d.is_never());
    const auto o = p.until(d);
    ASSERT_EQ(o.size(), 1u);
    EXPECT_EQ(o[0].data, "a");
    EXPECT_EQ(o[0].seq, 2u);
    probes.push_back(o[0]);
    p.in(kAck, 1, 2);  // still closed
  }
  EXPECT_EQ((probes[0].at - start).ms(), 200);
  EXPECT_EQ((probes[1].at - probes[0].at).ms(), 400);
  EXPECT_EQ((probes[2].at - probes[1].at).ms(), 800);
  EXPECT_EQ((probes[3].at - probes[2].at).ms(), 1600);
  p.window = 1000;
  p.in(kAck, 1, 2);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data, "abcdef");
}

// The probe interval's doublings are no congestion: RFC 6298 §5.5 doubles for what was lost.
TEST_P(Send, ProbesLeaveTheTimeoutAsItWas) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("x");
  p.out();
  p.now = p.now + Duration::ms(1);
  p.window = 0;
  p.in(kAck, 1, 2);
  p.write(text(1000));
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(p.until(p.t.rtx_at).size(), 1u);
    p.in(kAck, 1, 2);  // still closed
  }
  p.window = 1000;
  p.in(kAck, 1, 2);
  ASSERT_EQ(p.out().size(), 1u);
  const Instant start = p.now;
  const auto o = p.until(p.t.rtx_at);  // it is lost
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ((o[0].at - start).ms(), 200);
}

// What is sent again into a window that the peer took back is as good as a probe.
TEST_P(Send, TimeoutsInAShutWindowLeaveTheTimeoutAsItWas) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("x");
  p.out();
  p.now = p.now + Duration::ms(1);
  p.in(kAck, 1, 2);
  p.write(text(3000));
  p.out();
  p.window = 0;
  p.in(kAck, 1, 2);
  for (int i = 0; i < 9; ++i) {
    ASSERT_EQ(p.until(p.t.rtx_at).size(), 1u);
    p.in(kAck, 1, 2);
  }
  p.window = 10'000;
  p.in(kAck, 1, 2);
  const Instant start = p.now;
  const auto o = p.until(start + Duration::ms(200));
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].seq, 2u);
  p.in(kAck, 1, 1462);
  EXPECT_FALSE(p.out().empty());
}

// Losses do double it, until an ACK of something sent once (RFC 6298 §5.5, Karn).
TEST_P(Send, LossesBackOffUntilTheNextSample) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("a");
  p.out();
  p.now = p.now + Duration::ms(1);
  p.in(kAck, 1, 2);
  p.write("b");
  p.out();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(p.until(p.t.rtx_at).size(), 1u);
  p.in(kAck, 1, 3);
  p.write("c");
  p.out();
  EXPECT_EQ((p.t.rtx_at - p.now).ms(), 1600);
  p.now = p.now + Duration::ms(1);
  p.in(kAck, 1, 4);
  p.write("d");
  p.out();
  EXPECT_EQ((p.t.rtx_at - p.now).ms(), 200);
}

TEST_P(Send, APeerMayTakeTheProbedByte) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("x");
  p.out();
  p.window = 0;
  p.in(kAck, 1, 2);
  p.write("abcdef");
  p.until(deadline(p.t));
  p.window = 1000;
  p.in(kAck, 1, 3);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data, "bcdef");
  p.in(kAck, 1, 8);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
}

TEST_P(Send, FinIsProbedThroughAZeroWindow) {  // TCP.md 4.34
  Peer p(ours(), theirs());
  p.window = 0;
  p.establish_active();
  close(p.t, p.now);
  EXPECT_EQ(state(p.t), State::kFinWait1);
  EXPECT_TRUE(p.out().empty());
  const auto o = p.after(Duration::ms(1500));
  ASSERT_GE(o.size(), 1u);
  EXPECT_TRUE(o[0].is(kFin | kAck));
  p.in(kAck, 1, 2);
  EXPECT_EQ(state(p.t), State::kFinWait2);
}

TEST_P(Send, AnsweredProbesKeepTheConnectionForEver) {  // RFC 1122 §4.2.2.17
  Peer p(ours(), theirs());
  p.config.user_timeout = Duration::s(5);
  p.window = 0;
  p.establish_active();
  p.write("abc");
  for (int i = 0; i < 60; ++i) {
    p.until(deadline(p.t));
    p.in(kAck, 1, 1);
  }
  EXPECT_EQ(state(p.t), State::kEstablished);
}

TEST_P(Send, UserTimeoutEndsUnansweredProbes) {  // TCP.md 4.35
  Peer p(ours(), theirs());
  p.config.user_timeout = Duration::s(5);
  p.window = 0;
  p.establish_active();
  p.write("abc");
  const Instant start = p.now;
  while (state(p.t) == State::kEstablished && p.now < start + Duration::s(100))
    p.until(deadline(p.t));
  EXPECT_EQ(error(p.t), ETIMEDOUT);
  EXPECT_LE((p.now - start).s(), 7);
}

TEST_P(Send, WindowThatShrinksBelowWhatIsInFlight) {  // TCP.md 4.4
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(14'600));
  EXPECT_EQ(p.out().size(), 10u);
  p.write(text(14'600));
  p.window = 10;
  p.in(kAck, 1, 1461);
  EXPECT_TRUE(p.out().empty());
  p.window = 0;
  p.in(kAck, 1, 1461);
  EXPECT_TRUE(p.out().empty());
  EXPECT_EQ(p.t.rtx_timer, RtxTimer::kRetransmit);
  const auto o = p.after(Duration::ms(1200));
  ASSERT_GE(o.size(), 1u);
  EXPECT_EQ(o[0].data.size(), 1460u);  // one segment a timeout, no more
  EXPECT_LE(o.size(), 3u);
  p.window = 65535;
  p.in(kAck, 1, 14'601);
  size_t total = 0;
  for (const Out& q : p.out()) total += q.data.size();
  EXPECT_GE(total, 1460u);
}

// RFC 9293 §3.8.6 SHLD-17: a peer that answers and has its window back is not given up, however
// often what lies beyond is sent again.
TEST_P(Send, DataBeyondATakenBackWindowNeverTimesOut) {
  Peer p(ours(), theirs());
  p.config.retries2 = 5;
  p.config.rto_max = Duration::s(2);
  p.establish_active();
  p.write(text(3000));
  ASSERT_EQ(p.out().size(), 3u);
  p.window = 0;
  p.in(kAck, 1, 1);
  unsigned again = 0;
  for (int i = 0; i < 600; ++i) {
    again += static_cast<unsigned>(p.after(Duration::ms(500)).size());
    p.in(kAck, 1, 1);
    ASSERT_EQ(state(p.t), State::kEstablished) << i;
  }
  EXPECT_GT(again, 100u);
  p.window = 65535;
  p.in(kAck, 1, 3001);
  EXPECT_EQ(p.t.outstanding(), 0u);
}

TEST_P(Send, OldSegmentsDoNotUpdateTheWindow) {  // RFC 9293 §3.10.7.4, SND.WL1, SND.WL2
  Peer p(ours(), theirs());
  p.window = 1000;
  p.establish_active();
  p.window = 5000;
  p.in(kAck, 1, 1, "abc");
  EXPECT_EQ(info(p.t).snd_wnd, 5000u);
  p.window = 10;
  Segment s = p.make(kAck, 0, 1, "zabc", {});  // overlaps, older
  input(p.t, std::move(s), p.now);
  EXPECT_EQ(info(p.t).snd_wnd, 5000u);
}

TEST_P(Send, InitialWindowIsTenSegments) {  // RFC 6928; TCP.md 4.26
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(60'000));
  EXPECT_EQ(p.out().size(), 10u);
}

TEST_P(Send, SlowStartCountsBytesNotAcks) {  // RFC 3465; TCP.md 3.10 #13
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(60'000));
  p.out();
  const uint32_t before = p.t.cc.cwnd;
  for (uint32_t i = 1; i <= 1460; ++i) p.in(kAck, 1, 1 + i);
  EXPECT_LE(p.t.cc.cwnd, before + 1460);
  p.in(kAck, 1, 14'601);
  EXPECT_LE(p.t.cc.cwnd, before + 1460 + 2 * 1460);
}

TEST_P(Send, OptimisticAcksGainNothing) {  // TCP.md 3.10 #12
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(60'000));
  p.out();
  const uint32_t before = p.t.cc.cwnd;
  p.in(kAck, 1, 14'602);
  EXPECT_EQ(p.t.cc.cwnd, before);
  EXPECT_EQ(unacked_bytes(p.t), 60'000u);
}

TEST_P(Send, RestartAfterIdle) {  // RFC 5681 §4.1
  Peer p(ours(), theirs());
  p.establish_active();
  for (int i = 0; i < 20; ++i) {
    p.write(text(60'000));
    p.out();
    p.in(kAck, 1, static_cast<uint32_t>(p.t.snd_nxt));
  }
  p.in(kAck, 1, static_cast<uint32_t>(p.t.snd_nxt));
  while (unacked_bytes(p.t) > 0) {
    p.out();
    p.in(kAck, 1, static_cast<uint32_t>(p.t.snd_nxt));
  }
  EXPECT_GT(p.t.cc.cwnd, 14'600u);
  p.now = p.now + Duration::s(10);
  p.write("x");
  EXPECT_EQ(p.t.cc.cwnd, 14'600u);
}

TEST_P(Send, TimeoutResendsTheFirstSegmentAndBacksOff) {  // RFC 6298 §5
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(2920));
  p.out();
  const Instant start = p.now;
  const auto o = p.after(Duration::s(8));
  ASSERT_GE(o.size(), 4u);
  int64_t at = 0, step = 200;
  for (unsigned i = 0; i < 4; ++i, step *= 2) {
    at += step;
    EXPECT_EQ((o[i].at - start).ms(), at);
    EXPECT_EQ(o[i].seq, 1u);
    EXPECT_EQ(o[i].data.size(), 1460u);
    EXPECT_TRUE(o[i].retransmission);
  }
}

/// TCP.md 3.10 row 17: those whom one outage silenced do not come back together. The first timeout
/// is as RFC 6298 computes it, those after it lie within 5 % of its doublings, by connection.
TEST_P(Send, RepeatedTimeoutsAreSpread) {
  std::set<int64_t> second, third;
  for (uint32_t n = 1; n <= 200; ++n) {
    int64_t again = 0;
    for (int run = 0; run < 2; ++run) {  // the same connection does the same again
      Peer p(ours(), theirs());
      p.config.ts_offset = n * 7919;
      p.config.spread_rto = true;
      p.config.rto_max = Duration::ms(1000);
      p.establish_active();
      p.write("x");
      p.out();
      const Instant start = p.now;
      const auto o = p.after(Duration::s(4));
      ASSERT_GE(o.size(), 5u);
      EXPECT_EQ(o[0].at - start, Duration::ms(200));
      const int64_t waits[] = {(o[1].at - o[0].at).us(), (o[2].at - o[1].at).us(),
                               (o[4].at - o[3].at).us()};
      EXPECT_GE(waits[0], 380'000);
      EXPECT_LE(waits[0], 420'000);
      EXPECT_GE(waits[1], 760'000);
      EXPECT_LE(waits[1], 840'000);
      EXPECT_GE(waits[2], 950'000);
      EXPECT_LE(waits[2], 1'000'000);  // TCP_RTO_MAX_MS is the most
      second.insert(waits[0]);
      third.insert(waits[1]);
      if (run == 1) {
        EXPECT_EQ(waits[0], again);
      }
      again = waits[0];
    }
  }
  EXPECT_GE(second.size(), 190u);
  EXPECT_GE(third.size(), 190u);
  EXPECT_LE(*second.begin(), 382'000);
  EXPECT_GE(*second.rbegin(), 418'000);
}

TEST_P(Send, DataThatIsNeverAcknowledgedTimesOut) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("x");
  const auto o = p.until(p.now + Duration::s(3600));
  EXPECT_EQ(o.size(), 16u);  // tcp_retries2
  EXPECT_EQ(error(p.t), ETIMEDOUT);
  EXPECT_TRUE(has(p.effects, Effects::kError));
}

TEST_P(Send, SoftErrorReplacesTheTimeout) {  // RFC 1122 §4.2.3.9
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("x");
  p.out();
  icmp_error(p.t, p.iss + 1, EHOSTUNREACH, true, p.now);
  EXPECT_EQ(state(p.t), State::kEstablished);
  p.until(p.now + Duration::s(3600));
  EXPECT_EQ(error(p.t), EHOSTUNREACH);
}

TEST_P(Send, UserTimeoutEndsRetransmission) {
  Peer p(ours(), theirs());
  p.config.user_timeout = Duration::s(3);
  p.establish_active();
  p.write("x");
  p.out();
  const Instant start = p.now;
  p.until(p.now + Duration::ms(2990));
  EXPECT_EQ(state(p.t), State::kEstablished);
  p.until(start + Duration::ms(3010));
  EXPECT_EQ(error(p.t), ETIMEDOUT);
}

TEST_P(Send, UserTimeoutEndsAnOrphanOnce) {  // with one reset, not a burst of retransmissions
  Peer p(ours(), theirs());
  p.config.user_timeout = Duration::s(3);
  p.establish_active();
  p.write("x");
  close(p.t, p.now);
  p.out();
  const auto before = p.after(Duration::ms(2990));
  EXPECT_LE(before.size(), 4u);
  const auto o = p.after(Duration::ms(20));
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(has(o[0].flags, kRst));
  EXPECT_EQ(state(p.t), State::kClosed);
}

TEST_P(Send, DuplicateAcksDoNotRestartTheTimer) {  // TCP.md 4.16
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(1460));
  p.out();
  const Instant start = p.now;
  std::vector<Out> o;
  for (int i = 0; i < 5 && o.empty(); ++i) {
    o = p.after(Duration::ms(90));
    if (o.empty()) p.in(kAck, 1, 1, text(1, static_cast<char>('a' + i)));
  }
  ASSERT_FALSE(o.empty());
  const auto all = p.until(start + Duration::ms(450));
  EXPECT_GE(p.t.total_retrans, 1u);
}

TEST_P(Send, TimerSurvivesAFailedEmission) {  // TCP.md 4.17
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("x");
  Plan plan;
  ASSERT_TRUE(next_segment(p.t, p.now, plan));  // and never sent
  p.now = p.now + Duration::s(5);
  on_deadline(p.t, p.now);
  auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data, "x");
  p.until(deadline(p.t) - Duration::ms(1));
  p.now = deadline(p.t);
  on_deadline(p.t, p.now);
  ASSERT_TRUE(next_segment(p.t, p.now, plan));  // the ring is full: refused again
  EXPECT_FALSE(deadline(p.t).is_never());
  o = p.after(Duration::s(3));
  EXPECT_GE(o.size(), 1u);
}

TEST_P(Send, KarnIgnoresTheRoundTripOfARetransmission) {  // RFC 6298 §3
  Peer p(ours(), theirs());
  p.establish_active();
  const Duration srtt = p.t.rtt.srtt;
  p.write("x");
  p.out();
  p.after(Duration::ms(450));
  p.in(kAck, 1, 2);
  EXPECT_EQ(p.t.rtt.srtt, srtt);
  p.write("y");
  p.out();
  p.now = p.now + Duration::ms(80);
  p.in(kAck, 1, 3);
  EXPECT_GT(p.t.rtt.srtt, Duration::ms(1));
  EXPECT_EQ(p.t.backoff, 0);
}

TEST_P(Send, ThirdDuplicateAckResendsAtOnce) {  // RFC 5681 §3.2, RFC 6582
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(14'600));
  p.out();
  p.in(kAck, 1, 1);
  p.in(kAck, 1, 1);
  EXPECT_TRUE(p.out().empty());
  p.in(kAck, 1, 1);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].seq, 1u);
  EXPECT_TRUE(o[0].retransmission);
  EXPECT_EQ(p.t.cc.ssthresh, 7300u);
  // RFC 9937 §6: of 8 segments that were in flight this ACK delivered one, and 5 are to remain.
  EXPECT_EQ(p.t.cc.cwnd, p.t.in_flight() - 1460 + 913);
  p.in(kAck, 1, 14'601);  // full
  EXPECT_EQ(p.t.recovery, Recovery::kOpen);
  EXPECT_LE(p.t.cc.cwnd, 7300u);
}

TEST_P(Send, PartialAckResendsTheNextHole) {  // RFC 6582 §3.2 step 3
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(14'600));
  p.out();
  for (int i = 0; i < 3; ++i) p.in(kAck, 1, 1);
  p.out();
  p.in(kAck, 1, 1 + 3 * 1460);
  const auto o = p.out();
  ASSERT_GE(o.size(), 1u);
  EXPECT_EQ(o[0].seq, 1u + 3 * 1460);
  EXPECT_EQ(o[0].data.size(), 1460u);
  EXPECT_EQ(p.t.recovery, Recovery::kFast);
}

TEST_P(Send, WindowUpdatesAndDataAreNoDuplicates) {  // TCP.md 4.20
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(14'600));
  p.out();
  for (uint16_t i = 0; i < 10; ++i) {
    p.window = static_cast<uint16_t>(60'000 + i);
    p.in(kAck, 1, 1);
  }
  for (uint32_t i = 0; i < 10; ++i) p.in(kAck, 1 + i, 1, "d");
  EXPECT_EQ(p.t.recovery, Recovery::kOpen);
  for (int i = 0; i < 300; ++i) p.in(kAck, 11, 1);
  EXPECT_EQ(p.t.total_retrans, 0u);
  EXPECT_EQ(p.t.recovery, Recovery::kFast);
}

TEST_P(Send, LostFastRetransmitWaitsForOneTimeout) {  // TCP.md 4.18
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(5840));
  p.out();
  for (int i = 0; i < 3; ++i) p.in(kAck, 1, 1);
  EXPECT_EQ(p.out().size(), 1u);
  const Instant start = p.now;
  const auto o = p.after(Duration::ms(300));
  ASSERT_GE(o.size(), 1u);
  EXPECT_EQ((o[0].at - start).ms(), 200);
  EXPECT_EQ(p.t.recovery, Recovery::kLoss);
}

TEST_P(Send, RepeatedTimeoutsLowerSsthreshOnce) {  // TCP.md 4.25
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(14'600));
  p.out();
  p.after(Duration::s(10));
  EXPECT_GE(p.t.retransmits, 4);
  EXPECT_EQ(p.t.cc.ssthresh, 7300u);
  EXPECT_EQ(p.t.cc.cwnd, 1460u);
}

TEST_P(Send, LateAckOfEverythingAfterATimeout) {  // TCP.md 4.19
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(14'600));
  p.out();
  p.after(Duration::ms(210));
  p.in(kAck, 1, 14'601);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
  EXPECT_TRUE(p.out().empty());
  EXPECT_EQ(p.t.rtx_timer, RtxTimer::kNone);
}

TEST_P(Send, PartialAckInsideASegment) {  // TCP.md 4.15
  Peer p(ours(), theirs());
  p.establish_active();
  const std::string s = text(1460);
  p.write(s);
  p.out();
  p.in(kAck, 1, 501);
  const auto o = p.after(Duration::ms(250));
  ASSERT_GE(o.size(), 1u);
  EXPECT_EQ(o[0].seq, 501u);
  EXPECT_EQ(o[0].data, s.substr(500));
}

TEST_P(Send, AckOfTheDataButNotTheFin) {  // TCP.md 4.12
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("abc");
  shutdown_write(p.t, p.now);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(o[0].is(kFin | kAck));
  p.in(kAck, 1, 4);
  EXPECT_EQ(state(p.t), State::kFinWait1);
  const auto f = p.after(Duration::ms(250));
  ASSERT_GE(f.size(), 1u);
  EXPECT_TRUE(f[0].is(kFin | kAck));
  EXPECT_EQ(f[0].seq, 4u);
  EXPECT_EQ(f[0].data, "");
  p.in(kAck, 1, 5);
  EXPECT_EQ(state(p.t), State::kFinWait2);
}

TEST_P(Send, FinOnlyOnTheLastByte) {  // TCP.md 4.13
  Peer p(ours(), theirs());
  p.window = 1460;
  p.establish_active();
  p.write(text(3 * 1460));
  shutdown_write(p.t, p.now);
  for (uint32_t i = 0; i < 3; ++i) {
    const auto o = p.out();
    ASSERT_EQ(o.size(), 1u);
    EXPECT_FALSE(has(o[0].flags, kFin));  // the window has room for the data only
    p.in(kAck, 1, 1 + 1460 * (i + 1));
  }
  const auto f = p.out();
  ASSERT_EQ(f.size(), 1u);
  EXPECT_TRUE(f[0].is(kFin | kAck));
}

TEST_P(Send, ASmallerPathCutsWhatIsSentAgain) {  // TCP.md 4.24
  Peer p(ours(), theirs());
  p.establish_active();
  const std::string s = text(14'600);
  p.write(s);
  p.out();
  const uint32_t cwnd = p.t.cc.cwnd;
  set_mss(p.t, 1000);
  EXPECT_EQ(p.t.cc.cwnd, cwnd);
  std::string again;
  p.now = deadline(p.t);
  on_deadline(p.t, p.now);
  for (int i = 0; i < 100 && again.size() < s.size(); ++i) {
    for (const Out& o : p.out()) {
      EXPECT_LE(o.data.size(), 1000u);
      EXPECT_EQ(o.seq, 1 + again.size());
      again += o.data;
    }
    p.in(kAck, 1, static_cast<uint32_t>(1 + again.size()));
  }
  EXPECT_EQ(again, s);
}

TEST_P(Send, KeepaliveProbesThenGivesUp) {  // RFC 9293 §3.8.4
  Peer p(ours(), theirs());
  p.config.timestamps = true;
  p.establish_active();
  set_keepalive(p.t, true, Duration::s(10), Duration::s(2), 3, p.now);
  const Instant start = p.now;
  auto o = p.after(Duration::ms(10'500));
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].seq, 0u);
  EXPECT_EQ(o[0].data, "");
  EXPECT_TRUE(o[0].options.has_timestamps);  // TCP.md 4.33
  p.in(kAck, 1, 1);
  o = p.after(Duration::s(9));
  EXPECT_TRUE(o.empty());
  o = p.after(Duration::s(60));
  ASSERT_EQ(o.size(), 4u);
  EXPECT_TRUE(has(o[3].flags, kRst));
  EXPECT_EQ(error(p.t), ETIMEDOUT);
  EXPECT_EQ(state(p.t), State::kClosed);
  EXPECT_GT(p.now, start);
}

TEST_P(Send, WritableAgainPastAThird) {
  Peer p(ours(), theirs());
  p.config.snd_buf = 9000;
  p.establish_active();
  EXPECT_EQ(p.write(text(20'000)), 9000u);
  EXPECT_EQ(p.write("x"), 0u);
  p.out();
  EXPECT_FALSE(has(p.in(kAck, 1, 1 + 1460), Effects::kWritable));
  EXPECT_TRUE(has(p.in(kAck, 1, 1 + 4380), Effects::kWritable));
  EXPECT_EQ(send_room(p.t), 4380u);
}

TEST_P(Send, AnExhaustedPoolTakesWhatItCan) {  // TCP.md 4.14
  Peer p(ours(), theirs(), 16);
  p.establish_active();
  const size_t n = p.write(text(60'000));
  EXPECT_EQ(n, 14 * 1460u);
  std::string got;
  while (got.size() < n) {
    for (const Out& o : p.out()) got += o.data;
    p.in(kAck, 1, static_cast<uint32_t>(1 + got.size()));
  }
  EXPECT_EQ(got, text(60'000).substr(0, n));
}

TEST_P(Send, TheRingIsGivenBackWhenIdle) {
  Peer p(ours(), theirs());
  p.establish_active();
  EXPECT_FALSE(p.t.queue.has_ring());
  p.write("x");
  p.out();
  EXPECT_TRUE(p.t.queue.has_ring());
  p.in(kAck, 1, 2);
  p.after(Duration::s(10));
  EXPECT_FALSE(p.t.queue.has_ring());
}

TEST_P(Send, AcksInTheBatchAreFresh) {  // TCP.md 4.6
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kAck, 1, 1, "abc");
  p.in(kAck, 4, 1, "def");
  p.write("reply");
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].ack, 7u);
}

TEST_P(Send, AFrameInFlightIsNeverWritten) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("abc");
  p.out();
  const PacketBuf* b = p.t.queue.back().packet;
  p.write("def");
  EXPECT_NE(p.t.queue.back().packet, b);
  EXPECT_EQ(b->length, 3);
}

TEST_P(Send, SmallWritesShareAnUnsentFrame) {
  Peer p(ours(), theirs());
  p.establish_active();
  set_cork(p.t, true, p.now);
  for (int i = 0; i < 100; ++i) p.write("0123456789");
  EXPECT_EQ(p.t.queue.count(), 1u);
  set_cork(p.t, false, p.now);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data.size(), 1000u);
}

TEST_P(Send, UrgentDataCarriesThePointer) {  // RFC 9293 §3.8.5, RFC 6093 §3.1
  Peer p(ours(), theirs());
  p.config.nodelay = false;
  p.establish_active();
  p.write("abc");
  EXPECT_EQ(p.out().size(), 1u);
  p.write("de");
  mark_urgent(p.t);
  const auto o = p.out();  // Nagle does not hold it
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(has(o[0].flags, SegFlags::kUrg));
  EXPECT_EQ(o[0].urgent, 2u);
  p.write("fg", true);
  for (const Out& later : p.out()) EXPECT_FALSE(has(later.flags, SegFlags::kUrg));
  p.in(kAck, 1, 6);
  for (const Out& later : p.out()) EXPECT_FALSE(has(later.flags, SegFlags::kUrg));
}

TEST_P(Send, UrgentPointerFarAheadIsSaidByEverySegment) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(4000));
  mark_urgent(p.t);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 3u);
  EXPECT_EQ(o[0].urgent, 4000u);
  EXPECT_EQ(o[1].urgent, 4000u - 1460);
  EXPECT_EQ(o[2].urgent, 4000u - 2920);
  for (const Out& again : p.after(Duration::s(2)))  // and by what is sent again
    EXPECT_TRUE(has(again.flags, SegFlags::kUrg));
}

TEST_P(Send, UrgentDataIsNotHeldByACork) {  // Linux tcp_nagle_test
  Peer p(ours(), theirs());
  p.config.cork = true;
  p.establish_active();
  p.write("held");
  EXPECT_TRUE(p.out().empty());
  p.write("!");
  mark_urgent(p.t);
  EXPECT_EQ(p.out().size(), 1u);
}

TEST_P(Send, NotsentLowatClosesTheBuffer) {  // tcp(7) TCP_NOTSENT_LOWAT
  Peer p(ours(), theirs());
  p.config.notsent_lowat = 4000;
  p.window = 1460;
  p.establish_active();
  EXPECT_TRUE(is_writable(p.t));
  EXPECT_EQ(p.write(text(20'000)), 4000u);
  EXPECT_EQ(p.out().size(), 1u);  // the window's
  EXPECT_EQ(unsent_bytes(p.t), 2540u);
  EXPECT_FALSE(is_writable(p.t));
  EXPECT_EQ(send_room(p.t), 1460u);
  p.in(kAck, 1, 1461);
  p.out();
  EXPECT_EQ(unsent_bytes(p.t), 1080u);
  EXPECT_TRUE(is_writable(p.t));
  EXPECT_EQ(set_notsent_lowat(p.t, 100), Effects::kNone);
  EXPECT_FALSE(is_writable(p.t));
  EXPECT_EQ(set_notsent_lowat(p.t, UINT32_MAX), Effects::kWritable);
}

TEST_P(Send, QueueSizeCountsTheFin) {  // SIOCOUTQ as Linux: 0 only when all is acknowledged
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("abc");
  shutdown_write(p.t, p.now);
  p.out();
  EXPECT_EQ(unacked_bytes(p.t), 4u);
  p.in(kAck, 1, 4);
  EXPECT_EQ(unacked_bytes(p.t), 1u);
  p.in(kAck, 1, 5);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
}

}  // namespace
}  // namespace vireo::tcp
