// Fast Open at a listener: cookies, and connections that are open by their SYN (RFC 7413 §4.1,
// §5.1). And of connections of our own: whose SYN has data (§4.1.3, §4.2.1).
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

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

/// TCP_FASTOPEN_KEY of so many keys, told apart by their first byte.
tcp::FastOpenKeys keys(std::initializer_list<uint8_t> firsts) {
  std::vector<std::byte> bytes;
  for (const uint8_t b : firsts) {
    bytes.push_back(std::byte{b});
    bytes.resize(bytes.size() + 15);
  }
  return tcp::FastOpenKeys::from(bytes);
}

/// Linux's tcp_try_fastopen(): while a key is being changed for another on all servers of an
/// address, cookies of both open connections, and who has an old one gets a new one with the
/// SYN-ACK.
TEST(FastOpen, TheBackupKeysCookieOpensAndIsRenewed) {
  for (const char* client : {"11.0.0.7", "fd01::7"}) {
    Host h;
    const bool v6 = std::string(client).contains(':');
    Listening& l = h.listen(80, 16, {}, v6, {.fast_open = 4, .fast_open_keys = keys({2, 1})});
    Peer p(h, client, 4000, 80);
    const auto cookie_of_key = [&](uint8_t first) {
      const auto c = keys({first}).cookie(p.there.addr, p.here.addr);
      return std::vector<uint8_t>(c.begin(), c.end());
    };
    EXPECT_EQ(ask(h, client), cookie_of_key(2));
    p.more_options = option(cookie_of_key(1));
    p.syn("hello");
    const auto answer = p.hear();
    ASSERT_TRUE(answer && answer->is(kSyn | kAck));
    EXPECT_EQ(answer->ack, p.iss + 6);
    EXPECT_EQ(cookie_of(*answer), cookie_of_key(2));
    Conn* c = h.accept(l);
    ASSERT_NE(c, nullptr);
    EXPECT_EQ(h.read(*c), "hello");
    EXPECT_FALSE(p.hear()) << "one SYN-ACK";
    h.pass(Duration::ms(1100));
    const auto again = p.hear();
    ASSERT_TRUE(again && again->is(kSyn | kAck));
    EXPECT_TRUE(cookie_of(*again).empty()) << "as Linux, the first alone has it";
    Peer q(h, client, 4001, 80);
    q.more_options = option(cookie_of_key(3));
    q.syn("hello");
    const auto refused = q.hear();
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->ack, q.iss + 1);
    EXPECT_EQ(cookie_of(*refused), cookie_of_key(2));
    EXPECT_EQ(h.stats().fast_opens.get(), 1u);
    EXPECT_EQ(h.stats().fast_opens_old_key.get(), 1u);
    EXPECT_EQ(h.stats().fast_opens_refused.get(), 1u);
  }
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

/// A server out there, and connections of the host to it.
class FastConnects {
 public:
  explicit FastConnects(Host& h) : h_(h) {}

  /// The next connection. What of `data` went with the SYN is in `taken`.
  TcpFlow& open(const std::string& data, const FastConnect& wish = {.data_follows = true}) {
    server.emplace(h_, "11.0.0.7", uint16_t{80}, ++port_);
    Engine& e = h_.engine();
    const auto route = e.next_hops().route({.dst = server->here.addr, .src = {}});
    VIREO_ASSERT(route.has_value());
    tcp::Config c;
    c.mss = 65'495;
    const auto f = e.tcp().connect(*route, server->there, server->here, c, {}, &owner_,
                                   owner_.stats, h_.now(), &wish);
    VIREO_ASSERT(f.has_value());
    owner_.flow = *f;
    taken = 0;
    const iovec v{const_cast<char*>(data.data()), data.size()};
    if (tcp::is_syn_deferred((*f)->tcb)) taken = e.tcp().send_syn(**f, wish, {&v, 1}, h_.now());
    h_.settle();
    return **f;
  }
  /// Its answer to `syn`.
  void answer(const Heard& syn, const std::vector<uint8_t>& cookie, uint32_t of_data) {
    server->more_options = cookie.empty() ? std::vector<uint8_t>() : option(cookie);
    server->ts_val = 77;
    server->ts_ecr = syn.options.ts_val;
    auto o = server->syn_options();
    server->say(kSyn | kAck, server->iss, syn.seq + 1 + of_data, {.options = o});
  }
  /// Asks for a cookie and gets it.
  void learn(const std::vector<uint8_t>& cookie) {
    TcpFlow& f = open("hello");
    EXPECT_EQ(taken, 0u);
    const auto syn = server->hear();
    ASSERT_TRUE(syn && syn->is(kSyn));
    EXPECT_TRUE(syn->options.has_fast_open);
    EXPECT_TRUE(cookie_of(*syn).empty());
    EXPECT_EQ(syn->data, "");
    answer(*syn, cookie, 0);
    close(f);
  }
  void close(TcpFlow& f) {
    h_.engine().tcp().close(f, UniqueFd(), true, h_.now());
    h_.settle();
    h_.forget_heard();
  }

  std::optional<Peer> server;
  size_t taken = 0;

 private:
  Host& h_;
  Conn owner_;
  uint16_t port_ = 5000;
};

const std::vector<uint8_t> kCookie{1, 2, 3, 4, 5, 6, 7, 8};

