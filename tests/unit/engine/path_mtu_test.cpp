// Path MTU discovery through the engine, in virtual time: RFC 1191, RFC 8201, and what RFC 5927
// lets a stranger do, which is little.
#include <gtest/gtest.h>

#include <netinet/in.h>

#include "core/checksum.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

void put16(std::vector<std::byte>& v, size_t at, uint32_t n) {
  v[at] = static_cast<std::byte>(n >> 8);
  v[at + 1] = static_cast<std::byte>(n);
}

std::string text(size_t n) { return std::string(n, 'x'); }

/// "Too big" from the router, quoting a packet of ours from `local` to `remote` with `seq`.
std::vector<std::byte> too_big(const Endpoint& local, const Endpoint& remote, IpProto proto,
                               Seq32 seq, uint32_t mtu) {
  const bool v6 = !local.addr.is_v4();
  const Endpoint router{ip(v6 ? "fd00::254" : "10.0.0.254"), 1, 0};
  // The outer headers are those of any segment from the router; what follows is replaced.
  auto outer = tcp_frame(router, local, kAck, Seq32(), Seq32());
  auto quote = tcp_frame(local, remote, kAck, seq, Seq32());
  const size_t l3 = 14, header = v6 ? 40 : 20;
  quote[l3 + (v6 ? 6 : 9)] = static_cast<std::byte>(proto);
  std::vector<std::byte> f(outer.begin(), outer.begin() + static_cast<long>(l3 + header));
  f.resize(l3 + header + 8);
  f.insert(f.end(), quote.begin() + l3, quote.begin() + static_cast<long>(l3 + header + 8));
  const size_t icmp = l3 + header, bytes = f.size() - icmp;
  if (v6) {
    f[l3 + 6] = std::byte{58};
    put16(f, l3 + 4, static_cast<uint32_t>(bytes));
    f[icmp] = std::byte{2};
    put16(f, icmp + 4, mtu >> 16);
    put16(f, icmp + 6, mtu);
  } else {
    f[l3 + 9] = std::byte{1};
    put16(f, l3 + 2, static_cast<uint32_t>(header + bytes));
    put16(f, l3 + 10, 0);
    const auto sum = checksum::fold(checksum::sum(f.data() + l3, header));
    const auto field = static_cast<uint16_t>(~sum);
    std::memcpy(f.data() + l3 + 10, &field, 2);
    f[icmp] = std::byte{3};
    f[icmp + 1] = std::byte{4};
    put16(f, icmp + 6, mtu);
  }
  uint64_t sum = checksum::sum(f.data() + icmp, bytes);
  if (v6) {
    std::vector<std::byte> pseudo(40);
    std::memcpy(pseudo.data(), f.data() + l3 + 8, 32);
    put16(pseudo, 34, static_cast<uint32_t>(bytes));
    pseudo[39] = std::byte{58};
    sum = checksum::combine(checksum::fold(checksum::sum(pseudo.data(), 40)), checksum::fold(sum),
                            false);
  }
  const auto field = static_cast<uint16_t>(~checksum::fold(sum));
  std::memcpy(f.data() + icmp + 2, &field, 2);
  return f;
}

/// A host that has sent ten full segments to a peer.
struct Sending {
  explicit Sending(const char* remote = "11.0.0.7", IpSettings settings = {})
      : v6(ip(remote).is_v4() == false),
        l(h.listen(80, 16, {}, v6, {.ip = settings})),
        p(h, remote, 4000, 80) {
    EXPECT_TRUE(p.connect());
    c = h.accept(l);
    EXPECT_NE(c, nullptr);
    h.write(*c, text(size_t{10} * mss()));
    heard = p.hear_all();
    EXPECT_EQ(heard.size(), 10u);
  }
  uint32_t mss() { return tcp::effective_mss(c->tcb()); }
  void report(uint32_t mtu, Seq32 quoted) {
    h.inject(too_big(p.there, p.here, IpProto::kTcp, quoted, mtu));
  }
  /// Acknowledges all there is.
  std::vector<Heard> take_all() {
    std::vector<Heard> all;
    for (int i = 0; i < 20; ++i) {
      for (Heard& s : p.hear_all()) {
        const Seq32 end = s.seq + static_cast<uint32_t>(s.data.size());
        if (p.ack.before(end)) p.ack = end;
        all.push_back(std::move(s));
      }
      p.say(kAck);
    }
    return all;
  }
  bool v6;
  Host h;
  Listening& l;
  Peer p;
  Conn* c = nullptr;
  std::vector<Heard> heard;
};

