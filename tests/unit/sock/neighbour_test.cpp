// Neighbours that are not known, or are known no more (arp(7)). The same on the kernel's sockets
// and on ours.
#include <net/if.h>
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class Neighbour : public BothSides {
 protected:
  void flush(Api& of) {
    of.host().enter();
    ASSERT_EQ(std::system("ip neigh flush dev eth0"), 0);
    std::this_thread::sleep_for(milliseconds(20));  // it is known
  }
  int receiver(sockaddr_storage& at) {
    const int r = b.socket(AF_INET, SOCK_DGRAM);
    EXPECT_EQ(b.bind(r, 0), 0);
    at = address(b.host(), port_of(b.getsockname(r)));
    return r;
  }
  void expect_prompt(steady_clock::time_point since, const char* what) {
    EXPECT_LT(steady_clock::now() - since, milliseconds(150)) << what;
  }
};
INSTANTIATE_TEST_SUITE_P(Sides, Neighbour, testing::Values(Side::kKernel, Side::kVireo),
                         [](const auto& i) {
                           return i.param == Side::kKernel ? "kernel" : "vireo";
                         });

TEST_P(Neighbour, ADatagramLeavesThoughItsSocketIsClosed) {
  sockaddr_storage at;
  const int r = receiver(at);
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  flush(a);
  EXPECT_EQ(a.sendto(s, "one", at), 3);
  EXPECT_EQ(a.sendto(s, "two", at), 3);
  EXPECT_EQ(a.close(s), 0);
  EXPECT_EQ(b.recv(r), "one");
  EXPECT_EQ(b.recv(r), "two");
  EXPECT_EQ(b.close(r), 0);
}

TEST_P(Neighbour, EachHasADatagramOfOneSocket) {
  a.host().enter();
  ASSERT_EQ(std::system("ip neigh del 10.77.0.60 dev eth0 2>/dev/null; true"), 0);
  sockaddr_storage at;
  const int r = receiver(at);
  sockaddr_storage nobody = at;
  reinterpret_cast<sockaddr_in&>(nobody).sin_addr.s_addr = htonl(0x0a4d003c);
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  flush(a);
  EXPECT_EQ(a.sendto(s, "here", at), 4);
  EXPECT_EQ(a.sendto(s, "lost", nobody), 4);
  EXPECT_EQ(a.sendto(s, "too", at), 3);
  EXPECT_EQ(b.recv(r), "here");
  EXPECT_EQ(b.recv(r), "too");
  EXPECT_EQ(a.close(s), 0);
  EXPECT_EQ(b.close(r), 0);
}

TEST_P(Neighbour, IsAskedForAtOnceWhenItIsKnownNoMore) {
  sockaddr_storage at;
  const int r = receiver(at);
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  const auto [c, d] = connection();
  for (int i = 0; i < 4; ++i) {
    flush(a);
    auto since = steady_clock::now();
    EXPECT_EQ(a.sendto(s, "datagram", at), 8);
    EXPECT_EQ(b.recv(r), "datagram");
    expect_prompt(since, "a datagram");
    flush(a);
    since = steady_clock::now();
    EXPECT_EQ(a.send(c, "bytes"), 5);
    EXPECT_EQ(b.recv(d), "bytes");
    expect_prompt(since, "bytes");
    flush(b);
    since = steady_clock::now();
    EXPECT_EQ(b.send(d, "back"), 4);
    EXPECT_EQ(a.recv(c), "back");
    expect_prompt(since, "bytes back");
  }
  if (ours()) {
    EXPECT_TRUE(a.is_carried(c) && a.is_carried(s));
    const int u = a.socket(AF_INET, SOCK_DGRAM);
    EXPECT_EQ(a.sendto(u, "known", at), 5);
    EXPECT_EQ(b.recv(r), "known");
    EXPECT_EQ(fd_table().find(u)->stats->tx_packets.get(), 1U) << "and it is carried again";
    EXPECT_EQ(a.close(u), 0);
  }
  for (const int fd : {s, c}) EXPECT_EQ(a.close(fd), 0);
  for (const int fd : {r, d}) EXPECT_EQ(b.close(fd), 0);
}

