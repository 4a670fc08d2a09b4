// Receiving: sequence checks, RFC 5961, PAWS, reassembly, SACK, acknowledgement policy, windows.
#include <cerrno>

#include "stack/tcp/delayed_ack.h"
#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {
namespace {

class Receive : public TcpTest {};
INSTANTIATE_TEST_SUITE_P(Iss, Receive, ::testing::Range(0, 6));

TEST_P(Receive, InOrder) {
  Peer p(ours(), theirs());
  p.establish_active();
  EXPECT_TRUE(has(p.in(kAck | kPsh, 1, 1, "hello "), Effects::kReadable));
  p.in(kAck, 7, 1, "world");
  EXPECT_EQ(p.read(), "hello world");
}

// RFC 9293 §3.8.6.3 (MUST-59): at least every second full-sized segment is acknowledged; a device
// that makes one of several must not make that every second packet.
TEST_P(Receive, SegmentsThatCameAsOneCountAsSeveral) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.coalesced = 2;
  p.in(kAck, 1, 1, std::string(1600, 'a'));
  EXPECT_EQ(p.out().size(), 1U) << "two full segments of 800 bytes";
  EXPECT_EQ(p.t.rcv_mss, 800);
  p.coalesced = 1;
  p.in(kAck, 1601, 1, std::string(800, 'b'));
  EXPECT_TRUE(p.out().empty());
  p.in(kAck, 2401, 1, std::string(800, 'c'));
  EXPECT_EQ(p.out().size(), 1U);
  EXPECT_EQ(p.read().size(), 3200U);
}

TEST_P(Receive, ResetOnlyAtExactlyTheNextByte) {  // RFC 5961 §3.2
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kRst, 0, 0);  // left of the window: silence
  EXPECT_TRUE(p.out().empty());
  p.in(kRst, 2, 0);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].flags, kAck);
  EXPECT_EQ(state(p.t), State::kEstablished);
  p.now = p.now + Duration::s(1);
  p.in(kRst, 200'000, 0);  // right of the window: silence
  EXPECT_TRUE(p.out().empty());
  EXPECT_TRUE(has(p.in(kRst, 1, 0), Effects::kError));
  EXPECT_EQ(error(p.t), ECONNRESET);
  EXPECT_EQ(state(p.t), State::kClosed);
  EXPECT_TRUE(p.out().empty());
}

TEST_P(Receive, ResetSilencesThePendingAckAndLeavesTheData) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kAck, 1, 1, "abc");
  p.in(kRst, 4, 0);
  EXPECT_TRUE(p.after(Duration::s(1)).empty());
  EXPECT_EQ(p.read(), "abc");
}

TEST_P(Receive, SynIsChallenged) {  // RFC 5961 §4.2
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kSyn, 1, 0);
  auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].flags, kAck);
  EXPECT_EQ(o[0].ack, 1u);
  p.now = p.now + Duration::s(1);
  p.in(kSyn, 1'000'000, 0);
  EXPECT_EQ(p.out().size(), 1u);
  EXPECT_EQ(state(p.t), State::kEstablished);
}

TEST_P(Receive, ChallengesAreLimitedToOnePerHalfSecond) {
  Peer p(ours(), theirs());
  p.establish_active();
  size_t n = 0;
  for (int i = 0; i < 1000; ++i) {
    p.in(i % 2 == 0 ? kSyn : kRst, 2, 0);
    n += p.out().size();
    p.now = p.now + Duration::ms(1);
  }
  EXPECT_EQ(n, 2u);
}

TEST_P(Receive, AckOfUnsentDataIsAnsweredAndDropped) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kAck, 1, 2, "never");
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].ack, 1u);
  EXPECT_EQ(p.read(), "");
}

TEST_P(Receive, AckOlderThanTheLargestWindowIsChallenged) {  // RFC 5961 §5.2
  Peer p(ours(), theirs());
  p.window = 100;
  p.establish_active();
  for (uint32_t una = 1; una < 501; una += 50) {
    p.write(text(50));
    p.out();
    p.in(kAck, 1, una + 50);
  }
  p.in(kAck, 1, 501 - 100, "new");  // just inside
  EXPECT_EQ(p.read(), "new");
  p.out();
  p.in(kAck, 4, 501 - 101, "old");
  EXPECT_EQ(p.read(), "");
  EXPECT_EQ(p.out().size(), 1u);
}

