// TCP Fast Open: the server's side, RFC 7413 §4.2.2, and the client's, §4.2.1.
#include "stack/tcp/fast_open_keys.h"

#include <algorithm>
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
  EXPECT_EQ(error(p.t), ECONNRESET);
  open(p, "early");
  EXPECT_EQ(p.after(Duration::s(300)).size(), 6u);
  EXPECT_EQ(error(p.t), ETIMEDOUT);
}

/// The client's side.
class FastOpenClient : public TcpTest {
 protected:
  static constexpr uint8_t kCookie[8] = {1, 2, 3, 4, 5, 6, 7, 8};

  static size_t begin(Peer& p, const std::string& data, uint16_t mss = 1460,
                      bool without_cookie = false) {
    const iovec v{const_cast<char*>(data.data()), data.size()};
    open_active(p.t, p.config, p.pool, p.iss, p.now);
    return begin_fast_open(
        p.t,
        {.cookie = mss == 0 || without_cookie ? std::span<const uint8_t>() : std::span(kCookie),
         .without_cookie = without_cookie,
         .peer_mss = mss,
         .data = {&v, 1}},
        p.now);
  }
  /// The SYN with `data`, seen.
  static void open(Peer& p, const std::string& data) {
    EXPECT_EQ(begin(p, data), data.size());
    const auto syn = p.out();
    ASSERT_EQ(syn.size(), 1u);
    EXPECT_EQ(syn[0].flags, kSyn);
    EXPECT_EQ(syn[0].seq, 0u);
    EXPECT_EQ(syn[0].data, data);
  }
};
INSTANTIATE_TEST_SUITE_P(Iss, FastOpenClient, ::testing::Range(0, 6));

TEST_P(FastOpenClient, AsksForACookieWithoutData) {  // RFC 7413 §4.1.1
  Peer p(ours(), theirs());
  EXPECT_EQ(begin(p, "hello", 0), 0u);
  Plan plan;
  ASSERT_TRUE(next_segment(p.t, p.now, plan));
  const auto o = wire::parse_tcp_options({plan.options, plan.options_length}, true);
  EXPECT_TRUE(o.has_fast_open);
  EXPECT_TRUE(o.fast_open.empty());
  EXPECT_EQ(plan.length, 0);
  p.out();
  EXPECT_TRUE(has(p.in(kSyn | kAck, 0, 1), Effects::kConnected));
  EXPECT_FALSE(info(p.t).syn_data);
}

TEST_P(FastOpenClient, DataGoesWithTheSynAndItsCookie) {
  Peer p(ours(), theirs());
  EXPECT_EQ(begin(p, "hello"), 5u);
  EXPECT_TRUE(is_opening(p.t));
  EXPECT_FALSE(can_send(p.t));
  Plan plan;
  ASSERT_TRUE(next_segment(p.t, p.now, plan));
  const auto o = wire::parse_tcp_options({plan.options, plan.options_length}, true);
  EXPECT_TRUE(std::ranges::equal(o.fast_open, kCookie));
  const auto syn = p.out();
  ASSERT_EQ(syn.size(), 1u);
  EXPECT_EQ(syn[0].flags, kSyn);
  EXPECT_EQ(syn[0].data, "hello");
  p.now = p.now + Duration::ms(30);
  EXPECT_TRUE(has(p.in(kSyn | kAck, 0, 6), Effects::kConnected));
  EXPECT_EQ(unacked_bytes(p.t), 0u);
  EXPECT_TRUE(info(p.t).syn_data);
  EXPECT_EQ(p.t.rtt.srtt.ms(), 30);
  EXPECT_EQ(info(p.t).total_retrans, 0u);
  const auto ack = p.out();
  ASSERT_EQ(ack.size(), 1u);
  EXPECT_TRUE(ack[0].is(kAck));
  EXPECT_EQ(ack[0].seq, 6u);
  p.write("more");
  const auto more = p.out();
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(more[0].seq, 6u);
  EXPECT_EQ(more[0].data, "more");
  p.in(kAck, 1, 10);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
}