TEST(PathMtu, WhatIsInFlightIsCutAndSentAgainAtOnce) {  // case 24
  Sending s;
  EXPECT_EQ(s.mss(), 1448u);
  const uint32_t cwnd = s.c->tcb().cc.cwnd, ssthresh = s.c->tcb().cc.ssthresh;
  s.report(1000, s.heard[0].seq);
  const auto again = s.p.hear_all();
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again[0].seq, s.heard[0].seq);
  for (const Heard& x : again) EXPECT_LE(x.data.size(), 948u);
  EXPECT_EQ(s.c->tcb().cc.cwnd, cwnd);
  EXPECT_EQ(s.c->tcb().cc.ssthresh, ssthresh);
  // The routers' other nine reports say nothing new.
  for (size_t i = 1; i < 10; ++i) s.report(1000, s.heard[i].seq);
  EXPECT_TRUE(s.p.hear_all().empty());
  for (const Heard& x : again) {
    const Seq32 end = x.seq + static_cast<uint32_t>(x.data.size());
    if (s.p.ack.before(end)) s.p.ack = end;
  }
  s.p.say(kAck);
  s.take_all();
  EXPECT_EQ(s.c->tcb().outstanding(), 0u);
  EXPECT_GE(s.c->tcb().cc.cwnd, cwnd);
}

TEST(PathMtu, OnlyASegmentInFlightIsBelieved) {  // RFC 5927 §4.1, §7.2
  Sending s;
  s.report(1000, s.heard[0].seq - 1);
  s.report(1000, s.heard[9].seq + 1448);
  s.report(1000, s.heard[0].seq + 0x40000000);
  EXPECT_EQ(s.mss(), 1448u);
  EXPECT_TRUE(s.p.hear_all().empty());
  s.report(1600, s.heard[0].seq);  // larger than the link: nothing
  EXPECT_EQ(s.mss(), 1448u);
}

TEST(Attack, Row20_ForgedPacketTooBig) {  // RFC 5927 §7.2, RFC 1191 §3
  Sending four;
  four.report(68, four.heard[0].seq);
  EXPECT_EQ(four.mss(), 552u - 40 - 12);
  Sending six("fd00:1::7");
  six.report(600, six.heard[0].seq);
  EXPECT_EQ(six.mss(), 1280u - 60 - 12);
}

TEST(PathMtu, IsOfTheDestinationAndForgottenAfterTenMinutes) {  // RFC 1191 §6.3
  Sending s;
  s.report(1000, s.heard[0].seq);
  s.take_all();
  Peer other(s.h, "11.0.0.7", 4001, 80);
  ASSERT_TRUE(other.connect());
  Conn* second = s.h.accept(s.l);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(tcp::effective_mss(second->tcb()), 948u);
  Peer elsewhere(s.h, "11.0.0.8", 4001, 80);
  ASSERT_TRUE(elsewhere.connect());
  EXPECT_EQ(tcp::effective_mss(s.h.accept(s.l)->tcb()), 1448u);
  s.h.pass(Duration::s(599));
  s.h.write(*s.c, text(3000));
  for (const Heard& x : s.take_all()) EXPECT_LE(x.data.size(), 948u);
  s.h.pass(Duration::s(2));
  s.h.write(*s.c, text(3000));
  EXPECT_EQ(s.mss(), 1448u);
  s.take_all();  // cut before the way was looked up again
  s.h.write(*s.c, text(3000));
  EXPECT_EQ(s.take_all()[0].data.size(), 1448u);
}

TEST(PathMtu, InterfaceModeHearsNothing) {  // ip(7) IP_PMTUDISC_INTERFACE
  Sending s("11.0.0.7", {.mtu_discover = IP_PMTUDISC_INTERFACE});
  s.report(1000, s.heard[0].seq);
  EXPECT_EQ(s.mss(), 1448u);
}

TEST(PathMtu, MaxsegStaysTheLimit) {  // tcp(7) TCP_MAXSEG
  Sending s;
  s.c->flow->mss_limit = 900;
  s.report(1000, s.heard[0].seq);
  EXPECT_EQ(s.mss(), 888u);
}

TEST(PathMtu, DatagramsTooAndOnlyWhereOneWasSent) {
  Host h;
  SocketStats stats;
  int owner = 0;
  Engine& e = h.engine();
  const Endpoint here{h.address(), 5000, 0}, there{ip("11.0.0.9"), 7, 0};
  auto u = e.udp().open(here, {}, false, &owner, stats);
  ASSERT_TRUE(u);
  const auto route =
      e.next_hops().route({.dst = there.addr, .src = here.addr, .proto = IpProto::kUdp});
  ASSERT_TRUE(route);
  std::string data(1400, 'u');
  const iovec v{data.data(), data.size()};
  const iovec less{data.data(), 972};
  ASSERT_TRUE(e.udp().send(**u, *route, here, there, {{&v, 1}}, Doorbell::kNow, h.now()));
  h.inject(too_big(here, {ip("11.0.0.10"), 7, 0}, IpProto::kUdp, Seq32(), 1000));  // never sent to
  EXPECT_TRUE(e.udp().send_cached(**u, there, {{&v, 1}}, Doorbell::kNow, h.now()));
  h.inject(too_big(here, there, IpProto::kUdp, Seq32(), 1000));
  const auto refused = e.udp().send_cached(**u, there, {{&v, 1}}, Doorbell::kNow, h.now());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EMSGSIZE);
  EXPECT_TRUE(e.udp().send_cached(**u, there, {{&less, 1}}, Doorbell::kNow, h.now()));
  h.pass(Duration::s(601));
  EXPECT_TRUE(e.udp().send_cached(**u, there, {{&v, 1}}, Doorbell::kNow, h.now()));
}

}  // namespace
}  // namespace vireo::test