TEST_P(Receive, OldDataIsAnsweredWithDsack) {  // RFC 2883 §4.1.1
  Peer p(ours(), theirs());
  p.config.sack = true;
  p.establish_active();
  p.in(kAck, 1, 1, "abcdef");
  p.in(kAck, 1, 1, "abcdef");
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].ack, 7u);
  ASSERT_EQ(o[0].sack.size(), 1u);
  EXPECT_EQ(o[0].sack[0], (std::pair{1u, 7u}));
  EXPECT_EQ(p.read(), "abcdef");
  p.in(kAck, 4, 1, "defghi");  // partly old
  const auto q = p.out();
  ASSERT_EQ(q.size(), 1u);
  ASSERT_EQ(q[0].sack.size(), 1u);
  EXPECT_EQ(q[0].sack[0], (std::pair{4u, 7u}));
  EXPECT_EQ(p.read(), "ghi");
}

TEST_P(Receive, OutOfOrderIsHeldAndSackedMostRecentFirst) {  // RFC 2018 §4
  Peer p(ours(), theirs());
  p.config.sack = true;
  p.establish_active();
  p.in(kAck, 11, 1, text(10));
  auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].ack, 1u);
  ASSERT_EQ(o[0].sack.size(), 1u);
  EXPECT_EQ(o[0].sack[0], (std::pair{11u, 21u}));
  p.in(kAck, 31, 1, text(10));
  o = p.out();
  ASSERT_EQ(o[0].sack.size(), 2u);
  EXPECT_EQ(o[0].sack[0], (std::pair{31u, 41u}));
  EXPECT_EQ(o[0].sack[1], (std::pair{11u, 21u}));
  p.in(kAck, 21, 1, text(10));  // joins both
  o = p.out();
  ASSERT_EQ(o[0].sack.size(), 1u);
  EXPECT_EQ(o[0].sack[0], (std::pair{11u, 41u}));
  p.in(kAck, 1, 1, text(10));
  o = p.out();
  ASSERT_EQ(o.size(), 1u);  // gap filled: at once
  EXPECT_EQ(o[0].ack, 41u);
  EXPECT_TRUE(o[0].sack.empty());
  EXPECT_EQ(p.read().size(), 40u);
}

TEST_P(Receive, EachOutOfOrderSegmentOfABurstIsAcknowledged) {  // RFC 5681 §4.2
  Peer p(ours(), theirs());
  p.establish_active();
  for (uint32_t i = 0; i < 3; ++i) p.in(kAck, 101 + 10 * i, 1, text(10));
  EXPECT_EQ(p.out().size(), 3u);
}

TEST_P(Receive, TheFirstCopyOfAByteWins) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kAck, 6, 1, "FFFFF");               // 6..10
  p.in(kAck, 3, 1, "ggggggggggggg");       // 3..15 around it
  p.in(kAck, 1, 1, "hhhhhhhhhhhhhhhhhh");  // 1..18 around all
  EXPECT_EQ(p.read(), "hhgggFFFFFggggghhh");
}

TEST_P(Receive, DataBeyondTheAdvertisedEdgeIsCut) {
  Peer p(ours(), theirs());
  p.config.rcv_buf = 1000;
  p.establish_active();
  p.in(kAck, 501, 1, text(500));
  p.in(kAck, 600, 1, text(1400));  // longer, past the edge: TCP.md 4.8
  p.in(kAck, 1, 1, text(1400));
  EXPECT_EQ(p.read().size(), 1000u);
}

/// RFC 2018 §4: each block is told of at its time; what arrives in one burst must not hide the
/// rest.
TEST_P(Receive, AcksOfOneBurstTellOfAllItsBlocks) {
  Peer p(ours(), theirs());
  p.config.sack = true;
  p.establish_active();
  constexpr uint32_t kBlocks = 9;
  for (uint32_t i = 0; i < kBlocks; ++i) p.in(kAck, 11 + 20 * i, 1, text(10));
  const auto o = p.out();
  ASSERT_EQ(o.size(), kBlocks);
  std::set<std::pair<uint32_t, uint32_t>> told;
  for (const Out& one : o) {
    EXPECT_EQ(one.ack, 1u);
    EXPECT_FALSE(one.sack.empty());
    told.insert(one.sack.begin(), one.sack.end());
  }
  EXPECT_EQ(told.size(), kBlocks);
  EXPECT_EQ(o.back().sack[0], (std::pair{11 + 20 * (kBlocks - 1), 21 + 20 * (kBlocks - 1)}));
}