TEST(FastConnect, ACookieIsAskedForOnceAndShownThen) {  // RFC 7413 §4.1.3
  Host h;
  FastConnects c(h);
  c.learn(kCookie);
  TcpFlow& f = c.open("hello");
  EXPECT_EQ(c.taken, 5u);
  const auto syn = c.server->hear();
  ASSERT_TRUE(syn && syn->is(kSyn));
  EXPECT_EQ(syn->data, "hello");
  EXPECT_EQ(cookie_of(*syn), kCookie);
  c.answer(*syn, {}, 5);
  EXPECT_EQ(tcp::state(f.tcb), tcp::State::kEstablished);
  EXPECT_TRUE(tcp::info(f.tcb).syn_data);
  c.close(f);
  c.open("again");
  EXPECT_EQ(c.taken, 5u);
}

TEST(FastConnect, TheLastSynAckBoundsTheNextData) {  // RFC 7413 §4.1.3: the MSS is cached, too
  Host h;
  FastConnects c(h);
  c.learn(kCookie);
  const std::string long_data(2000, 'x');
  TcpFlow& f = c.open(long_data);
  const size_t first = c.taken;
  const auto syn = c.server->hear();
  ASSERT_TRUE(syn && syn->is(kSyn));
  c.server->mss = 940;
  c.answer(*syn, {}, static_cast<uint32_t>(first));  // no cookie comes again
  c.close(f);
  c.open(long_data);
  EXPECT_EQ(first - c.taken, 1460u - 940u);
}

TEST(FastConnect, TheSynWaitsOnlyIfItMayHaveData) {  // tcp(7) TCP_FASTOPEN_CONNECT
  Host h;
  FastConnects c(h);
  TcpFlow& asks = c.open("hello", {});
  EXPECT_EQ(tcp::state(asks.tcb), tcp::State::kSynSent);
  const auto syn = c.server->hear();
  ASSERT_TRUE(syn);
  EXPECT_TRUE(syn->options.has_fast_open);
  c.answer(*syn, kCookie, 0);
  c.close(asks);
  c.open("hello", {});
  EXPECT_EQ(c.taken, 5u);
}

TEST(FastConnect, WithoutCookiesNothingIsAsked) {  // TCP_FASTOPEN_NO_COOKIE
  Host h;
  FastConnects c(h);
  c.open("hello", {.without_cookie = true});
  EXPECT_EQ(c.taken, 5u);
  const auto syn = c.server->hear();
  ASSERT_TRUE(syn);
  EXPECT_FALSE(syn->options.has_fast_open);
  EXPECT_EQ(syn->data, "hello");
}

TEST(FastConnect, ASynThatWasLostWithItsDataEndsIt) {  // RFC 7413 §4.1.3.1
  Host h;
  FastConnects c(h);
  c.learn(kCookie);
  TcpFlow& f = c.open("hello");
  ASSERT_TRUE(c.server->hear());
  h.pass(Duration::ms(1100));
  const auto again = c.server->hear();
  ASSERT_TRUE(again && again->is(kSyn));
  EXPECT_EQ(again->data, "");
  EXPECT_FALSE(again->options.has_fast_open);
  c.answer(*again, {}, 0);
  const auto data = c.server->hear();
  ASSERT_TRUE(data);
  EXPECT_EQ(data->data, "hello");
  c.close(f);
  c.open("hello");
  EXPECT_EQ(c.taken, 0u) << "the cookie was forgotten";
}

TEST(FastConnect, SilencePausesItForAll) {  // net.ipv4.tcp_fastopen_blackhole_timeout_sec
  Host h;
  FastConnects c(h);
  c.learn(kCookie);
  const FastConnect wish{.data_follows = true, .pause = Duration::s(100)};
  TcpFlow& f = c.open("hello", wish);
  EXPECT_EQ(c.taken, 5u);
  h.pass(Duration::s(8));  // three timeouts: after 1, 3 and 7 s
  c.close(f);
  TcpFlow& plain = c.open("hello", wish);
  EXPECT_EQ(c.taken, 0u);
  const auto syn = c.server->hear();
  ASSERT_TRUE(syn);
  EXPECT_FALSE(syn->options.has_fast_open);
  c.close(plain);
  h.pass(Duration::s(100));
  TcpFlow& on = c.open("hello", wish);
  EXPECT_EQ(c.taken, 5u);
  c.close(on);
  c.open("hello", {.data_follows = true});
  EXPECT_EQ(c.taken, 5u) << "zero, the default: never";
}

TEST(FastOpenClient, TheNewestStay) {
  FastOpenClient all(FlowHashKey{});
  const IpAddr us = ip("10.0.0.1");
  const auto server = [](unsigned i) {
    return ip(("11.0." + std::to_string(i / 250) + "." + std::to_string(1 + i % 250)).c_str());
  };
  for (unsigned i = 0; i < 2000; ++i) all.learn(us, server(i), kCookie, 1460);
  unsigned known = 0;
  for (unsigned i = 0; i < 2000; ++i) known += all.find(us, server(i)) != nullptr ? 1 : 0;
  EXPECT_EQ(known, FastOpenClient::kCapacity);
  ASSERT_NE(all.find(us, server(1999)), nullptr);
  EXPECT_EQ(all.find(ip("10.0.0.2"), server(1999)), nullptr);
  all.forget(us, server(1999));
  EXPECT_EQ(all.find(us, server(1999)), nullptr);
}

}  // namespace
}  // namespace vireo::test
