// A connection that another TCP has opened is continued: what it received and acknowledged, its
// windows, options and timestamps (take_over.h).
#include "stack/tcp/take_over.h"

#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {
namespace {

class Continue : public TcpTest {};
INSTANTIATE_TEST_SUITE_P(Iss, Continue, ::testing::Range(0, 6));

/// As the other left it: `unread` received, all but `unacked` bytes of it acknowledged.
TakeOver left_by_other(const Peer& p, std::span<const std::byte> unread, uint32_t unacked) {
  TakeOver o;
  o.snd_nxt = p.iss + 1;
  o.rcv_nxt = p.irs + 1 + static_cast<uint32_t>(unread.size());
  o.rcv_acked = o.rcv_nxt - unacked;
  o.rcv_adv = o.rcv_acked + 60'000;
  o.unread = unread;
  o.peer_mss = 1460;
  o.snd_wl1 = p.irs + 1;
  o.snd_wnd = o.max_wnd = 30'000;
  return o;
}

std::vector<std::byte> bytes(size_t n) {
  std::vector<std::byte> b(n);
  for (size_t i = 0; i < n; ++i) b[i] = static_cast<std::byte>(i * 7);
  return b;
}

TEST_P(Continue, ReadsWhatTheOtherReceived) {
  Peer p(ours(), theirs());
  const auto unread = bytes(5000);  // of several frames
  ASSERT_TRUE(open_taken_over(p.t, p.config, p.pool, left_by_other(p, unread, 0), p.now));
  EXPECT_EQ(state(p.t), State::kEstablished);
  ASSERT_EQ(recv_queue(p.t).bytes(), 5000u);
  size_t at = 0;
  for (const PacketBuf* b = recv_queue(p.t).front(); b != nullptr; b = b->next)
    for (const std::byte x : b->bytes()) ASSERT_EQ(x, unread[at++]);
  EXPECT_TRUE(p.out().empty()) << "all was acknowledged";
  EXPECT_TRUE(has(p.in(kAck, 5001, 1, "more"), Effects::kReadable));
  const auto o = p.after(Duration::ms(50));
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].ack, 5005u);
}

TEST_P(Continue, AcknowledgesWhatTheOtherDidNot) {
  Peer p(ours(), theirs());
  const auto unread = bytes(10);
  ASSERT_TRUE(open_taken_over(p.t, p.config, p.pool, left_by_other(p, unread, 10), p.now));
  EXPECT_TRUE(p.out().empty()) << "an answer may carry it";
  const auto o = p.after(Duration::ms(50));
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].ack, 11u);
}

TEST_P(Continue, SendsWithinTheWindow) {
  Peer p(ours(), theirs());
  TakeOver left = left_by_other(p, {}, 0);
  left.snd_wnd = left.max_wnd = 3000;
  ASSERT_TRUE(open_taken_over(p.t, p.config, p.pool, left, p.now));
  const std::string data(4000, 'x');
  const iovec v{const_cast<char*>(data.data()), data.size()};
  ASSERT_EQ(append(p.t, {&v, 1}, false, p.now), 4000u);
  size_t sent = 0;
  uint32_t next = 1;
  for (const Out& o : p.out()) {
    EXPECT_EQ(o.seq, next);
    next += static_cast<uint32_t>(o.data.size());
    sent += o.data.size();
  }
  EXPECT_LE(sent, 3000u);
  EXPECT_GE(sent, 2 * 1460u);
  EXPECT_FALSE(has(p.in(kAck, 1, next), Effects::kError));
  EXPECT_EQ(p.t.outstanding(), 0u);
}

/// The advertised edge never moves left, however small our buffer is (RFC 9293 §3.8.6.2.1).
TEST_P(Continue, KeepsTheWindowThatThePeerKnows) {
  Peer p(ours(), theirs());
  p.config.rcv_buf = 8192;
  ASSERT_TRUE(open_taken_over(p.t, p.config, p.pool, left_by_other(p, {}, 0), p.now));
  p.in(kAck, 1, 1, std::string(1000, 'y'));
  for (uint32_t at = 1001; at < 50'000; at += 1000) {
    p.in(kAck, at, 1, std::string(1000, 'y'));
    recv_queue(p.t).clear();
  }
  EXPECT_EQ(p.t.rcv_nxt, 50'001u) << "data within the old window was dropped";
  (void)p.out();
}

/// TS.Recent is not known: any timestamp of the peer's is newer. Ours never goes back.
TEST_P(Continue, TakesAnyTimestampFirst) {
  Peer p(ours(), theirs());
  p.config.timestamps = true;
  p.now = p.now + Duration::s(3);
  for (const uint32_t theirs_now : {0U, 5U, 0x7fffffffU, 0x80000000U, 0xfffffff0U}) {
    TakeOver left = left_by_other(p, {}, 0);
    left.timestamps = true;
    left.timestamp = 0xfffffffeU;
    ASSERT_TRUE(open_taken_over(p.t, p.config, p.pool, left, p.now));
    p.ts_val = theirs_now;
    EXPECT_TRUE(has(p.in(kAck, 1, 1, "a"), Effects::kReadable)) << theirs_now;
    const auto o = p.after(Duration::ms(50));
    ASSERT_EQ(o.size(), 1u);
    EXPECT_EQ(o[0].options.ts_ecr, theirs_now);
    EXPECT_GE(static_cast<int32_t>(o[0].options.ts_val - left.timestamp), 0);
    recv_queue(p.t).clear();
    // From now on PAWS holds.
    p.ts_val = theirs_now - 10;
    EXPECT_FALSE(has(p.in(kAck, 2, 1, "b"), Effects::kReadable)) << theirs_now;
    release(p.t);
  }
}

TEST_P(Continue, WithoutBuffersItIsClosed) {
  Peer p(ours(), theirs(), 64);
  std::vector<PacketRef> held;
  while (PacketBuf* b = p.pool.take_for_rx()) held.emplace_back(b);
  const auto unread = bytes(10);
  EXPECT_FALSE(open_taken_over(p.t, p.config, p.pool, left_by_other(p, unread, 0), p.now));
  EXPECT_EQ(state(p.t), State::kClosed);
}

}  // namespace
}  // namespace vireo::tcp