TEST_P(Receive, TheHoleIsAlwaysFilledWhateverTheLimits) {
  Peer p(ours(), theirs());
  p.config.rcv_buf = 65535;
  p.establish_active();
  for (uint32_t i = 0; i < 500; ++i) p.in(kAck, 2 + 2 * i, 1, "x");
  ASSERT_NE(p.t.reassembly, nullptr);
  EXPECT_LE(p.t.reassembly->count(), Reassembly::kMaxRanges);
  p.out();
  p.in(kAck, 1, 1, "ab");
  EXPECT_EQ(p.t.rcv_nxt, 3u);
  for (uint32_t i = 1; i < 500; ++i) p.in(kAck, 1 + 2 * i, 1, "ab");
  EXPECT_EQ(p.read().size(), 1000u);
  EXPECT_EQ(p.t.reassembly, nullptr);
}

TEST_P(Receive, OneByteSegmentsDoNotPinOneFrameEach) {
  Peer p(ours(), theirs());
  p.config.rcv_buf = 65535;
  p.establish_active();
  for (uint32_t i = 0; i < 5000; ++i) {
    p.in(kAck, 1 + i, 1, "x");
    p.out();
  }
  EXPECT_LT(p.t.recv_queue.buffers(), 64u);
  EXPECT_EQ(p.read().size(), 5000u);
}

TEST_P(Receive, EverySecondFullSegmentIsAcknowledged) {  // RFC 9293 §3.8.6.3
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kAck, 1, 1, text(1460));
  EXPECT_TRUE(p.out().empty());
  p.in(kAck, 1461, 1, text(1460));
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].ack, 2921u);
}

TEST_P(Receive, AtMostOneAckForABurstInOrder) {
  Peer p(ours(), theirs());
  p.establish_active();
  for (uint32_t i = 0; i < 8; ++i) p.in(kAck, 1 + 1460 * i, 1, text(1460));
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].ack, 1 + 8 * 1460u);
}

TEST_P(Receive, DelayedAckComesInTime) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kAck, 1, 1, "abc");
  EXPECT_TRUE(p.out().empty());
  const Instant start = p.now;
  const auto o = p.after(Duration::ms(500));
  ASSERT_EQ(o.size(), 1u);
  EXPECT_LE(o[0].at - start, Duration::ms(40));
}

TEST_P(Receive, AReplyCarriesTheAck) {  // RFC 9293 §3.8.6.3, TCP.md 3.8
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kAck, 1, 1, "ping");
  p.read();
  p.write("pong");
  const auto o = p.after(Duration::ms(100));
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data, "pong");
  EXPECT_EQ(o[0].ack, 5u);
}

/// A connection whose program takes its time to answer.
struct Thoughtful : Peer {
  using Peer::Peer;
  uint32_t heard = 1, said = 1;
  /// The peer says a byte, and some time later our program does. @return segments of ours that had
  /// no text.
  size_t exchange(Duration thought) {
    ask();
    const size_t alone = after(thought).size();
    write("a");
    const auto o = out();
    EXPECT_EQ(o.size(), 1u);
    EXPECT_EQ(o.back().ack, heard);
    in(kAck, heard, ++said);
    return alone;
  }
  void ask() { in(kAck, heard++, said, "q"); }
};

TEST_P(Receive, TheAckWaitsForAnAnswerThatTakesAsLongAsTheLast) {
  Thoughtful p(ours(), theirs());
  p.establish_active();
  EXPECT_EQ(p.exchange(Duration::ms(5)), 1u);
  for (const int ms : {5, 7, 1, 0, 5}) EXPECT_EQ(p.exchange(Duration::ms(ms)), 0u) << ms;
  EXPECT_EQ(p.exchange(Duration::ms(20)), 1u);
  EXPECT_EQ(p.exchange(Duration::ms(30)), 0u);
}

