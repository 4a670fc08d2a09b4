// Data sent while there is a hole in what is received: it tells of that (RFC 2018 §4), and holds so
// much less. output.cpp, reframe.cpp.
#include "tests/unit/tcp/sack_peer.h"

namespace vireo::tcp {
namespace {

class Blocks : public TcpTest {};
INSTANTIATE_TEST_SUITE_P(Iss, Blocks, ::testing::Range(0, 6));

using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;

std::string joined(const std::vector<Out>& all) {
  std::string s;
  for (const Out& o : all) s += o.data;
  return s;
}

TEST_P(Blocks, EverySegmentHasThemAndIsAsMuchShorter) {  // Linux tcp_current_mss()
  SackPeer p(ours(), theirs());
  p.establish();
  p.in(kAck, 1001, 1, text(1000));
  p.out();
  p.write(text(5000));
  const auto o = p.out();
  ASSERT_EQ(o.size(), 6u);
  for (const Out& s : o) {
    EXPECT_EQ(s.sack, (Ranges{{1001, 2001}}));
    EXPECT_EQ(s.data.size(), &s == &o.back() ? 60u : 988u);
  }
  EXPECT_EQ(joined(o), text(5000));
}

TEST_P(Blocks, BesideTimestampsThree) {
  SackPeer p(ours(), theirs(), true);
  p.establish();
  for (uint32_t i = 1; i <= 7; i += 2) p.in(kAck, 1000 * i + 1, 1, text(1000));
  p.out();
  p.write(text(3000));
  const auto o = p.out();
  ASSERT_EQ(o.size(), 4u);
  EXPECT_EQ(o[0].sack, (Ranges{{7001, 8001}, {5001, 6001}, {3001, 4001}}));
  EXPECT_EQ(o[0].data.size(), 1000u - 28u);
  EXPECT_EQ(joined(o), text(3000));
}

TEST_P(Blocks, WhatWasFramedBeforeIsCutWithoutTinySegments) {
  SackPeer p(ours(), theirs());
  p.establish();
  p.write(text(30'000));
  ASSERT_EQ(p.out().size(), 10u);
  p.pass(kRtt);
  p.in(kAck, 1001, 1, text(1000));
  p.out();
  p.t.cc.cwnd = 40'000;
  const auto o = p.out();
  EXPECT_EQ(joined(o), text(30'000).substr(10'000));
  EXPECT_LE(o.size(), 23u) << "not one of twelve bytes behind each of the twenty";
  unsigned full = 0;
  for (const Out& s : o) {
    EXPECT_LE(s.data.size(), 988u);
    full += s.data.size() == 988;
  }
  EXPECT_GE(full, 18u);
  p.ack(30);
  EXPECT_EQ(p.t.snd_una, p.t.snd_end);
}

TEST_P(Blocks, WhenTheHoleIsFilledSegmentsAreFullAgain) {
  SackPeer p(ours(), theirs());
  p.establish();
  p.in(kAck, 1001, 1, text(1000));
  p.out();
  p.in(kAck, 1, 1, text(1000));
  p.write(text(3000));
  const auto o = p.out();
  ASSERT_GE(o.size(), 3u);
  for (const Out& s : o) EXPECT_TRUE(s.sack.empty());
  EXPECT_EQ(o.back().data.size(), 1000u);
}

TEST_P(Blocks, RetransmissionsHaveThemToo) {
  SackPeer p(ours(), theirs());
  p.establish();
  ASSERT_EQ(p.send(10), 10u);
  p.pass(kRtt);
  p.in(kAck, 1001, 1, text(1000));
  p.out();
  p.ack(0, {{1, 5}});
  const auto o = p.out();
  ASSERT_EQ(o.size(), 2u);  // the segment sent before was full without them
  EXPECT_EQ(o[0].seq, 1u);
  EXPECT_EQ(o[0].sack, (Ranges{{1001, 2001}}));
  EXPECT_EQ(o[0].data, text(10'000).substr(0, 988));
  EXPECT_EQ(o[1].seq, 989u);
  EXPECT_EQ(o[1].data, text(10'000).substr(988, 12));
  EXPECT_EQ(o[1].sack, (Ranges{{1001, 2001}}));
  p.pass(kRtt);
  p.ack(10);
  EXPECT_EQ(p.t.recovery, Recovery::kOpen);
  EXPECT_EQ(p.t.snd_una, p.t.snd_end);
}

TEST_P(Blocks, ASegmentMadeShortByThemIsFullForNagle) {
  SackPeer p(ours(), theirs());
  p.config.nodelay = false;
  p.establish();
  p.in(kAck, 1001, 1, text(1000));
  p.out();
  p.write(text(988));
  ASSERT_EQ(p.out().size(), 1u);
  p.write(text(988));  // one that is not full waits, these do not
  EXPECT_EQ(p.out().size(), 1u);
  p.write(text(100));
  EXPECT_EQ(p.out().size(), 1u) << "Minshall: no small one is in flight";
  p.write(text(100));
  EXPECT_EQ(p.out().size(), 0u);
}

TEST_P(Blocks, NoneWithoutTheOption) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.in(kAck, 1001, 1, text(1000));
  p.out();
  p.write(text(1460));
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data.size(), 1460u);
  EXPECT_TRUE(o[0].sack.empty());
}

TEST_P(Blocks, AKeepaliveHasThem) {  // Linux: whatever is sent
  SackPeer p(ours(), theirs());
  p.config.keepalive = true;
  p.config.keep_idle = Duration::s(10);
  p.establish();
  p.in(kAck, 1001, 1, text(1000));
  p.out();
  const auto o = p.after(Duration::s(11));
  ASSERT_FALSE(o.empty());
  EXPECT_EQ(o[0].sack, (Ranges{{1001, 2001}}));
}

}  // namespace
}  // namespace vireo::tcp