TEST_P(FastOpenClient, WithoutACookieWhereTheProgramSaysSo) {  // tcp(7) TCP_FASTOPEN_NO_COOKIE
  Peer p(ours(), theirs());
  EXPECT_EQ(begin(p, "hello", 1460, true), 5u);
  const auto syn = p.out();
  ASSERT_EQ(syn.size(), 1u);
  EXPECT_FALSE(syn[0].options.has_fast_open);
  EXPECT_EQ(syn[0].data, "hello");
}

TEST_P(FastOpenClient, TheSynHoldsWhatOneSegmentDoes) {
  Peer p(ours(), theirs());
  p.config.timestamps = p.config.sack = p.config.window_scaling = true;
  const std::string all = text(5000);
  EXPECT_EQ(begin(p, all, 1000), 960u) << "by the peer's MSS, less the room for options";
  const auto syn = p.out();
  ASSERT_EQ(syn.size(), 1u);
  EXPECT_EQ(syn[0].data, all.substr(0, 960));
  Peer q(ours(), theirs());
  EXPECT_EQ(begin(q, all, 9000), 1420u) << "by the path";
}

TEST_P(FastOpenClient, DataThatWasNotTakenFollowsAtOnce) {  // RFC 7413 §4.2.1
  Peer p(ours(), theirs());
  open(p, "hello");
  p.now = p.now + Duration::ms(30);
  EXPECT_TRUE(has(p.in(kSyn | kAck, 0, 1), Effects::kConnected));
  EXPECT_FALSE(info(p.t).syn_data);
  EXPECT_EQ(p.t.rtt.srtt.ms(), 30);
  p.write(" world");
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].seq, 1u);
  EXPECT_EQ(o[0].ack, 1u);
  EXPECT_EQ(o[0].data, "hello world");
  EXPECT_EQ(info(p.t).total_retrans, 1u);
  p.in(kAck, 1, 12);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
}

TEST_P(FastOpenClient, OfDataThatWasTakenInPartTheRestFollows) {  // RFC 7413 §4.2.1
  Peer p(ours(), theirs());
  open(p, "hello");
  p.in(kSyn | kAck, 0, 4);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].seq, 4u);
  EXPECT_EQ(o[0].data, "lo");
  p.in(kAck, 1, 6);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
}

TEST_P(FastOpenClient, WhatFollowsIsCutForAPeerOfSmallSegments) {
  Peer p(ours(), theirs());
  const std::string all = text(1400);
  open(p, all);
  p.peer_mss = 600;
  p.in(kSyn | kAck, 0, 1);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 3u);
  EXPECT_EQ(o[0].data + o[1].data + o[2].data, all);
  EXPECT_EQ(o[0].data.size(), 600u);
}

TEST_P(FastOpenClient, WhatFollowsHeedsAShutWindow) {
  Peer p(ours(), theirs());
  open(p, "hello");
  p.window = 0;
  p.in(kSyn | kAck, 0, 1);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(o[0].data.empty());
  p.window = 1000;
  p.in(kAck, 1, 1);
  const auto again = p.out();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].data, "hello");
}

TEST_P(FastOpenClient, ARepeatedSynIsAPlainOne) {  // RFC 7413 §4.2.1
  Peer p(ours(), theirs());
  open(p, "hello");
  const auto again = p.after(Duration::ms(1000));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].flags, kSyn);
  EXPECT_TRUE(again[0].data.empty());
  EXPECT_FALSE(again[0].options.has_fast_open);
  p.in(kSyn | kAck, 0, 1);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u);
  EXPECT_EQ(o[0].data, "hello");
}

TEST_P(FastOpenClient, TheDataMayBeAcknowledgedAfterARepeatedSyn) {
  Peer p(ours(), theirs());
  open(p, "hello");
  p.after(Duration::ms(1000));
  p.in(kSyn | kAck, 0, 6);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
  EXPECT_TRUE(info(p.t).syn_data);
  EXPECT_FALSE(p.t.rtt.has_sample()) << "Karn";
}

TEST_P(FastOpenClient, TheSynAckMayHaveData) {  // RFC 7413 §4.2.1
  Peer p(ours(), theirs());
  open(p, "hello");
  EXPECT_TRUE(has(p.in(kSyn | kAck, 0, 6, "reply"), Effects::kReadable));
  EXPECT_EQ(p.read(), "reply");
  const auto o = p.out();
  ASSERT_GE(o.size(), 1u);
  EXPECT_EQ(o[0].ack, 6u);
}