TEST_P(Receive, AnAnswerLaterThanTheAckMayBeIsNotWaitedFor) {
  for (const int ms : {33, 50}) {
    Thoughtful p(ours(), theirs());
    p.establish_active();
    for (int i = 0; i < 3; ++i) {
      p.ask();
      EXPECT_EQ(p.after(Duration::us(1100)).size(), 1u) << ms;
      p.now = p.now + Duration::ms(ms) - Duration::us(1100);
      p.write("a");
      EXPECT_EQ(p.out().size(), 1u);
      p.in(kAck, p.heard, ++p.said);
    }
  }
}

TEST_P(Receive, PatienceKeepsToWhatAnAckMayWait) {  // TCP_DELACK_MAX_US
  Thoughtful p(ours(), theirs());
  p.establish_active();
  p.exchange(Duration::ms(20));
  set_delack_max(p.t, Duration::ms(5));
  p.ask();
  EXPECT_EQ(p.after(Duration::us(1100)).size(), 1u);
  p.now = p.now + Duration::ms(2);
  p.write("a");
  p.out();
  p.in(kAck, p.heard, ++p.said);
  EXPECT_EQ(p.exchange(Duration::us(3900)), 0u);
}

/// A peer that writes twice and then waits, by Nagle's algorithm with its second write for our ACK
/// of the first.
TEST_P(Receive, APeerThatGoesOnOnceItIsAcknowledgedIsNotKeptWaitingAgain) {
  Thoughtful p(ours(), theirs());
  p.establish_active();
  p.exchange(Duration::ms(20));
  p.ask();
  EXPECT_TRUE(p.after(Duration::ms(31)).empty());
  EXPECT_EQ(p.after(Duration::ms(2)).size(), 1u);
  for (int i = 0; i < 3; ++i) {
    p.ask();  // the second write
    p.write("a");
    EXPECT_EQ(p.out().size(), 1u);
    p.in(kAck, p.heard, ++p.said);
    p.ask();  // the first of the next request
    EXPECT_EQ(p.after(Duration::us(1100)).size(), 1u);
  }
}

TEST_P(Receive, TheFirstSixteenSegmentsAreAcknowledgedAtOnce) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.t.quick_acks = kQuickAcks;
  unsigned acks = 0;
  for (uint32_t i = 0; i < 40; ++i) {
    p.in(kAck, 1 + 100 * i, 1, text(100));
    acks += static_cast<unsigned>(p.out().size());
  }
  EXPECT_GE(acks, 16u);
  EXPECT_LE(acks, 20u);
}

TEST_P(Receive, QuickackEndsInteractiveModeAndSaysWhatIsOwed) {  // tcp(7): not permanent
  Peer p(ours(), theirs());
  p.establish_active();
  EXPECT_TRUE(is_quick(p.t));
  p.in(kAck, 1, 1, "ask");
  p.write("reply");
  EXPECT_EQ(p.out().size(), 1u);  // carries the ACK
  EXPECT_FALSE(is_quick(p.t));
  p.in(kAck, 4, 6, "more");
  EXPECT_TRUE(p.out().empty());
  set_quickack(p.t, true, p.now);
  EXPECT_TRUE(is_quick(p.t));
  EXPECT_EQ(p.out().size(), 1u);
  set_quickack(p.t, false, p.now);
  EXPECT_FALSE(is_quick(p.t));
}

TEST_P(Receive, AlwaysQuickAcknowledgesEverySegment) {
  Peer p(ours(), theirs());
  p.config.quickack = true;
  p.establish_active();
  for (uint32_t i = 0; i < 40; ++i) {
    p.in(kAck, 1 + 100 * i, 1, text(100));
    EXPECT_EQ(p.out().size(), 1u);
  }
}

TEST_P(Receive, FinOutOfOrderWaitsForTheHole) {
  Peer p(ours(), theirs());
  p.establish_active();
  EXPECT_FALSE(has(p.in(kAck | kFin, 4, 1, "def"), Effects::kPeerClosed));
  EXPECT_FALSE(peer_closed(p.t));
  EXPECT_TRUE(has(p.in(kAck, 1, 1, "abc"), Effects::kPeerClosed));
  EXPECT_EQ(p.read(), "abcdef");
  EXPECT_EQ(state(p.t), State::kCloseWait);
  EXPECT_EQ(p.out().back().ack, 8u);
}