TEST_P(Neighbour, ThatDoesNotAnswerIsAnErrorOfConnectAlone) {
  const int u = a.socket(AF_INET, SOCK_DGRAM);
  const int c = a.socket(AF_INET, SOCK_STREAM);
  sockaddr_storage nobody = address(b.host(), 5000);
  reinterpret_cast<sockaddr_in&>(nobody).sin_addr.s_addr = htonl(0x0a4d003d);
  EXPECT_EQ(a.connect(u, sockaddr_of(nobody), length(nobody)), 0);
  EXPECT_EQ(a.send(u, "x"), 1);
  EXPECT_EQ(a.connect(c, sockaddr_of(nobody), length(nobody)), -EHOSTUNREACH);
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(a.ready(u), POLLOUT);
  EXPECT_EQ(a.send(u, "x"), 1);
  for (const int fd : {u, c}) EXPECT_EQ(a.close(fd), 0);
}

// A link-local address is one of its interface's (RFC 4007): in every name that a program is told.
TEST_P(Neighbour, OfALinkHasItsInterface) {
  for (Api* const side : {&a, &b}) {
    side->host().enter();
    for (int i = 0; i < 40; ++i) {  // duplicates of it are looked for (RFC 4862 5.4)
      if (std::system("ip -6 addr show dev eth0 scope link tentative | grep -q fe80") != 0) break;
      std::this_thread::sleep_for(milliseconds(100));
    }
  }
  std::this_thread::sleep_for(milliseconds(50));  // it is known
  const int l = b.socket(AF_INET6, SOCK_STREAM);
  ASSERT_EQ(b.bind6(l, 0), 0);
  ASSERT_EQ(b.listen(l), 0);
  b.host().enter();
  const uint32_t link = if_nametoindex("eth0");
  FILE* const p = popen("ip -6 -o addr show dev eth0 scope link", "r");
  char text[256] = {}, ll[64] = {};
  ASSERT_NE(fgets(text, sizeof text, p), nullptr);
  pclose(p);
  ASSERT_EQ(sscanf(text, "%*s %*s %*s %63[^/]", ll), 1) << text;
  sockaddr_storage to = address6(b.host(), port_of(b.getsockname(l)));
  auto& in = reinterpret_cast<sockaddr_in6&>(to);
  in.sin6_addr = IpAddr::parse(ll)->as_in6();
  a.host().enter();
  in.sin6_scope_id = if_nametoindex("eth0");
  const int c = a.socket(AF_INET6, SOCK_STREAM);
  ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
  EXPECT_EQ(a.is_carried(c), ours());
  const auto scope = [](const sockaddr_storage& sa) {
    return reinterpret_cast<const sockaddr_in6&>(sa).sin6_scope_id;
  };
  sockaddr_storage who{}, peer{};
  const int s = b.accept(l, 0, &who);
  ASSERT_GE(s, 0);
  EXPECT_EQ(b.is_carried(s), ours());
  EXPECT_EQ(scope(who), link);
  EXPECT_EQ(b.getpeername(s, peer), 0);
  EXPECT_EQ(scope(peer), link);
  EXPECT_EQ(scope(b.getsockname(s)), link);
  EXPECT_EQ(scope(a.getsockname(c)), in.sin6_scope_id);
  EXPECT_EQ(a.getpeername(c, peer), 0);
  EXPECT_EQ(scope(peer), in.sin6_scope_id);
  EXPECT_EQ(b.send(s, "to the link"), 11);
  EXPECT_EQ(a.recv(c), "to the link");
  EXPECT_EQ(a.close(c), 0);
  for (const int fd : {l, s}) EXPECT_EQ(b.close(fd), 0);
}

}  // namespace
}  // namespace vireo::test
