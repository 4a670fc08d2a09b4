// Paths that carry less than was thought: path.cpp.
#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {
namespace {

class Path : public TcpTest {};
INSTANTIATE_TEST_SUITE_P(Iss, Path, ::testing::Range(0, 6));

TEST_P(Path, ShrunkPathIsResegmentedWithoutALoss) {  // RFC 1191 §6.4, RFC 8201 §4; TCP.md 4.24
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(14'600));
  ASSERT_EQ(p.out().size(), 10u);
  const uint32_t cwnd = p.t.cc.cwnd, ssthresh = p.t.cc.ssthresh;
  EXPECT_TRUE(has(path_shrunk(p.t, 1000, p.now), Effects::kTransmit));
  std::string got(14'600, ' ');
  size_t bytes = 0;
  for (const Out& o : p.out()) {
    EXPECT_LE(o.data.size(), 1000u);
    EXPECT_TRUE(o.retransmission);
    got.replace(o.seq - 1, o.data.size(), o.data);
    bytes += o.data.size();
  }
  EXPECT_EQ(bytes, 14'600u);
  EXPECT_EQ(got, text(14'600));
  EXPECT_EQ(p.t.cc.cwnd, cwnd);
  EXPECT_EQ(p.t.cc.ssthresh, ssthresh);
  p.in(kAck, 1, 14'601);
  EXPECT_EQ(p.t.recovery, Recovery::kOpen);
  EXPECT_GE(p.t.cc.cwnd, cwnd);
}

TEST_P(Path, GrownOrEqualPathSendsNothingAgain) {
  Peer p(ours(), theirs());
  p.config.mss = 1000;
  p.establish_active();
  p.write(text(3000));
  p.out();
  EXPECT_EQ(path_shrunk(p.t, 1000, p.now), Effects::kNone);
  EXPECT_EQ(path_shrunk(p.t, 1200, p.now), Effects::kNone);
  EXPECT_TRUE(p.out().empty());
}

TEST_P(Path, TheWindowIsNeverLessThanASegmentOfAGrownPath) {  // RFC 5681 §3.1
  Peer p(ours(), theirs());
  p.config.mss = 300;
  p.establish_active();
  p.write(text(300));
  p.out();
  p.until(deadline(p.t));  // a timeout: one segment
  EXPECT_EQ(p.t.cc.cwnd, 300u);
  set_mss(p.t, 1460);
  EXPECT_EQ(p.t.cc.cwnd, 1460u);
}

TEST_P(Path, SilenceIsTakenForABlackHole) {  // RFC 4821 §7.7; Linux tcp_mtu_probing = 1
  Peer p(ours(), theirs());
  p.config.mtu_probing = MtuProbing::kOnBlackHole;
  p.establish_active();
  p.write(text(1460));
  EXPECT_EQ(p.out()[0].data.size(), 1460u);
  std::vector<size_t> sizes;
  for (const Out& o : p.after(Duration::s(30)))
    if (o.seq == 1) sizes.push_back(o.data.size());  // the rest of the cut one follows
  ASSERT_GE(sizes.size(), 5u);
  EXPECT_EQ(sizes[0], 1460u);
  EXPECT_EQ(sizes[1], 1460u);
  EXPECT_EQ(sizes[2], 1024u);  // the third timeout
  EXPECT_EQ(sizes[3], 512u);
  EXPECT_EQ(sizes[4], 256u);
}

TEST_P(Path, SilenceIsNothingOfTheKindByDefault) {
  Peer p(ours(), theirs());
  p.establish_active();
  p.write(text(1460));
  p.out();
  for (const Out& o : p.after(Duration::s(30))) EXPECT_EQ(o.data.size(), 1460u);
}

}  // namespace
}  // namespace vireo::tcp
