// Fast Open at a listener: cookies, and connections that are open by their SYN (RFC 7413 §4.1,
// §5.1).
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

std::vector<uint8_t> cookie_of(const Heard& synack) {
  const auto o = wire::parse_tcp_options(synack.raw_options, true);
  return {o.fast_open.begin(), o.fast_open.end()};
}

std::vector<uint8_t> option(const std::vector<uint8_t>& cookie) {
  std::vector<uint8_t> o(cookie.size() + 4, 1);  // padded by NOPs
  o[0] = 34;
  o[1] = static_cast<uint8_t>(2 + cookie.size());
  std::copy(cookie.begin(), cookie.end(), o.begin() + 2);
  return o;
}

/// The cookie that the host gives to `address`.
std::vector<uint8_t> ask(Host& h, const char* address, uint16_t port = 3999) {
  Peer p(h, address, port, 80);
  p.more_options = option({});
  p.syn();
  const auto answer = p.hear();
  if (!answer) return {};
  EXPECT_EQ(answer->ack, p.iss + 1);
  return cookie_of(*answer);
}

TEST(FastOpen, TheCookieOfOneConnectionOpensTheNext) {
  Host h;
  Listening& l = h.listen(80, 16, {}, false, {.fast_open = 4});
  const auto cookie = ask(h, "11.0.0.7");
  ASSERT_EQ(cookie.size(), 8u);
  EXPECT_EQ(l.told, 0u);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.more_options = option(cookie);
  p.syn("hello");
  const auto answer = p.hear();
  ASSERT_TRUE(answer && answer->is(kSyn | kAck));
  EXPECT_EQ(answer->ack, p.iss + 6);
  EXPECT_TRUE(cookie_of(*answer).empty());
  EXPECT_EQ(l.told, 1u);
  Conn* c = h.accept(l);
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->state(), tcp::State::kSynReceived);
  EXPECT_EQ(h.read(*c), "hello");
  EXPECT_EQ(h.write(*c, "reply"), 5u);
  const auto reply = p.hear();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->data, "reply");
  EXPECT_EQ(reply->seq, answer->seq + 1);
  p.irs = answer->seq;
  p.ack = p.irs + 6;
  p.nxt = p.iss + 6;
  p.say(kAck);
  EXPECT_EQ(c->state(), tcp::State::kEstablished);
  p.say(kAck | kPsh, "more");
  EXPECT_EQ(h.read(*c), "more");
}

TEST(FastOpen, AForeignCookieFallsBackAndIsReplaced) {
  Host h;
  Listening& l = h.listen(80, 16, {}, false, {.fast_open = 4});
  const auto cookie = ask(h, "11.0.0.7");
  Peer p(h, "11.0.0.8", 4000, 80);
  p.more_options = option(cookie);
  p.syn("hello");
  const auto answer = p.hear();
  ASSERT_TRUE(answer && answer->is(kSyn | kAck));
  EXPECT_EQ(answer->ack, p.iss + 1) << "the data is left";
  EXPECT_EQ(cookie_of(*answer), ask(h, "11.0.0.8"));
  EXPECT_EQ(h.accept(l), nullptr);
}

TEST(FastOpen, IsNotDoneUnasked) {
  Host h;
  Listening& l = h.listen(80);
  EXPECT_TRUE(ask(h, "11.0.0.7").empty());
  EXPECT_EQ(h.accept(l), nullptr);
}

TEST(FastOpen, WithoutCookiesWhereTheOperatorSaysSo) {  // net.ipv4.tcp_fastopen, bit 0x200
  Host h;
  Listening& l = h.listen(80, 16, {}, false, {.fast_open = 4, .fast_open_without_cookie = true});
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn("hello");
  const auto answer = p.hear();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->ack, p.iss + 6);
  EXPECT_NE(h.accept(l), nullptr);
}

TEST(FastOpen, OnlySoManyAtOnce) {  // RFC 7413 §5.1
  Host h;
  h.listen(80, 16, {}, false, {.fast_open = 2});
  const auto cookie = ask(h, "11.0.0.7");
  const auto opens = [&](Peer& p) {
    p.more_options = option(cookie);
    p.syn("hello");
    const auto answer = p.hear();
    if (!answer) return false;
    p.irs = answer->seq;
    p.ack = p.irs + 1;
    p.nxt = answer->ack;
    return answer->ack == p.iss + 6;
  };
  Peer a(h, "11.0.0.7", 4000, 80), b(h, "11.0.0.7", 4001, 80), c(h, "11.0.0.7", 4002, 80),
      d(h, "11.0.0.7", 4003, 80);
  EXPECT_TRUE(opens(a));
  EXPECT_TRUE(opens(b));
  EXPECT_FALSE(opens(c));
  a.say(kAck);  // its handshake is over
  EXPECT_TRUE(opens(d));
}

TEST(FastOpen, AClosedListenerResetsThem) {
  Host h;
  Listening& l = h.listen(80, 16, {}, false, {.fast_open = 4});
  const auto cookie = ask(h, "11.0.0.7");
  Peer p(h, "11.0.0.7", 4000, 80);
  p.more_options = option(cookie);
  p.syn("hello");
  ASSERT_TRUE(p.hear());
  h.close(l);
  const auto reset = p.hear();
  ASSERT_TRUE(reset);
  EXPECT_TRUE(has(reset->flags, kRst));
  EXPECT_EQ(h.engine().live_flows(), 0u);
}

}  // namespace
}  // namespace vireo::test