TEST_P(Receive, DataBeyondTheFinIsIgnored) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kAck | kFin, 4, 1);
  p.in(kAck, 1, 1, "abcXYZ");
  EXPECT_EQ(p.read(), "abc");
  EXPECT_TRUE(peer_closed(p.t));
}

TEST_P(Receive, FinAtTheEdgeOfAFullWindow) {
  Peer p(ours(), theirs());
  p.config.rcv_buf = 1000;
  p.establish_active();
  p.in(kAck | kFin, 1, 1, text(1000));
  EXPECT_TRUE(peer_closed(p.t));
  EXPECT_EQ(p.read().size(), 1000u);
}

TEST_P(Receive, ZeroWindowStillTakesAcksAndResets) {  // RFC 9293 §3.10.7.4
  Peer p(ours(), theirs());
  p.config.rcv_buf = 1000;
  p.establish_active();
  p.write("abc");
  p.out();
  p.in(kAck, 1, 1, text(1000));
  EXPECT_EQ(p.after(Duration::ms(50)).back().window, 0u);
  p.in(kAck, 1001, 4, "z");  // a probe that also acknowledges
  EXPECT_EQ(unacked_bytes(p.t), 0u);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].ack, 1001u);
  EXPECT_EQ(o[0].window, 0u);
  p.in(kRst, 1001, 0);
  EXPECT_EQ(state(p.t), State::kClosed);
}

// What ends right at RCV.NXT is old, but its ACK counts (Linux tcp_sequence); further left, not.
TEST_P(Receive, TheAckOfAProbeThatWasTakenCounts) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.write("abc");
  p.out();
  p.in(kAck, 1, 1, "z");
  p.in(kAck, 0, 4, "y");
  EXPECT_EQ(unacked_bytes(p.t), 3u);
  p.in(kAck, 1, 4, "z");
  EXPECT_EQ(unacked_bytes(p.t), 0u);
  const auto o = p.out();
  ASSERT_FALSE(o.empty());
  EXPECT_EQ(o.back().ack, 2u);
  EXPECT_EQ(p.read(), "z");
  p.in(kAck | kFin, 1, 4);  // of another stream: there was text
  EXPECT_FALSE(peer_closed(p.t));
}

TEST_P(Receive, OldTextIsNoDuplicateAck) {  // RFC 5681 §2 (b): what is trimmed away was data
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kAck, 1, 1, "z");
  p.write(text(5000));
  p.out();
  for (int i = 0; i < 5; ++i) p.in(kAck, 1, 1, "z");
  EXPECT_EQ(p.t.dupacks, 0);
  EXPECT_EQ(p.t.recovery, Recovery::kOpen);
}

TEST_P(Receive, ReadingReopensTheWindowInWorthwhileSteps) {  // RFC 9293 §3.8.6.2.2
  Peer p(ours(), theirs());
  p.config.rcv_buf = 8000;
  p.establish_active();
  for (uint32_t i = 0; i < 8; ++i) p.in(kAck, 1 + 1000 * i, 1, text(1000));
  EXPECT_EQ(p.out().back().window, 0u);
  p.read(100);
  EXPECT_TRUE(p.out().empty());  // a silly window
  p.read(1400);
  EXPECT_TRUE(p.out().empty());
  p.read(3000);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].window, 4500u);
}

