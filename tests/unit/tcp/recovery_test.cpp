// Loss recovery with SACK: what is sent again and when, how much, and what is undone.
#include <cerrno>

#include "stack/tcp/prr.h"
#include "tests/unit/tcp/sack_peer.h"

namespace vireo::tcp {
namespace {

class Recovering : public TcpTest {};
INSTANTIATE_TEST_SUITE_P(Iss, Recovering, ::testing::Range(0, 6));
class Rack : public TcpTest {};
INSTANTIATE_TEST_SUITE_P(Iss, Rack, ::testing::Range(0, 6));
class Tlp : public TcpTest {};
INSTANTIATE_TEST_SUITE_P(Iss, Tlp, ::testing::Range(0, 6));
class Undo : public TcpTest {};
INSTANTIATE_TEST_SUITE_P(Iss, Undo, ::testing::Range(0, 6));

TEST_P(Recovering, HolesAreResentAndNothingElse) {  // RFC 6675 §5, RFC 8985 §6.2
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  p.pass(kRtt);
  p.ack(0, {{1, 2}});
  p.ack(0, {{1, 3}});
  EXPECT_TRUE(p.sent_now().empty());
  p.ack(0, {{1, 4}});  // three segments delivered: DupThresh
  EXPECT_EQ(p.t.recovery, Recovery::kFast);
  EXPECT_EQ(p.sent_now(), Numbers{0});
  p.ack(0, {{5, 6}, {1, 4}});  // 4 is missing too
  EXPECT_TRUE(p.desc(4).is(kLost));
  p.ack(0, {{5, 10}, {1, 4}});
  EXPECT_EQ(p.sent_now(), Numbers{4});
  p.pass(kRtt);
  p.ack(4, {{5, 10}});
  EXPECT_TRUE(p.sent_now().empty());
  p.ack(10);
  EXPECT_EQ(p.t.recovery, Recovery::kOpen);
  EXPECT_EQ(p.t.cc.cwnd, p.t.cc.ssthresh);
  EXPECT_EQ(p.t.total_retrans, 2u);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
}

TEST_P(Recovering, LimitedTransmit) {  // RFC 3042 §2
  SackPeer p(ours(), theirs());
  p.establish();
  p.write(text(20'000));
  const size_t window = p.out().size();
  ASSERT_LT(window, 20u);
  const auto w = static_cast<uint32_t>(window);
  p.pass(kRtt);
  p.ack(0, {{1, 2}});
  EXPECT_EQ(p.sent_now(), Numbers{w});
  p.ack(0, {{1, 3}});
  EXPECT_EQ(p.sent_now(), Numbers{w + 1});
}

TEST_P(Recovering, AckOfManySackedSegmentsIsNoBurst) {  // TCP.md 3.10 #14
  SackPeer p(ours(), theirs());
  p.establish();
  p.write(text(100'000));
  const auto w = static_cast<uint32_t>(p.out().size());
  p.pass(kRtt);
  for (int i = 0; i < 1000; ++i) p.ack(0);  // duplicates without a block deliver nothing
  EXPECT_TRUE(p.sent_now().empty());
  p.ack(0, {{1, w}});
  EXPECT_LE(p.sent_now().size(), 2u + w / 2);
  EXPECT_LE(p.t.in_flight(), p.t.cc.cwnd);
}

TEST_P(Recovering, RenegedDataIsResentAfterATimeout) {  // RFC 2018 §8; TCP.md 4.21
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  p.pass(kRtt);
  p.ack(0, {{1, 10}});
  EXPECT_EQ(p.sent_now(), Numbers{0});
  EXPECT_EQ(p.t.sacked_out, 9000u);
  // The retransmission is lost and the peer forgets the rest.
  const auto o = p.until(p.t.rto_at);
  ASSERT_GE(o.size(), 1u);
  EXPECT_EQ(p.t.recovery, Recovery::kLoss);
  EXPECT_EQ(p.t.sacked_out, 0u);
  EXPECT_EQ(SackPeer::numbers(o).back(), 0u);
  std::set<uint32_t> again;
  for (uint32_t i = 1; i < 10; ++i) {
    p.pass(kRtt);
    p.ack(i);
    for (const uint32_t n : p.sent_now()) again.insert(n);
  }
  EXPECT_EQ(again.size(), 9u);
  p.ack(10);
  EXPECT_EQ(p.t.recovery, Recovery::kOpen);
}

TEST_P(Recovering, WhatWasSackedBeforeATimeoutIsNotResentIfSackedAgain) {
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  p.pass(kRtt);
  p.ack(0, {{2, 10}});
  p.sent_now();
  p.until(p.t.rto_at);
  p.pass(kRtt);
  p.ack(1, {{2, 10}});
  EXPECT_EQ(p.sent_now(), Numbers{1});
  EXPECT_EQ(p.t.rtx_due, 0u);
  p.pass(kRtt);
  p.ack(10);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
  EXPECT_EQ(p.t.undos, 0u);  // what was SACKed before is no sign of a spurious timeout
}

TEST_P(Recovering, TimeoutInRecoveryLowersSsthreshOnce) {  // RFC 5681 §3.1; TCP.md 4.18
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  p.pass(kRtt);
  p.ack(0, {{1, 10}});
  p.sent_now();
  const uint32_t ssthresh = p.t.cc.ssthresh;
  p.until(p.t.rto_at);
  EXPECT_EQ(p.t.recovery, Recovery::kLoss);
  EXPECT_EQ(p.t.cc.ssthresh, ssthresh);
  EXPECT_EQ(p.t.cc.cwnd, 1000u);
}

TEST_P(Recovering, ALostFinIsRepaired) {
  SackPeer p(ours(), theirs());
  p.establish();
  p.write(text(3000));
  shutdown_write(p.t, p.now);
  auto o = p.out();
  ASSERT_EQ(o.size(), 3u);
  EXPECT_TRUE(has(o[2].flags, kFin));
  p.pass(kRtt);
  p.ack(2);
  o = p.after(Duration::ms(100));  // the probe
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].seq, SackPeer::seg(2));
  EXPECT_EQ(o[0].data.size(), 1000u);
  EXPECT_TRUE(has(o[0].flags, kFin));
  p.pass(kRtt);
  p.ack_bytes(SackPeer::seg(3) + 1, {});
  EXPECT_EQ(state(p.t), State::kFinWait2);
}

TEST_P(Recovering, AFinAloneIsAProbeOfItsOwn) {
  SackPeer p(ours(), theirs());
  p.establish();
  p.write(text(1000));
  p.out();
  p.pass(kRtt);
  p.ack(1);
  shutdown_write(p.t, p.now);
  EXPECT_EQ(p.out().size(), 1u);
  const auto o = p.after(Duration::ms(100));
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(o[0].is(kFin | kAck));
  EXPECT_EQ(o[0].data, "");
  p.ack_bytes(SackPeer::seg(1) + 1, {});
  EXPECT_EQ(state(p.t), State::kFinWait2);
}

TEST_P(Recovering, PartOfASegmentSackedCountsNothing) {  // edges round inward
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(4), 4u);
  p.ack_bytes(1, {{1501, 3501}});
  EXPECT_EQ(p.t.sacked_out, 1000u);
  EXPECT_TRUE(p.desc(2).is(kSacked));
  p.ack_bytes(1, {{1001, 4001}});
  EXPECT_EQ(p.t.sacked_out, 3000u);
}

TEST_P(Recovering, InvalidBlocksAreIgnored) {  // RFC 2018 §4; TCP.md 3.10 #11
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  p.ack(2);
  const std::vector<std::pair<uint32_t, uint32_t>> bad[] = {
      {{5001, 4001}},                    // backwards
      {{4001, 4001}},                    // empty
      {{9001, 10'002}},                  // beyond what was sent
      {{4001, 0x80000000u}},             // half the circle
      {{1001, 4001}},                    // begins below the acknowledgement
      {{0xfffff000u, 4001}},             // below the stream
      {{5001, 6001}, {12'001, 13'001}},  // the second never sent: the first counts
  };
  for (const auto& b : bad) p.ack_bytes(2001, b);
  EXPECT_EQ(p.t.sacked_out, 1000u);
  EXPECT_EQ(p.t.dsack_dups, 0u);
  EXPECT_EQ(p.t.lost_out, 0u);
  p.ack(10);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
}

TEST_P(Recovering, WorkPerAckIsBounded) {  // TCP.md 3.3
  SackPeer p(ours(), theirs());
  p.config.nodelay = true;
  p.establish();
  p.t.cc.cwnd = 1'000'000;
  for (int i = 0; i < 400; ++i) {
    p.write("0123456789");
    p.out();
  }
  ASSERT_EQ(p.t.queue.count(), 400u);
  p.ack_bytes(1, {{11, 4001}});
  const uint32_t first = p.t.sacked_out;
  EXPECT_GT(first, 0u);
  EXPECT_LE(first, 1280u);
  for (int i = 0; i < 4; ++i) p.ack_bytes(1, {{11, 4001}});
  EXPECT_EQ(p.t.sacked_out, 3990u);
}

TEST_P(Recovering, RtoMinDownToAMillisecond) {  // TCP_RTO_MIN_US
  Peer p(ours(), theirs());
  p.config.rto_min = Duration::ms(1);
  p.establish_active();
  p.write("x");
  p.out();
  const Instant start = p.now;
  const auto o = p.after(Duration::us(1100));
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ((o[0].at - start).ms(), 1);
}

TEST_P(Recovering, ASteadyPathKeepsAMarginForDelayedAcks) {
  SackPeer p(ours(), theirs());
  p.establish();
  for (int i = 0; i < 200; ++i) {
    p.send(1);
    p.pass(Duration::ms(300));
    p.ack(static_cast<uint32_t>(i) + 1);
  }
  EXPECT_GE(p.t.rtt.rto, Duration::ms(349));
}

// ---- RACK

TEST_P(Rack, ReorderingIsWaitedForOnceSeen) {  // RFC 8985 §6.2 step 4
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(8), 8u);
  p.pass(kRtt);
  p.ack(0, {{1, 2}});
  EXPECT_EQ(p.t.rtx_timer, RtxTimer::kReorder);
  p.pass(Duration::ms(1));
  p.ack(2);  // 0 was only late
  EXPECT_EQ(p.t.reord_seen, 1u);
  EXPECT_EQ(p.t.total_retrans, 0u);
  p.ack(2, {{3, 8}});  // five beyond the hole: no DupThresh any more
  EXPECT_TRUE(p.sent_now().empty());
  EXPECT_EQ(p.t.rtx_timer, RtxTimer::kReorder);
  const Instant due = p.board().reorder_at;
  EXPECT_EQ(due, p.desc(2).sent_at + p.board().rack_rtt + kRtt / 4);
  const auto o = p.until(due);
  EXPECT_EQ(SackPeer::numbers(o), Numbers{2});
  EXPECT_EQ(p.t.recovery, Recovery::kFast);
  EXPECT_EQ(o[0].at, due);
}

TEST_P(Rack, ALostRetransmissionIsFoundWithoutTimeout) {  // RFC 8985 §3.1
  SackPeer p(ours(), theirs());
  p.establish();
  p.write(text(40'000));
  const auto w = static_cast<uint32_t>(p.out().size());
  p.pass(kRtt);
  p.ack(0, {{1, 4}});
  EXPECT_EQ(p.sent_now().front(), 0u);
  p.pass(Duration::us(1));
  p.ack(0, {{1, w}});
  const auto fresh = p.sent_now();  // sent after the retransmission
  ASSERT_GE(fresh.size(), 1u);
  EXPECT_EQ(fresh[0], w);
  p.pass(kRtt + Duration::ms(1));
  p.ack(0, {{1, w + 1}});  // delivered, though the retransmission before it was not
  const auto again = p.sent_now();
  ASSERT_GE(again.size(), 1u);
  EXPECT_EQ(again[0], 0u);
  EXPECT_EQ(p.desc(0).retransmits, 2);
  EXPECT_EQ(p.t.recovery, Recovery::kFast);
}

TEST_P(Rack, DsackWidensTheWindowForSixteenRecoveries) {  // RFC 8985 §6.2 step 4
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(6), 6u);
  p.pass(kRtt);
  p.ack(0, {{1, 4}});
  EXPECT_EQ(p.sent_now(), Numbers{0});
  p.ack(4);
  p.ack(4, {{0, 1}});  // the retransmission was needless
  EXPECT_EQ(p.t.dsack_dups, 1u);
  EXPECT_EQ(p.t.reo_wnd_mult, 2);
  EXPECT_EQ(p.t.reo_wnd_persist, 16);
  p.ack(4, {{0, 1}});  // once a round trip
  EXPECT_EQ(p.t.reo_wnd_mult, 2);
}

// RFC 8985 §3.3.2: the reordering window is never more than SRTT; §6.2 step 4: sixteen recoveries
// without a DSACK make it what it was.
TEST_P(Rack, TheReorderingWindowIsBoundedAndForgotten) {
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(6), 6u);
  p.pass(kRtt);
  p.ack(0, {{1, 4}});
  ASSERT_EQ(p.sent_now(), Numbers{0});
  p.t.reord_seen = 1;
  const Duration rtt = p.board().rack_rtt;
  for (const auto& [quarters, window] :
       {std::pair{1, kRtt / 4}, std::pair{3, kRtt / 4 * 3}, std::pair{255, p.t.rtt.srtt}}) {
    p.t.reo_wnd_mult = static_cast<uint8_t>(quarters);
    EXPECT_EQ(rack_patience(p.t) - rtt, window) << quarters;
  }
  p.t.reo_wnd_persist = 16;
  for (int i = 0; i < 15; ++i) rack_recovered(p.t);
  EXPECT_EQ(p.t.reo_wnd_mult, 255);
  rack_recovered(p.t);
  EXPECT_EQ(p.t.reo_wnd_mult, 1);
}

TEST_P(Rack, AnAckOfTheOriginalDoesNotMoveTheClock) {  // RFC 8985 §6.2 step 2
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(6), 6u);
  p.pass(kRtt);
  p.ack(0, {{1, 4}});
  EXPECT_EQ(p.sent_now(), Numbers{0});
  const Instant newest = p.board().rack_sent;
  p.pass(Duration::us(10));  // sooner than any round trip: the original's
  p.ack(4);
  EXPECT_EQ(p.board().rack_sent, newest);
  EXPECT_EQ(p.t.lost_out, 0u);
}

/// While reordering may still explain a gap, each SACK lets a segment out: they are not in
/// ssthresh.
TEST_P(Rack, WhatADoubtLetOutIsNoFlight) {  // RFC 5681 §3.2 step 1
  SackPeer p(ours(), theirs());
  p.establish();
  p.t.reord_seen = 1;
  p.t.cc.cwnd = p.t.cc.ssthresh = 20'000;
  ASSERT_EQ(p.send(60), 20u);
  p.pass(kRtt);
  for (uint32_t i = 2; i <= 20; ++i) {
    p.ack(0, {{1, i}});
    p.out();
  }
  ASSERT_EQ(p.t.recovery, Recovery::kOpen);
  ASSERT_EQ(p.t.outstanding(), 39'000u);
  p.after(Duration::ms(5));
  ASSERT_EQ(p.t.recovery, Recovery::kFast);
  EXPECT_EQ(p.t.cc.ssthresh, 10'000u);  // NewReno: half of cwnd, not of what is outstanding
}

// ---- TLP

TEST_P(Tlp, ASilentTailIsProbedAfterTwoRoundTrips) {  // RFC 8985 §7.2
  SackPeer p(ours(), theirs());
  p.establish();
  for (uint32_t i = 0; i < 50; ++i) {  // until the variance is small
    p.send(2);
    p.pass(kRtt);
    p.ack(2 * i + 2);
  }
  ASSERT_EQ(p.send(3), 3u);
  const Instant start = p.now;
  const auto o = p.until(start + Duration::ms(100));
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(SackPeer::numbers(o), Numbers{102});
  EXPECT_EQ(o[0].at - start, p.t.rtt.srtt * 2);
  EXPECT_EQ(p.t.tlp_probes, 1u);
  EXPECT_EQ(p.t.rtx_timer, RtxTimer::kRetransmit);
  // All three were lost: the probe's SACK tells.
  p.ack(100, {{102, 103}});
  EXPECT_EQ(p.t.recovery, Recovery::kFast);
  EXPECT_EQ(p.sent_now(), Numbers{100});
  p.pass(kRtt);
  p.ack(101, {{102, 103}});
  EXPECT_EQ(p.sent_now(), Numbers{101});
}

// §7.2: before there is a round trip, a second, or the timeout if that is sooner.
TEST_P(Tlp, WithoutARoundTripItWaitsASecond) {
  for (const int64_t initial : {3, 1}) {
    SackPeer p(ours(), theirs());
    p.config.rto_initial = Duration::s(initial);
    p.establish();
    p.t.rtt.start(Duration::s(initial));
    p.write(text(2000));
    ASSERT_EQ(p.out().size(), 2u);
    const Instant start = p.now;
    const auto o = p.until(start + Duration::s(1));
    ASSERT_EQ(o.size(), 1u);
    EXPECT_EQ(o[0].at - start, Duration::s(1));
    EXPECT_TRUE(o[0].retransmission);
  }
}

TEST_P(Tlp, OneSegmentWaitsForADelayedAck) {  // §7.2: FlightSize of one segment
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(1), 1u);
  const Instant start = p.now;
  const auto o = p.after(Duration::ms(150));
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ((o[0].at - start).ms(), 70);  // 2 SRTT + 50 ms
}

/// The receiver's delayed ACK came and the tail was not there, though it was sent right behind: the
/// receiver's waiting is part of the two round trips.
TEST_P(Tlp, TheTailOfABurstWaitsForNoDelayedAck) {
  for (const int64_t delay : {0, 5, 15}) {
    SackPeer p(ours(), theirs());
    p.establish();
    ASSERT_EQ(p.send(4), 4u);
    const Instant sent = p.now;
    p.pass(kRtt);
    p.ack(2);
    p.pass(Duration::ms(delay));
    p.ack(3);
    const Instant acked = p.now;
    const auto o = p.after(Duration::ms(60));
    ASSERT_EQ(o.size(), 1u);
    EXPECT_EQ(SackPeer::numbers(o), Numbers{3});
    EXPECT_EQ(o[0].at, std::max(sent + p.t.rtt.srtt * 3, acked + p.t.rtt.srtt)) << delay;
  }
}

/// An ACK of two may be that of every second segment: what is left waits for its delayed ACK. So
/// does what was sent later.
TEST_P(Tlp, AnOddTailMayWaitForADelayedAck) {
  for (const bool later : {false, true}) {
    SackPeer p(ours(), theirs());
    p.establish();
    ASSERT_EQ(p.send(later ? 1 : 3), later ? 1u : 3u);
    p.pass(Duration::ms(5));
    if (later) {
      ASSERT_EQ(p.send(1), 1u);
    }
    p.pass(Duration::ms(5));
    p.ack(later ? 1 : 2);
    const Instant start = p.now;
    const auto o = p.after(Duration::ms(150));
    ASSERT_GE(o.size(), 1u);
    EXPECT_EQ(o[0].at - start, p.t.rtt.srtt * 2 + Duration::ms(50));
  }
}

TEST_P(Tlp, UnsentDataIsTheBetterProbe) {  // §7.3
  SackPeer p(ours(), theirs());
  p.establish();
  p.write(text(100'000));
  const auto w = static_cast<uint32_t>(p.out().size());
  const auto o = p.until(p.t.rtx_at);
  EXPECT_EQ(SackPeer::numbers(o), Numbers{w});
  EXPECT_FALSE(o[0].retransmission);
  EXPECT_EQ(p.t.tlp_probes, 1u);
  p.ack(w);
  EXPECT_TRUE(p.t.tlp_out);
  p.out();
  p.ack(w + 1);
  EXPECT_FALSE(p.t.tlp_out);
  EXPECT_EQ(p.t.cc.ssthresh, CongestionControl::kMaxWindow);  // nothing was lost
}

TEST_P(Tlp, ARepairedLossIsCongestion) {  // §7.4.2
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  p.until(p.t.rtx_at);
  p.pass(kRtt);
  p.ack(10);  // of the probe, or of the original?
  EXPECT_TRUE(p.t.tlp_out);
  EXPECT_EQ(p.t.cc.ssthresh, CongestionControl::kMaxWindow);
  p.send(1);
  p.pass(kRtt);
  p.ack(11);  // no DSACK came: the probe repaired it
  EXPECT_FALSE(p.t.tlp_out);
  EXPECT_LT(p.t.cc.ssthresh, CongestionControl::kMaxWindow);
  EXPECT_LE(p.t.cc.cwnd, p.t.cc.ssthresh);
}

TEST_P(Tlp, ItsDsackEndsIt) {  // §7.4.1; TCP.md 4.22: the original was only late
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  p.until(p.t.rtx_at);
  p.ack(10);
  p.ack(10, {{9, 10}});
  EXPECT_FALSE(p.t.tlp_out);
  p.send(1);
  p.pass(kRtt);
  p.ack(11);
  EXPECT_EQ(p.t.cc.ssthresh, CongestionControl::kMaxWindow);
}

TEST_P(Tlp, ADuplicateAckEndsItWithoutDsack) {
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  p.until(p.t.rtx_at);
  p.ack(10);
  EXPECT_TRUE(p.t.tlp_out);
  p.ack(10);
  EXPECT_FALSE(p.t.tlp_out);
}

TEST_P(Tlp, TheProbeAndItsOriginalAreBothInFlight) {  // RFC 6675 §4 (a) and (b)
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(1), 1u);
  p.until(p.t.rtx_at);
  EXPECT_EQ(p.t.outstanding(), 1000u);
  EXPECT_EQ(p.t.in_flight(), 2000u);
  p.ack(1);
  EXPECT_EQ(p.t.in_flight(), 0u);
}

TEST_P(Tlp, WhatJoinsAProbedSegmentIsInFlightOnce) {
  SackPeer p(ours(), theirs());
  p.window = 500;
  p.establish();
  p.write(text(1000));
  ASSERT_EQ(p.out().size(), 1u);  // half of it, that is what the window takes
  p.until(p.t.rtx_at);
  ASSERT_EQ(p.t.tlp_probes, 1u);
  EXPECT_EQ(p.t.in_flight(), 1000u);
  p.window = 1000;
  p.in(kAck, 1, 1);
  EXPECT_EQ(
      [&] {
        size_t n = 0;
        for (const Out& o : p.out()) n += o.data.size();
        return n;
      }(),
      500u);
  EXPECT_EQ(p.t.in_flight(), 1000u);
  p.pass(kRtt);
  p.ack(1);
  EXPECT_EQ(p.t.in_flight(), 0u);
  EXPECT_EQ(p.t.retrans_out, 0u);
}

TEST_P(Tlp, ASackBeforeTheProbeLeavesCallsItOff) {  // RFC 8985 §7.2: the ring was full meanwhile
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(3), 3u);
  p.now = p.t.rtx_at;
  on_deadline(p.t, p.now);
  ASSERT_TRUE(p.t.tlp_due);
  p.ack(0, {{2, 3}});
  for (const uint32_t number : p.sent_now()) EXPECT_NE(number, 2u);
  EXPECT_EQ(p.t.tlp_probes, 0u);
  EXPECT_EQ(p.t.in_flight(), 2000u + p.t.retrans_out - p.t.lost_out);
}

TEST_P(Tlp, ALostProbeIsFollowedByTheTimeout) {  // TCP.md 4.22
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(4), 4u);
  const auto o = p.after(Duration::ms(400));
  ASSERT_GE(o.size(), 2u);
  EXPECT_EQ(SackPeer::numbers(o)[0], 3u);
  EXPECT_EQ(SackPeer::numbers(o)[1], 0u);
  EXPECT_EQ(p.t.tlp_probes, 1u);  // one outstanding
  EXPECT_EQ(p.t.recovery, Recovery::kLoss);
}

// ---- undo

TEST_P(Undo, ByTimestamps) {  // RFC 3522 §3.2: the ACK answers the original
  SackPeer p(ours(), theirs(), true);
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  const uint32_t stamp = timestamp(p.t, p.now);
  const uint32_t cwnd = p.t.cc.cwnd;
  p.pass(kRtt);
  p.ts_ecr = stamp;
  p.ack(0, {{1, 4}});
  EXPECT_EQ(p.sent_now(), Numbers{0});
  EXPECT_EQ(p.t.recovery, Recovery::kFast);
  p.pass(Duration::ms(2));
  p.ack(4);  // echoes the first transmission
  EXPECT_EQ(p.t.recovery, Recovery::kOpen);
  EXPECT_EQ(p.t.undos, 1u);
  EXPECT_GE(p.t.cc.cwnd, cwnd);
  EXPECT_EQ(p.t.cc.ssthresh, CongestionControl::kMaxWindow);
  EXPECT_EQ(p.t.lost_out, 0u);
}

TEST_P(Undo, ARealLossIsNotUndone) {
  SackPeer p(ours(), theirs(), true);
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  p.ts_ecr = timestamp(p.t, p.now);
  p.pass(kRtt);
  p.ack(0, {{1, 4}});
  EXPECT_EQ(p.sent_now(), Numbers{0});
  p.ts_ecr = timestamp(p.t, p.now);
  p.pass(kRtt);
  p.ack(4);  // echoes the retransmission
  EXPECT_EQ(p.t.recovery, Recovery::kFast);
  EXPECT_EQ(p.t.undos, 0u);
}

/// ACKs of one burst are taken before anything is sent.
TEST_P(Undo, OfAnEpisodeInWhichNothingWasSentAgain) {
  for (const bool timestamps : {false, true}) {
    SackPeer p(ours(), theirs(), timestamps);
    p.establish();
    ASSERT_EQ(p.send(10), 10u);
    const uint32_t cwnd = p.t.cc.cwnd;
    p.ts_ecr = timestamp(p.t, p.now);
    p.pass(kRtt);
    p.ack(0, {{1, 4}});
    EXPECT_EQ(p.t.recovery, Recovery::kFast);
    p.ack(4);  // 0 was overtaken
    EXPECT_EQ(p.t.recovery, Recovery::kOpen);
    EXPECT_EQ(p.t.undos, 1u);
    EXPECT_GE(p.t.cc.cwnd, cwnd);
    EXPECT_EQ(p.t.cc.ssthresh, CongestionControl::kMaxWindow);
    for (const uint32_t number : p.sent_now()) EXPECT_GE(number, 10u);
    EXPECT_EQ(p.t.total_retrans, 0u);
  }
}

TEST_P(Undo, OfTheEpisodeOfALaterHole) {  // each hole has an episode of its own then
  SackPeer p(ours(), theirs(), true);
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  const uint32_t cwnd = p.t.cc.cwnd;
  p.ts_ecr = timestamp(p.t, p.now);
  p.pass(kRtt);
  p.ack(0, {{1, 4}, {5, 8}});
  p.ack(4, {{5, 8}});  // 0 came, 4 did not: it has the time that reordering takes
  EXPECT_EQ(p.t.recovery, Recovery::kOpen);
  p.sent_now();
  EXPECT_EQ(SackPeer::numbers(p.after(kRtt / 2)), Numbers{4});
  EXPECT_EQ(p.t.recovery, Recovery::kFast);
  p.ack(8);  // echoes the first transmission
  EXPECT_EQ(p.t.recovery, Recovery::kOpen);
  EXPECT_EQ(p.t.undos, 2u);
  EXPECT_GE(p.t.cc.cwnd, cwnd);
  EXPECT_EQ(p.t.cc.ssthresh, CongestionControl::kMaxWindow);
}

TEST_P(Undo, NotOfAHoleThatIsThere) {
  SackPeer p(ours(), theirs(), true);
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  p.ts_ecr = timestamp(p.t, p.now);
  p.pass(kRtt);
  p.ack(0, {{1, 4}, {5, 8}});
  p.ack(4, {{5, 8}});
  p.sent_now();
  EXPECT_EQ(SackPeer::numbers(p.after(kRtt / 2)), Numbers{4});
  p.ts_ecr = timestamp(p.t, p.now);
  p.pass(kRtt);
  p.ack(10);  // echoes the retransmission
  EXPECT_EQ(p.t.undos, 1u);
  EXPECT_EQ(p.t.cc.ssthresh, 3000u);  // half of 4 to 10
}

TEST_P(Undo, ByDsackOfEveryRetransmission) {  // RFC 3708 §2, as Linux
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  const uint32_t cwnd = p.t.cc.cwnd;
  p.pass(kRtt);
  p.ack(0, {{2, 10}});
  EXPECT_EQ(p.sent_now(), (Numbers{0, 1}));
  p.ack(10);
  EXPECT_EQ(p.t.recovery, Recovery::kOpen);
  EXPECT_LT(p.t.cc.cwnd, cwnd);
  p.ack(10, {{0, 1}});
  EXPECT_EQ(p.t.undos, 0u);  // one may still have been needed
  p.ack(10, {{1, 2}});
  EXPECT_EQ(p.t.undos, 1u);
  EXPECT_EQ(p.t.cc.cwnd, cwnd);
}

TEST_P(Undo, SpuriousTimeoutWithSack) {  // RFC 5682 §3
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  const uint32_t cwnd = p.t.cc.cwnd;
  p.until(p.t.rtx_at);  // the path stalls: a probe, then the timeout
  p.until(p.t.rtx_at);
  ASSERT_EQ(p.t.recovery, Recovery::kLoss);
  EXPECT_EQ(p.t.cc.cwnd, 1000u);
  p.pass(Duration::ms(1));
  p.ack(2);  // 1 was never sent again
  EXPECT_EQ(p.t.recovery, Recovery::kOpen);
  EXPECT_EQ(p.t.undos, 1u);
  EXPECT_GE(p.t.cc.cwnd, cwnd);
  EXPECT_EQ(p.t.rtx_due, 0u);
}

TEST_P(Undo, SpuriousTimeoutWithoutSack) {  // RFC 5682 §2.1
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(60'000));
  ASSERT_EQ(p.out().size(), 10u);
  p.until(p.t.rto_at);
  ASSERT_EQ(p.t.recovery, Recovery::kLoss);
  p.in(kAck, 1, 1461);
  auto o = p.out();  // step 2b: new data
  ASSERT_GE(o.size(), 1u);
  EXPECT_EQ(o[0].seq, 14'601u);
  EXPECT_LE(o.size(), 2u);
  p.in(kAck, 1, 2921);  // step 3b: what was never sent again
  EXPECT_EQ(p.t.recovery, Recovery::kOpen);
  EXPECT_EQ(p.t.undos, 1u);
  EXPECT_GE(p.t.cc.cwnd, 14'600u);
}

TEST_P(Undo, ARealTimeoutWithoutSack) {  // RFC 5682 §2.1 step 3a
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(60'000));
  p.out();
  p.until(p.t.rto_at);
  p.in(kAck, 1, 1461);
  p.out();
  p.in(kAck, 1, 1461);  // a duplicate: the new data came, the old did not
  EXPECT_EQ(p.t.recovery, Recovery::kLoss);
  const auto o = p.out();
  ASSERT_GE(o.size(), 1u);
  EXPECT_EQ(o[0].seq, 1461u);
  EXPECT_EQ(p.t.undos, 0u);
}

// RFC 8985 §6.3: a timeout takes the first segment for lost, others only if they were sent a round
// trip before.
TEST_P(Rack, ATimeoutSparesWhatWasJustSent) {
  SackPeer p(ours(), theirs());
  p.config.tlp = false;
  p.establish();
  ASSERT_EQ(p.send(2), 2u);
  p.pass(kRtt);
  p.ack(1);  // there is a latest round trip
  ASSERT_EQ(p.send(2), 2u);
  const Instant timeout = p.t.rto_at;
  p.now = timeout - Duration::ms(1);
  ASSERT_EQ(p.send(1), 1u);
  const auto o = p.until(timeout);
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(SackPeer::numbers(o), Numbers{1});
  ASSERT_EQ(p.t.recovery, Recovery::kLoss);
  EXPECT_TRUE(p.desc(2).is(kLost) && p.desc(3).is(kLost));
  EXPECT_FALSE(p.desc(4).is(kLost));
}

// ---- PRR, RFC 9937 §6

// DeliveredData of the ACK that enters recovery counts: prr_delivered begins with it, and RecoverFS
// holds what it SACKs besides what is still to be delivered, but nothing SACKed before.
TEST_P(Recovering, TheAckThatEntersRecoveryIsDelivered) {
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  p.pass(kRtt);
  p.ack(0, {{5, 6}});
  p.ack(0, {{5, 7}});
  ASSERT_EQ(p.t.recovery, Recovery::kOpen);
  EXPECT_EQ(p.sent_now().size(), 0u);
  p.ack(0, {{5, 8}});
  ASSERT_EQ(p.t.recovery, Recovery::kFast);
  EXPECT_EQ(p.board().prr_delivered, 1000u);
  EXPECT_EQ(p.board().recover_fs, 8000u);  // 10 sent, 2 SACKed before
  EXPECT_EQ(p.t.cc.ssthresh, 5000u);
  // Five are lost, two may be on the way: PRR-CRB sends what was delivered.
  EXPECT_EQ(p.sent_now(), Numbers{0});
}

TEST(Prr, HalvesTheFlightOverOneRoundTrip) {
  Scoreboard b;
  b.recover_fs = 100'000;
  uint64_t in_flight = 97'000;
  uint32_t sent = 0;
  for (int i = 0; i < 95; ++i) {  // each ACK delivers a segment
    in_flight -= 1000;
    const uint32_t cwnd = prr_on_ack(b, 1000, in_flight, 50'000, 1000, false);
    while (in_flight + 1000 <= cwnd) {
      in_flight += 1000;
      b.prr_out += 1000;
      ++sent;
    }
  }
  EXPECT_NEAR(static_cast<double>(in_flight), 50'000, 1000);
  EXPECT_NEAR(sent, 48, 2);
}

TEST(Prr, BelowTheTargetItSendsWhatIsDeliveredAndCatchesUpWhenSafe) {
  Scoreboard b;
  b.recover_fs = 20'000;
  EXPECT_EQ(prr_on_ack(b, 1000, 5000, 10'000, 1000, false), 6000u);  // CRB
  b.prr_out += 1000;
  EXPECT_EQ(prr_on_ack(b, 1000, 5000, 10'000, 1000, true), 7000u);  // SSRB: one more
  b.prr_out += 2000;
  EXPECT_EQ(prr_on_ack(b, 20'000, 5000, 10'000, 1000, true), 10'000u);  // never above ssthresh
}

TEST(Prr, TheFirstRetransmissionIsAlwaysAllowed) {
  Scoreboard b;
  b.recover_fs = 1'000'000;
  EXPECT_EQ(prr_on_ack(b, 0, 900'000, 500'000, 1000, false), 901'000u);
}

}  // namespace
}  // namespace vireo::tcp