TEST_P(FastOpenClient, RefusalAndSilenceEndIt) {
  Peer p(ours(), theirs());
  open(p, "hello");
  EXPECT_TRUE(has(p.in(kRst | kAck, 0, 6), Effects::kError));
  EXPECT_EQ(error(p.t), ECONNREFUSED);
  Peer q(ours(), theirs());
  open(q, "hello");
  q.after(Duration::s(200));
  EXPECT_EQ(error(q.t), ETIMEDOUT);
}

TEST_P(FastOpenClient, WhenOpensCrossTheDataWaits) {  // RFC 9293 §3.5
  Peer p(ours(), theirs());
  open(p, "hello");
  p.in(kSyn, 0, 0);
  const auto synack = p.out();
  ASSERT_EQ(synack.size(), 1u);
  EXPECT_EQ(synack[0].flags, kSyn | kAck);
  EXPECT_TRUE(synack[0].data.empty());
  p.in(kSyn | kAck, 0, 1);
  EXPECT_EQ(state(p.t), State::kEstablished);
  std::string got;
  for (const Out& o : p.out()) got += o.data;
  EXPECT_EQ(got, "hello");
  p.in(kAck, 1, 6);
  EXPECT_EQ(unacked_bytes(p.t), 0u);
}

TEST_P(FastOpenClient, ASynTooLargeForThePathIsRepeatedWithoutData) {  // RFC 1191
  Peer p(ours(), theirs());
  open(p, text(1400));
  EXPECT_TRUE(has(path_shrunk(p.t, 1000, p.now), Effects::kTransmit));
  const auto syn = p.out();
  ASSERT_EQ(syn.size(), 1u);
  EXPECT_EQ(syn[0].flags, kSyn);
  EXPECT_TRUE(syn[0].data.empty());
  p.in(kSyn | kAck, 0, 1);
  const auto o = p.out();
  ASSERT_EQ(o.size(), 1u) << "a SYN was repeated (RFC 5681 §3.1)";
  EXPECT_EQ(o[0].data.size(), 1000u);
}

TEST_P(FastOpenClient, APathThatShrinksBeforeTheSynLeavesKeepsTheDataForLater) {
  Peer p(ours(), theirs());
  const std::string data = text(1200);
  EXPECT_EQ(begin(p, data), data.size());
  set_mss(p.t, 1000);
  const auto syn = p.out();
  ASSERT_EQ(syn.size(), 1u);
  EXPECT_TRUE(syn[0].data.empty());
  p.in(kSyn | kAck, 0, 1);
  std::string sent;
  for (const Out& o : p.out()) {
    EXPECT_LE(o.data.size(), 1000u);
    sent += o.data;
  }
  EXPECT_EQ(sent, data);
}

TEST_P(FastOpenClient, TheSynMayWaitForTheData) {  // tcp(7) TCP_FASTOPEN_CONNECT
  Peer p(ours(), theirs());
  open_active(p.t, p.config, p.pool, p.iss, p.now);
  defer_syn(p.t);
  EXPECT_TRUE(is_syn_deferred(p.t));
  EXPECT_TRUE(p.after(Duration::s(300)).empty());
  const iovec v{const_cast<char*>("hello"), 5};
  EXPECT_EQ(begin_fast_open(p.t, {.cookie = kCookie, .peer_mss = 1460, .data = {&v, 1}}, p.now),
            5u);
  EXPECT_FALSE(is_syn_deferred(p.t));
  const auto syn = p.out();
  ASSERT_EQ(syn.size(), 1u);
  EXPECT_EQ(syn[0].data, "hello");
  EXPECT_FALSE(is_syn_deferred(p.t));
}

/// TCP_CORK between connect(2) and a SYN that waits, be it for data or for a neighbour's address.
TEST_P(FastOpenClient, ACorkMayComeBeforeTheSyn) {
  for (const bool is_deferred : {false, true}) {
    Peer p(ours(), theirs());
    open_active(p.t, p.config, p.pool, p.iss, p.now);
    if (is_deferred) defer_syn(p.t);
    set_cork(p.t, true, p.now);
    if (is_deferred) let_syn_go(p.t, p.now);
    ASSERT_EQ(p.out().size(), 1u);
    p.in(kSyn | kAck, 0, 1);
    p.out();
    p.write("held");
    EXPECT_TRUE(p.out().empty());
    set_cork(p.t, false, p.now);
    const auto o = p.out();
    ASSERT_EQ(o.size(), 1u);
    EXPECT_EQ(o[0].data, "held");
  }
}

