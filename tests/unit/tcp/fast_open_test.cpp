// TCP Fast Open, the server's side: RFC 7413 §4.2.2.
#include "stack/tcp/fast_open.h"

#include <cerrno>

#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {
namespace {

class FastOpen : public TcpTest {
 protected:
  /// A SYN with `data` whose cookie was good.
  static void open(Peer& p, const std::string& data) {
    const auto o = p.syn_options();
    open_fast(p.t, p.config, p.pool, p.make(kSyn, 0, 0, data, o), p.iss, p.now);
  }
};
INSTANTIATE_TEST_SUITE_P(Iss, FastOpen, ::testing::Range(0, 6));

TEST_P(FastOpen, DataOnTheSynIsReadAndAnsweredAtOnce) {
  Peer p(ours(), theirs());
  open(p, "early");
  EXPECT_EQ(state(p.t), State::kSynReceived);
  EXPECT_FALSE(is_opening(p.t));
  const auto synack = p.out();
  ASSERT_EQ(synack.size(), 1u);
  EXPECT_EQ(synack[0].flags, kSyn | kAck);
  EXPECT_EQ(synack[0].ack, 6u);
  EXPECT_EQ(synack[0].window, 65'530u);
  EXPECT_EQ(p.read(), "early");
  ASSERT_TRUE(can_send(p.t));
  p.write("reply");
  const auto reply = p.out();
  ASSERT_EQ(reply.size(), 1u);
  EXPECT_EQ(reply[0].seq, 1u);
  EXPECT_EQ(reply[0].ack, 6u);
  EXPECT_EQ(reply[0].data, "reply");
  p.now = p.now + Duration::ms(20);
  EXPECT_TRUE(has(p.in(kAck, 6, 6), Effects::kConnected));
  EXPECT_EQ(state(p.t), State::kEstablished);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
  EXPECT_EQ(p.t.rtt.srtt.ms(), 20);
  EXPECT_TRUE(info(p.t).syn_data);
}

TEST_P(FastOpen, TheServerMayCloseBeforeTheHandshakeIsOver) {
  Peer p(ours(), theirs());
  open(p, "early");
  p.read();
  p.write("all");
  shutdown_write(p.t, p.now);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 2u);
  EXPECT_TRUE(o[1].is(kFin | kAck));
  EXPECT_EQ(o[1].data, "all");
  p.in(kAck, 6, 5);
  EXPECT_EQ(state(p.t), State::kFinWait2);
}

TEST_P(FastOpen, ALostSynAckIsRepeatedAndNothingIsTakenTwice) {
  Peer p(ours(), theirs());
  open(p, "early");
  p.out();
  p.write("reply");
  EXPECT_EQ(p.out().size(), 1u);
  const auto o = p.syn_options();
  input(p.t, p.make(kSyn, 0, 0, "early", o), p.now);
  auto again = p.out();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].flags, kSyn | kAck);
  EXPECT_EQ(again[0].ack, 6u);
  again = p.after(Duration::ms(1100));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].flags, kSyn | kAck);
  EXPECT_EQ(p.read(), "early");
  p.in(kAck, 6, 1);  // the reply was lost
  EXPECT_EQ(state(p.t), State::kEstablished);
  EXPECT_EQ(unacked_bytes(p.t), 5u);
  const auto lost = p.until(p.t.rtx_at);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].data, "reply");
  p.in(kAck, 6, 6);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
}

TEST_P(FastOpen, DataBeyondTheWindowIsCut) {
  Peer p(ours(), theirs());
  p.config.rcv_buf = 1000;
  open(p, text(1200));
  const auto synack = p.out();
  ASSERT_EQ(synack.size(), 1u);
  EXPECT_EQ(synack[0].ack, 1001u);
  EXPECT_EQ(synack[0].window, 0u);
  EXPECT_EQ(p.read(), text(1000));
}

TEST_P(FastOpen, AResetOrSilenceEndsIt) {
  Peer p(ours(), theirs());
  open(p, "early");
  p.out();
  p.in(kRst, 6, 0);
  EXPECT_EQ(state(p.t), State::kClosed);
  EXPECT_EQ(error(p.t), ECONNREFUSED);
  open(p, "early");
  EXPECT_EQ(p.after(Duration::s(300)).size(), 6u);
  EXPECT_EQ(error(p.t), ETIMEDOUT);
}

TEST(FastOpenCookie, IsOfTheAddressesAndADay) {  // RFC 7413 §4.1.2
  const IsnSecret key{1, 2};
  const IpAddr server = *IpAddr::parse("10.0.0.1");
  const IpAddr client = *IpAddr::parse("11.0.0.7");
  const Instant now = Instant::from_ns(1'000'000'000'000'000);
  const FastOpenCookie c = fast_open_cookie(key, server, client, now);
  EXPECT_TRUE(is_fast_open_cookie(key, server, client, c, now));
  EXPECT_TRUE(is_fast_open_cookie(key, server, client, c, now + kFastOpenEpoch));
  EXPECT_FALSE(is_fast_open_cookie(key, server, client, c, now + kFastOpenEpoch * 2));
  EXPECT_FALSE(is_fast_open_cookie(key, server, *IpAddr::parse("11.0.0.8"), c, now));
  EXPECT_FALSE(is_fast_open_cookie(IsnSecret{1, 3}, server, client, c, now));
  EXPECT_FALSE(is_fast_open_cookie(key, server, client, {}, now));
  EXPECT_FALSE(is_fast_open_cookie(key, server, client, std::span(c).first(6), now));
}

TEST(FastOpenOption, Lengths) {  // RFC 7413 §4.1.1
  for (unsigned n = 0; n <= 20; ++n) {
    std::vector<uint8_t> o(2 + n, 7);
    o[0] = 34;
    o[1] = static_cast<uint8_t>(2 + n);
    const bool good = n == 0 || (n >= 4 && n <= 16 && n % 2 == 0);
    const auto parsed = wire::parse_tcp_options(o, true);
    EXPECT_EQ(parsed.has_fast_open, good) << n;
    if (good) {
      EXPECT_EQ(parsed.fast_open.size(), n);
    }
    EXPECT_FALSE(wire::parse_tcp_options(o, false).has_fast_open);
  }
}

}  // namespace
}  // namespace vireo::tcp