TEST_P(Receive, TheAdvertisedEdgeNeverMovesLeft) {  // RFC 9293 §3.8.6
  Peer p(ours(), theirs());
  p.config.rcv_buf = 60'000;
  p.establish_active();
  p.in(kAck, 1, 1, text(1000));
  set_rcv_buf(p.t, 2000);
  p.in(kAck, 1001, 1, text(1000));
  p.in(kAck, 2001, 1, text(1000));
  for (const Out& o : p.out()) EXPECT_GE(o.ack + o.window, 60'001u);
}

TEST_P(Receive, PeekingDoesNotOpenTheWindow) {  // TCP.md 4.5
  Peer p(ours(), theirs());
  p.config.rcv_buf = 4000;
  p.establish_active();
  p.in(kAck, 1, 1, text(1400));
  p.in(kAck, 1401, 1, text(1400));
  p.out();
  for (int i = 0; i < 100; ++i) consumed(p.t, 0, p.now);
  EXPECT_TRUE(p.out().empty());
}

TEST_P(Receive, PawsDropsOldTimestamps) {  // RFC 7323 §5.3
  Peer p(ours(), theirs());
  p.config.timestamps = true;
  p.establish_active();
  p.ts_val = 200;
  p.in(kAck, 1, 1, "abc");
  p.out();
  p.ts_val = 199;
  p.in(kAck, 4, 1, "old");
  EXPECT_EQ(p.read(), "abc");
  EXPECT_EQ(p.out().size(), 1u);
  p.in(kRst, 4, 0);  // exempt
  EXPECT_EQ(state(p.t), State::kClosed);
}

TEST_P(Receive, TimestampsCompareModulo) {
  Peer p(ours(), theirs());
  p.config.timestamps = true;
  p.ts_val = 0xfffffff0;
  p.establish_active();
  p.ts_val = 5;
  p.in(kAck, 1, 1, "abc");
  EXPECT_EQ(p.read(), "abc");
  EXPECT_EQ(p.t.ts_recent, 5u);
}

TEST_P(Receive, AnIdleOf24DaysInvalidatesTheTimestamp) {  // RFC 7323 §5.5
  Peer p(ours(), theirs());
  p.config.timestamps = true;
  p.ts_val = 1000;
  p.establish_active();
  p.now = p.now + Duration::s(25LL * 86400);
  p.ts_val = 1000 + 0x80000001;
  p.in(kAck, 1, 1, "abc");
  EXPECT_EQ(p.read(), "abc");
  EXPECT_EQ(p.t.ts_recent, p.ts_val);
}

TEST_P(Receive, TsRecentOnlyFromSegmentsAtTheLastAck) {  // RFC 7323 §4.3
  Peer p(ours(), theirs());
  p.config.timestamps = true;
  p.establish_active();
  p.ts_val = 300;
  p.in(kAck, 11, 1, text(10));  // beyond the hole: not taken
  EXPECT_EQ(p.t.ts_recent, 100u);
  auto o = p.out();
  EXPECT_EQ(o.back().options.ts_ecr, 100u);
  p.in(kAck, 1, 1, text(10));
  EXPECT_EQ(p.t.ts_recent, 300u);
}

TEST_P(Receive, SegmentsWithoutTheNegotiatedTimestampAreTaken) {  // as Linux
  Peer p(ours(), theirs());
  p.config.timestamps = true;
  p.establish_passive();
  p.send_timestamps = false;
  p.in(kAck, 1, 1, "abc");
  EXPECT_EQ(p.read(), "abc");
}

namespace {
Effects urgent_in(Peer& p, uint32_t seq, uint16_t pointer, const std::string& data) {
  Segment s = p.make(kAck | SegFlags::kUrg, seq, 1, data, {});
  s.urgent = pointer;
  return input(p.t, std::move(s), p.now);
}
}  // namespace

TEST_P(Receive, UrgentDataIsInline) {  // RFC 6093
  Peer p(ours(), theirs());
  p.establish_active();
  const Effects e = urgent_in(p, 1, 3, "abcde");
  EXPECT_TRUE(has(e, Effects::kUrgent));
  EXPECT_TRUE(has(e, Effects::kUrgentByte));
  EXPECT_EQ(p.t.urgent_mark, 3u);
  EXPECT_EQ(bytes_to_mark(p.t), 2u);
  EXPECT_EQ(take_urgent(p.t, true), std::byte{'c'});
  EXPECT_EQ(urgent(p.t), Urgent::kThere);
  EXPECT_EQ(take_urgent(p.t, false), std::byte{'c'});
  EXPECT_EQ(urgent(p.t), Urgent::kTaken);
  EXPECT_EQ(p.read(), "abcde");
  EXPECT_EQ(urgent(p.t), Urgent::kNone);
  EXPECT_TRUE(p.t.predictable);
}

TEST_P(Receive, UrgentPointerMayComeBeforeItsByte) {
  Peer p(ours(), theirs());
  p.establish_active();
  EXPECT_TRUE(has(urgent_in(p, 1, 6, "abc"), Effects::kUrgent));
  EXPECT_EQ(urgent(p.t), Urgent::kAwaited);
  EXPECT_EQ(bytes_to_mark(p.t), 5u);
  EXPECT_FALSE(p.t.predictable);
  EXPECT_TRUE(has(p.in(kAck, 4, 1, "def"), Effects::kUrgentByte));
  EXPECT_EQ(take_urgent(p.t, false), std::byte{'f'});
}

TEST_P(Receive, UrgentByteIsTakenOutOfOrderToo) {
  Peer p(ours(), theirs());
  p.establish_active();
  EXPECT_TRUE(has(urgent_in(p, 4, 3, "def"), Effects::kUrgentByte));
  EXPECT_EQ(take_urgent(p.t, false), std::byte{'f'});
  p.in(kAck, 1, 1, "abc");
  EXPECT_EQ(bytes_to_mark(p.t), 5u);
}

TEST_P(Receive, UrgentPointerIsRelativeToTheWholeSegment) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kAck, 1, 1, "abc");
  urgent_in(p, 1, 5, "abcde");  // its first half is old
  EXPECT_EQ(p.t.urgent_mark, 5u);
  EXPECT_EQ(take_urgent(p.t, false), std::byte{'e'});
  EXPECT_FALSE(has(urgent_in(p, 1, 2, "ab"), Effects::kUrgent));  // old: says nothing
}