/// TCP_FASTOPEN_KEY's bytes.
FastOpenKeys keys(std::vector<uint8_t> bytes) {
  return FastOpenKeys::from(std::as_bytes(std::span(bytes)));
}

constexpr std::array<uint8_t, 16> kKey{0xa1, 0xa1, 0xa1, 0xa1, 0xb2, 0xb2, 0xb2, 0xb2,
                                       0xc3, 0xc3, 0xc3, 0xc3, 0xd4, 0xd4, 0xd4, 0xd4};
constexpr std::array<uint8_t, 16> kNoughts{};

std::vector<uint8_t> both(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  std::vector<uint8_t> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

/// What Linux's own tests expect of net/ipv4/tcp_fastopen.c
/// (tools/testing/selftests/net/packetdrill: TFO_COOKIE, TFO_COOKIE_ZERO).
TEST(FastOpenCookie, IsLinuxs) {
  struct {
    const char* server;
    const char* client;
    FastOpenCookie cookie, of_noughts;
  } const all[] = {{"192.168.0.1",
                    "192.0.2.1",
                    {0x30, 0x21, 0xb9, 0xd8, 0x89, 0x01, 0x7e, 0xeb},
                    {0xb7, 0xc1, 0x23, 0x50, 0xa9, 0x0d, 0xc8, 0xf5}},
                   {"fd3d:0a0b:17d6::1",
                    "fd3d:fa7b:d17d::1",
                    {0xc1, 0xd1, 0xe9, 0x74, 0x2a, 0x47, 0xa9, 0xbc},
                    {0x82, 0xaf, 0x1a, 0x8f, 0x9a, 0x20, 0x5c, 0x34}}};
  for (const auto& a : all) {
    const IpAddr server = *IpAddr::parse(a.server), client = *IpAddr::parse(a.client);
    EXPECT_EQ(keys({kKey.begin(), kKey.end()}).cookie(server, client), a.cookie) << a.server;
    EXPECT_EQ(keys({kNoughts.begin(), kNoughts.end()}).cookie(server, client), a.of_noughts)
        << a.server;
  }
}

TEST(FastOpenCookie, IsTakenByItsKeyAndForItsAddressesAlone) {  // RFC 7413 §4.1.2
  const FastOpenKeys k = keys(both(kKey, kNoughts));
  const IpAddr server = *IpAddr::parse("10.0.0.1");
  const IpAddr client = *IpAddr::parse("11.0.0.7");
  const FastOpenCookie c = k.cookie(server, client);
  const FastOpenCookie old = fast_open_cookie(k.key[1], server, client);
  EXPECT_EQ(k.maker_of(c, server, client), 0u);
  EXPECT_EQ(k.maker_of(old, server, client), 1u);
  EXPECT_EQ(keys({kKey.begin(), kKey.end()}).maker_of(old, server, client), std::nullopt);
  EXPECT_EQ(k.maker_of(c, server, *IpAddr::parse("11.0.0.8")), std::nullopt);
  EXPECT_EQ(k.maker_of(c, *IpAddr::parse("10.0.0.2"), client), std::nullopt);
  EXPECT_EQ(k.maker_of({}, server, client), std::nullopt);
  EXPECT_EQ(k.maker_of(std::span(c).first(6), server, client), std::nullopt);
}

TEST(FastOpenCookie, AKeyIsOf16BytesOrTwiceThat) {  // tcp(7) TCP_FASTOPEN_KEY
  for (const size_t n : {0U, 4U, 15U, 17U, 31U, 33U})
    EXPECT_EQ(keys(std::vector<uint8_t>(n, 7)).count, 0) << n;
  EXPECT_EQ(keys(std::vector<uint8_t>(16, 7)).count, 1);
  EXPECT_EQ(keys(std::vector<uint8_t>(32, 7)).count, 2);
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