// RFC 9293 §3.8.6 MUST-66: nothing of the segment may be taken, but its pointer counts.
TEST_P(Receive, UrgentPointerCountsAtAZeroWindow) {
  Peer p(ours(), theirs());
  p.config.rcv_buf = 1000;
  p.establish_active();
  p.in(kAck, 1, 1, text(1000));
  ASSERT_EQ(p.after(Duration::ms(50)).back().window, 0u);
  EXPECT_TRUE(has(urgent_in(p, 1001, 3, "abc"), Effects::kUrgent));
  EXPECT_EQ(p.t.rcv_nxt, 1001u);
  EXPECT_EQ(urgent(p.t), Urgent::kAwaited);
  EXPECT_EQ(bytes_to_mark(p.t), 1002u);
  EXPECT_EQ(p.out().back().ack, 1001u);
}

TEST_P(Receive, WindowClampLimitsWhatIsAdvertised) {  // tcp(7) TCP_WINDOW_CLAMP
  Peer p(ours(), theirs());
  p.config.window_clamp = 3000;
  open_active(p.t, p.config, p.pool, p.iss, p.now);
  const auto syn = p.out();
  ASSERT_EQ(syn.size(), 1u);
  EXPECT_EQ(syn[0].window, 3000u);
  p.in(kSyn | kAck, 0, 1);
  EXPECT_EQ(p.out()[0].window, 3000u);
  p.in(kAck, 1, 1, text(1000));
  p.read();
  for (const Out& o : p.after(Duration::ms(50))) EXPECT_LE(o.window, 3000u);
}

TEST_P(Receive, KeepaliveProbeIsAnswered) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kAck, 0, 1);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].ack, 1u);
}

TEST(Receive, TwoConfusedPeersDoNotFloodEachOther) {  // TCP.md 3.10 #6
  Peer a(1000, 5000), b(777'000, 999'000);
  a.establish_active();
  b.establish_active();
  // Each thinks the other is elsewhere; every answer is handed over as a bare ACK.
  a.in(kSyn, 3, 0);
  size_t n = 0;
  for (int ms = 0; ms < 10'000; ++ms) {
    for (const Out& o : a.out()) {
      ++n;
      input(b.t, b.make(kAck, 900'000'000 + o.seq, 300'000'000, "", {}), b.now);
    }
    for (const Out& o : b.out()) {
      ++n;
      input(a.t, a.make(kAck, 800'000'000 + o.seq, 300'000'000, "", {}), a.now);
    }
    a.now = b.now = a.now + Duration::ms(1);
  }
  EXPECT_LE(n, 41u);
}

}  // namespace
}  // namespace vireo::tcp
