// UDP sockets, the same script on the kernel's and on ours.
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

class Udp : public BothSides {
 protected:
  /// A bound socket of host b, and its address.
  std::pair<int, sockaddr_storage> receiver() {
    const int r = b.socket(AF_INET, SOCK_DGRAM);
    EXPECT_EQ(b.bind(r, 0), 0);
    EXPECT_EQ(b.is_carried(r), ours());
    return {r, address(b.host(), port_of(b.getsockname(r)))};
  }
};
INSTANTIATE_TEST_SUITE_P(Sides, Udp, testing::Values(Side::kKernel, Side::kVireo),
                         [](const auto& i) {
                           return i.param == Side::kKernel ? "kernel" : "vireo";
                         });

// ip(7) IP_MULTICAST_IF: by the address of an interface, which is the source then, or by index. The
// routes know no way to the group.
TEST_P(Udp, MulticastGoesByTheInterfaceThatWasNamed) {
  auto [r, to] = receiver();
  const in_addr group{htonl(0xef010203)};
  const ip_mreq join{group, b.host().address()};
  ASSERT_EQ(b.setsockopt(r, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join), 0);
  reinterpret_cast<sockaddr_in&>(to).sin_addr = group;
  a.host().enter();
  const ip_mreqn by_index{{}, {}, static_cast<int>(if_nametoindex("eth0"))};
  const in_addr by_address = a.host().address();
  const std::pair<const void*, socklen_t> ways[] = {{&by_index, sizeof by_index},
                                                    {&by_address, sizeof by_address}};
  for (const auto& [value, bytes] : ways) {
    const int s = a.socket(AF_INET, SOCK_DGRAM);
    ASSERT_EQ(a.setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, value, bytes), 0);
    ASSERT_EQ(a.sendto(s, "to all", to), 6);
    ASSERT_TRUE(b.await(r, POLLIN));
    char got[16];
    sockaddr_storage from{};
    iovec v{got, sizeof got};
    msghdr m{};
    m.msg_name = &from;
    m.msg_namelen = sizeof from;
    m.msg_iov = &v;
    m.msg_iovlen = 1;
    ASSERT_EQ(b.recvmsg(r, m, 0), 6);
    EXPECT_EQ(reinterpret_cast<sockaddr_in&>(from).sin_addr.s_addr, by_address.s_addr);
    if (ours()) {
      const SocketStats& stats = *fd_table().find(s)->stats;
      EXPECT_EQ(stats.tx_packets.get(), 1U) << bytes;
      EXPECT_EQ(stats.os_tx_packets.get(), 0U) << bytes;
    }
    EXPECT_EQ(a.close(s), 0);
  }
  EXPECT_EQ(b.close(r), 0);
}

// ip(7) IP_DROP_MEMBERSHIP: of several memberships of a group the one by that interface ends. By
// its index, its address, or none at all, which is the route's.
TEST_P(Udp, AMembershipEndsByItself) {
  auto [r, to] = receiver();
  const in_addr group{htonl(0xef010204)};
  reinterpret_cast<sockaddr_in&>(to).sin_addr = group;
  b.host().enter();
  const ip_mreqn by_eth0{group, {}, static_cast<int>(if_nametoindex("eth0"))};
  const ip_mreqn by_lo{group, {}, static_cast<int>(if_nametoindex("lo"))};
  const ip_mreq with_eth0{group, b.host().address()};
  const ip_mreq with_lo{group, {htonl(INADDR_LOOPBACK)}};
  const auto set = [&](int name, const auto& how) {
    return b.setsockopt(r, IPPROTO_IP, name, &how, sizeof how);
  };
  a.host().enter();
  const ip_mreqn out{{}, {}, static_cast<int>(if_nametoindex("eth0"))};
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  ASSERT_EQ(a.setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof out), 0);
  const auto expect_heard = [&](const char* when) {
    ASSERT_EQ(a.sendto(s, "to all", to), 6);
    ASSERT_TRUE(b.await(r, POLLIN)) << when;
    EXPECT_EQ(b.recv(r, 16, MSG_DONTWAIT), "to all") << when;
  };
  ASSERT_EQ(set(IP_ADD_MEMBERSHIP, by_eth0), 0);
  ASSERT_EQ(set(IP_ADD_MEMBERSHIP, by_lo), 0);
  expect_heard("joined by both");
  EXPECT_EQ(set(IP_DROP_MEMBERSHIP, by_lo), 0);
  EXPECT_EQ(set(IP_DROP_MEMBERSHIP, by_lo), -EADDRNOTAVAIL);
  expect_heard("left by the other's index");
  ASSERT_EQ(set(IP_ADD_MEMBERSHIP, with_lo), 0);
  EXPECT_EQ(set(IP_DROP_MEMBERSHIP, with_lo), 0);
  expect_heard("left by the other's address");
  ASSERT_EQ(set(IP_ADD_MEMBERSHIP, by_lo), 0);
  EXPECT_EQ(set(IP_DROP_MEMBERSHIP, with_eth0), 0);
  ASSERT_EQ(set(IP_ADD_MEMBERSHIP, with_eth0), 0);
  EXPECT_EQ(set(IP_DROP_MEMBERSHIP, by_lo), 0);
  expect_heard("joined again");
  if (ours()) {
    EXPECT_EQ(fd_table().find(r)->stats->rx_packets.get(), 4U);
  }
  EXPECT_EQ(set(IP_DROP_MEMBERSHIP, by_eth0), 0);
  a.close(s);
  b.close(r);
}

// ipv6(7) IPV6_DROP_MEMBERSHIP: of no interface is what was joined last.
TEST_P(Udp, OfIpv6TheLastMembershipEnds) {
  const int r = b.socket(AF_INET6, SOCK_DGRAM);
  ASSERT_EQ(b.bind6(r, 0), 0);
  b.host().enter();
  ipv6_mreq by_eth0{}, by_lo{}, by_any{};
  ASSERT_EQ(::inet_pton(AF_INET6, "ff15::1:2:3", &by_any.ipv6mr_multiaddr), 1);
  by_eth0.ipv6mr_multiaddr = by_lo.ipv6mr_multiaddr = by_any.ipv6mr_multiaddr;
  by_eth0.ipv6mr_interface = if_nametoindex("eth0");
  by_lo.ipv6mr_interface = if_nametoindex("lo");
  const auto set = [&](int name, const ipv6_mreq& how) {
    return b.setsockopt(r, IPPROTO_IPV6, name, &how, sizeof how);
  };
  a.host().enter();
  const int out = static_cast<int>(if_nametoindex("eth0"));
  const int s = a.socket(AF_INET6, SOCK_DGRAM);
  ASSERT_EQ(a.setsockopt(s, IPPROTO_IPV6, IPV6_MULTICAST_IF, &out, sizeof out), 0);
  sockaddr_storage to = address6(b.host(), port_of(b.getsockname(r)));
  reinterpret_cast<sockaddr_in6&>(to).sin6_addr = by_any.ipv6mr_multiaddr;
  ASSERT_EQ(set(IPV6_ADD_MEMBERSHIP, by_eth0), 0);
  ASSERT_EQ(set(IPV6_ADD_MEMBERSHIP, by_lo), 0);
  EXPECT_EQ(set(IPV6_DROP_MEMBERSHIP, by_any), 0);
  ASSERT_EQ(a.sendto(s, "to all", to), 6);
  ASSERT_TRUE(b.await(r, POLLIN));
  EXPECT_EQ(b.recv(r, 16, MSG_DONTWAIT), "to all");
  EXPECT_EQ(set(IPV6_DROP_MEMBERSHIP, by_lo), -EADDRNOTAVAIL);
  EXPECT_EQ(set(IPV6_DROP_MEMBERSHIP, by_eth0), 0);
  a.close(s);
  b.close(r);
}

// socket(7) SO_REUSEPORT: many clients spread over the sockets of one port, each to one.
TEST_P(Udp, ReusePortSpreadsPeers) {
  constexpr int kSockets = 4, kPeers = 100;
  int r[kSockets];
  uint16_t port = 0;
  for (int& fd : r) {
    fd = b.socket(AF_INET, SOCK_DGRAM);
    ASSERT_EQ(b.setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, 1), 0);
    ASSERT_EQ(b.bind(fd, port), 0);
    port = port_of(b.getsockname(fd));
    ASSERT_EQ(b.is_carried(fd), ours());
  }
  const auto to = address(b.host(), port);
  for (int i = 0; i < kPeers; ++i) {
    const int s = a.socket(AF_INET, SOCK_DGRAM);
    EXPECT_EQ(a.sendto(s, "x", to), 1);
    EXPECT_EQ(a.sendto(s, "x", to), 1);
    a.close(s);
  }
  ::usleep(20'000);
  int all = 0;
  for (const int fd : r) {
    int mine = 0;
    while (b.recv(fd, 16, MSG_DONTWAIT) == "x") ++mine;
    EXPECT_GT(mine, kPeers / 8);
    EXPECT_EQ(mine % 2, 0) << "both of a peer's go to the same socket";
    all += mine;
    b.close(fd);
  }
  EXPECT_EQ(all, 2 * kPeers);
}

struct Received {
  std::string bytes;
  sockaddr_storage from{};
  int flags = 0;
  std::vector<std::byte> control;
};

Received receive(Api& api, int fd, size_t room, int flags = 0, size_t control = 0) {
  Received r;
  r.bytes.resize(room);
  r.control.resize(control);
  iovec v{r.bytes.data(), room};
  msghdr m{};
  m.msg_name = &r.from;
  m.msg_namelen = sizeof r.from;
  m.msg_iov = &v;
  m.msg_iovlen = 1;
  m.msg_control = control != 0 ? r.control.data() : nullptr;
  m.msg_controllen = control;
  const ssize_t n = api.recvmsg(fd, m, flags);
  if (n < 0) {
    r.bytes = std::string("!") + strerrorname_np(static_cast<int>(-n));
    return r;
  }
  r.bytes.resize(std::min(static_cast<size_t>(n), room));
  r.flags = m.msg_flags;
  r.control.resize(m.msg_controllen);
  return r;
}

TEST_P(Udp, UnconnectedBothWays) {
  const auto [r, to] = receiver();
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  EXPECT_EQ(a.sendto(s, "hello", to), 5);
  EXPECT_EQ(a.is_carried(s), ours());
  const Received got = receive(b, r, 100);
  EXPECT_EQ(got.bytes, "hello");
  EXPECT_EQ(port_of(got.from), port_of(a.getsockname(s)));
  EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(got.from).sin_addr.s_addr,
            a.host().address().s_addr);
  EXPECT_EQ(b.sendto(r, "back", got.from), 4);
  EXPECT_EQ(a.recv(s), "back");
  a.close(s);
  b.close(r);
}

TEST_P(Udp, ConnectedFiltersAndNames) {
  const auto [r, to] = receiver();
  const auto [other, other_at] = receiver();
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  EXPECT_EQ(a.send(s, "x"), -EDESTADDRREQ);
  EXPECT_EQ(a.connect(s, sockaddr_of(to), length(to)), 0);
  EXPECT_EQ(a.send(s, "one"), 3);
  const Received got = receive(b, r, 100);
  EXPECT_EQ(got.bytes, "one");
  EXPECT_EQ(b.sendto(other, "stranger", got.from), 8);
  EXPECT_EQ(b.sendto(r, "friend", got.from), 6);
  EXPECT_EQ(a.recv(s), "friend");
  sockaddr_storage peer{};
  EXPECT_EQ(a.getpeername(s, peer), 0);
  EXPECT_EQ(port_of(peer), port_of(to));
  a.close(s);
  b.close(r);
  b.close(other);
}

TEST_P(Udp, TruncatesAndPeeks) {
  const auto [r, to] = receiver();
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  a.sendto(s, "0123456789", to);
  ASSERT_TRUE(b.await(r, POLLIN));
  EXPECT_EQ(b.ioctl(r, FIONREAD), 10);
  EXPECT_EQ(receive(b, r, 4, MSG_PEEK).bytes, "0123");
  char few[4];
  EXPECT_EQ(b.recv(r, few, 4, MSG_PEEK | MSG_TRUNC), 10);
  const Received cut = receive(b, r, 4);
  EXPECT_EQ(cut.bytes, "0123");
  EXPECT_EQ(cut.flags & MSG_TRUNC, MSG_TRUNC);
  EXPECT_EQ(b.recv(r, 4, MSG_DONTWAIT), "!EAGAIN");
  a.close(s);
  b.close(r);
}

// Each goes where it is sent, whatever way the one before it took.
TEST_P(Udp, PeersInTurn) {
  const auto [one, to_one] = receiver();
  const auto [two, to_two] = receiver();
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(a.sendto(s, "1", to_one), 1);
    EXPECT_EQ(a.sendto(s, "1", to_one), 1);
    EXPECT_EQ(a.sendto(s, "2", to_two), 1);
  }
  EXPECT_EQ(a.connect(s, sockaddr_of(to_two), length(to_two)), 0);
  EXPECT_EQ(a.sendto(s, "1", to_one), 1);
  EXPECT_EQ(a.sendto(s, "1", to_one), 1);
  EXPECT_EQ(a.send(s, "2"), 1);
  EXPECT_EQ(a.send(s, "2"), 1);
  EXPECT_EQ(a.is_carried(s), ours());
  for (int i = 0; i < 8; ++i) EXPECT_EQ(b.recv(one), "1");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(b.recv(two), "2");
  EXPECT_EQ(b.recv(one, 16, MSG_DONTWAIT), "!EAGAIN");
  EXPECT_EQ(b.recv(two, 16, MSG_DONTWAIT), "!EAGAIN");
  for (const int fd : {one, two}) b.close(fd);
  a.close(s);
}

// What a peer's datagram found is found anew once the port is another socket's, or hears another.
TEST_P(Udp, APeersNextDatagramGoesToWhoHasThePortNow) {
  const auto [first, to] = receiver();
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(a.sendto(s, "1", to), 1);
  const Received got = receive(b, first, 100);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(b.recv(first), "1");
  b.close(first);
  const int second = b.socket(AF_INET, SOCK_DGRAM);
  ASSERT_EQ(b.bind(second, port_of(to)), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(a.sendto(s, "2", to), 1);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(b.recv(second), "2");
  const int stranger = a.socket(AF_INET, SOCK_DGRAM);
  ASSERT_EQ(a.bind(stranger, 0), 0);
  const auto from = address(a.host(), port_of(a.getsockname(stranger)));
  ASSERT_EQ(b.connect(second, sockaddr_of(from), length(from)), 0);
  EXPECT_EQ(a.sendto(s, "not heard", to), 9);
  EXPECT_EQ(a.sendto(stranger, "3", to), 1);
  EXPECT_EQ(b.recv(second), "3");
  ASSERT_EQ(b.connect(second, sockaddr_of(got.from), length(got.from)), 0);
  EXPECT_EQ(a.sendto(s, "4", to), 1);
  EXPECT_EQ(b.recv(second), "4");
  EXPECT_EQ(b.is_carried(second), ours());
  for (const int fd : {s, stranger}) a.close(fd);
  b.close(second);
}

// A server that answers each peer by a socket of its own (iperf3): the socket that has heard a peer
// is connected to it, another takes the port, and each hears its own, also once the first is gone.
TEST_P(Udp, WhoHasHeardAPeerBecomesItsOwn) {
  const auto reusing = [&](uint16_t port) {
    const int fd = b.socket(AF_INET, SOCK_DGRAM);
    EXPECT_EQ(b.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, 1), 0);
    EXPECT_EQ(b.bind(fd, port), 0);
    return fd;
  };
  const int first = reusing(0);
  const auto to = address(b.host(), port_of(b.getsockname(first)));
  const int peer = a.socket(AF_INET, SOCK_DGRAM);
  const int stranger = a.socket(AF_INET, SOCK_DGRAM);
  EXPECT_EQ(a.sendto(peer, "hello", to), 5);
  const Received got = receive(b, first, 100);
  EXPECT_EQ(got.bytes, "hello");
  ASSERT_EQ(b.connect(first, sockaddr_of(got.from), length(got.from)), 0);
  EXPECT_EQ(a.sendto(stranger, "for nobody", to), 10);
  EXPECT_EQ(a.sendto(peer, "1", to), 1);
  EXPECT_EQ(b.recv(first), "1");

  const int second = reusing(port_of(to));
  EXPECT_EQ(a.sendto(stranger, "2", to), 1);
  EXPECT_EQ(b.recv(second), "2");
  EXPECT_EQ(a.sendto(peer, "3", to), 1);
  EXPECT_EQ(b.recv(first), "3");
  EXPECT_EQ(b.recv(first, 16, MSG_DONTWAIT), "!EAGAIN");

  b.close(first);
  EXPECT_EQ(a.sendto(peer, "4", to), 1);
  EXPECT_EQ(b.recv(second), "4");
  EXPECT_EQ(b.is_carried(second), ours());
  for (const int fd : {peer, stranger}) a.close(fd);
  b.close(second);
}

// Of sockets that are bound alike, by SO_REUSEADDR, the one that was bound last hears; one with a
// peer hears that, whatever its age, and one of IPv4 comes before one of both families.
TEST_P(Udp, WhoWasBoundLastHears) {
  const auto bound = [&](int domain, uint16_t port) {
    const int fd = b.socket(domain, SOCK_DGRAM);
    EXPECT_EQ(b.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, 1), 0);
    EXPECT_EQ(domain == AF_INET ? b.bind(fd, port, false) : b.bind6(fd, port), 0);
    EXPECT_EQ(b.is_carried(fd), ours());
    return fd;
  };
  const int first = bound(AF_INET, 0);
  const uint16_t port = port_of(b.getsockname(first));
  const auto to = address(b.host(), port);
  const int second = bound(AF_INET, port);
  const int third = bound(AF_INET, port);
  const int peer = a.socket(AF_INET, SOCK_DGRAM);
  ASSERT_EQ(a.bind(peer, 0, false), 0);
  const auto from = address(a.host(), port_of(a.getsockname(peer)));
  EXPECT_EQ(a.sendto(peer, "3", to), 1);
  EXPECT_EQ(b.recv(third), "3");
  ASSERT_EQ(b.connect(first, sockaddr_of(from), length(from)), 0);
  EXPECT_EQ(a.sendto(peer, "1", to), 1);
  EXPECT_EQ(b.recv(first), "1");
  b.close(first);
  EXPECT_EQ(a.sendto(peer, "3", to), 1);
  EXPECT_EQ(b.recv(third), "3");
  b.close(third);
  EXPECT_EQ(a.sendto(peer, "2", to), 1);
  EXPECT_EQ(b.recv(second), "2");
  b.close(second);

  const auto any = [&](uint16_t at) {
    const int fd = b.socket(AF_INET, SOCK_DGRAM);
    EXPECT_EQ(b.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, 1), 0);
    EXPECT_EQ(b.bind(fd, at), 0);
    return fd;
  };
  const int of_four = any(0);
  const uint16_t shared = port_of(b.getsockname(of_four));
  const int of_both = bound(AF_INET6, shared);
  EXPECT_EQ(a.sendto(peer, "4", address(b.host(), shared)), 1);
  EXPECT_EQ(b.recv(of_four), "4");
  EXPECT_EQ(b.recv(of_both, 16, MSG_DONTWAIT), "!EAGAIN");
  b.close(of_four);
  EXPECT_EQ(a.sendto(peer, "6", address(b.host(), shared)), 1);
  EXPECT_EQ(b.recv(of_both), "6");
  b.close(of_both);
  a.close(peer);
}

// ipv6(7) IPV6_V6ONLY: it neither hears IPv4 nor sends to it; nor does one with an IPv6 address
// send.
TEST_P(Udp, AnIpv6SocketMayBarIpv4) {
  const auto [r, to] = receiver();
  auto mapped = address6(b.host(), port_of(to));
  auto& in6 = reinterpret_cast<sockaddr_in6&>(mapped).sin6_addr;
  ASSERT_EQ(inet_pton(AF_INET6, "::ffff:10.77.0.2", &in6), 1);
  const int s = a.socket(AF_INET6, SOCK_DGRAM);
  ASSERT_EQ(a.setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, 1), 0);
  const int peer6 = b.socket(AF_INET6, SOCK_DGRAM);
  ASSERT_EQ(b.bind6(peer6, 0), 0);
  for (int i = 0; i < 2; ++i) {  // new, and after it has sent
    EXPECT_EQ(a.sendto(s, "x", mapped), -ENETUNREACH);
    EXPECT_EQ(a.sendto(s, "six", address6(b.host(), port_of(b.getsockname(peer6)))), 3);
    EXPECT_EQ(b.recv(peer6), "six");
  }
  EXPECT_EQ(a.is_carried(s), ours());
  EXPECT_EQ(a.connect(s, sockaddr_of(mapped), length(mapped)), -ENETUNREACH);
  EXPECT_EQ(b.recv(r, 16, MSG_DONTWAIT), "!EAGAIN");
  for (const int fd : {r, peer6}) b.close(fd);
  a.close(s);
}

// An option that changes the header holds from the next datagram on.
TEST_P(Udp, OptionsBetweenDatagrams) {
  const auto [r, to] = receiver();
  ASSERT_EQ(b.setsockopt(r, IPPROTO_IP, IP_RECVTTL, 1), 0);
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  for (const int ttl : {9, 9, 33}) {
    ASSERT_EQ(a.setsockopt(s, IPPROTO_IP, IP_TTL, ttl), 0);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(a.sendto(s, "x", to), 1);
      const Received got = receive(b, r, 16, 0, CMSG_SPACE(sizeof(int)));
      ASSERT_EQ(got.control.size(), CMSG_SPACE(sizeof(int)));
      int seen = 0;
      std::memcpy(&seen, got.control.data() + CMSG_LEN(0), sizeof seen);
      EXPECT_EQ(seen, ttl);
    }
  }
  a.close(s);
  b.close(r);
}

// shutdown(2): without a peer it says ENOTCONN, and holds. Nobody is sent SIGPIPE.
TEST_P(Udp, ShutHoldsFromTheNextDatagramOn) {
  const auto [r, to] = receiver();
  for (const bool connected : {false, true})
    for (const int before : {0, 2}) {
      const int s = a.socket(AF_INET, SOCK_DGRAM);
      if (connected) {
        EXPECT_EQ(a.connect(s, sockaddr_of(to), length(to)), 0);
      }
      for (int i = 0; i < before; ++i) EXPECT_EQ(a.sendto(s, "x", to), 1);
      EXPECT_EQ(a.shutdown(s, SHUT_WR), connected ? 0 : -ENOTCONN);
      EXPECT_EQ(a.sendto(s, "x", to), -EPIPE);
      EXPECT_EQ(a.shutdown(s, SHUT_RD), connected ? 0 : -ENOTCONN);
      EXPECT_EQ(a.recv(s, 1, MSG_DONTWAIT), "!EAGAIN");
      EXPECT_EQ(a.recv(s, 1), "");
      EXPECT_EQ(a.is_carried(s), ours());
      a.close(s);
    }
  b.close(r);
}

// put_cmsg(): whoever asked for more and gave no room for it is told.
TEST_P(Udp, NoRoomForControl) {
  const auto [r, to] = receiver();
  ASSERT_EQ(b.setsockopt(r, IPPROTO_IP, IP_RECVTTL, 1), 0);
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  EXPECT_EQ(a.sendto(s, "x", to), 1);
  const Received got = receive(b, r, 16);
  EXPECT_EQ(got.bytes, "x");
  EXPECT_EQ(got.flags & MSG_CTRUNC, MSG_CTRUNC);
  a.close(s);
  b.close(r);
}

TEST_P(Udp, EmptyDatagram) {
  const auto [r, to] = receiver();
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  EXPECT_EQ(a.sendto(s, "", to), 0);
  EXPECT_EQ(a.sendto(s, "next", to), 4);
  EXPECT_EQ(b.recv(r), "");
  EXPECT_EQ(b.recv(r), "next");
  a.close(s);
  b.close(r);
}

TEST_P(Udp, LargerThanTheMtuGoesByTheKernel) {
  const auto [r, to] = receiver();
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  const std::string big(9000, 'b');
  EXPECT_EQ(a.sendto(s, big, to), 9000);
  EXPECT_EQ(b.recv(r), big);
  EXPECT_EQ(a.sendto(s, std::string(65'508, 'x'), to), -EMSGSIZE);
  a.close(s);
  b.close(r);
}

// IPV6_MTU: what is longer is cut, over IPv6.
TEST_P(Udp, IsCutToIpv6Mtu) {
  const int r = b.socket(AF_INET6, SOCK_DGRAM);
  ASSERT_EQ(b.bind6(r, 0), 0);
  const auto to = address6(b.host(), port_of(b.getsockname(r)));
  const int s = a.socket(AF_INET6, SOCK_DGRAM);
  EXPECT_EQ(a.setsockopt(s, IPPROTO_IPV6, IPV6_MTU, 1279), -EINVAL);
  EXPECT_EQ(a.setsockopt(s, IPPROTO_IPV6, IPV6_MTU, 1280), 0);
  EXPECT_EQ(a.getsockopt(s, IPPROTO_IPV6, IPV6_MTU), -ENOTCONN);
  const auto sent = [&](size_t bytes, bool whole) {
    const std::string text(bytes, 'x');
    const auto by_us = [&] { return ours() ? fd_table().find(s)->stats->tx_packets.get() : 0; };
    const uint64_t before = by_us();
    ASSERT_EQ(a.sendto(s, text, to), static_cast<ssize_t>(bytes));
    EXPECT_EQ(by_us() - before, ours() && whole ? 1U : 0U) << bytes;
    EXPECT_EQ(b.recv(r), text);
  };
  sent(1232, true);
  sent(1233, false);
  EXPECT_EQ(a.is_carried(s), ours());
  ASSERT_EQ(a.connect(s, sockaddr_of(to), length(to)), 0);
  EXPECT_EQ(a.is_carried(s), ours());
  sent(1232, true);
  sent(1400, false);
  EXPECT_EQ(a.getsockopt(s, IPPROTO_IPV6, IPV6_MTU), 1500) << "the path's";
  EXPECT_EQ(a.setsockopt(s, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO), 0);
  EXPECT_EQ(a.sendto(s, std::string(1233, 'x'), to), -EMSGSIZE);
  sent(1232, true);
  EXPECT_EQ(a.setsockopt(s, IPPROTO_IPV6, IPV6_MTU, 0), 0);
  sent(1452, true);
  a.close(s);
  // To IPv4 it does not matter.
  const int mapped = a.socket(AF_INET6, SOCK_DGRAM);
  EXPECT_EQ(a.setsockopt(mapped, IPPROTO_IPV6, IPV6_MTU, 1280), 0);
  sockaddr_storage to4 = to;
  auto& in6 = reinterpret_cast<sockaddr_in6&>(to4).sin6_addr;
  const in_addr in4 = b.host().address();
  in6 = in6addr_any;
  in6.s6_addr[10] = in6.s6_addr[11] = 0xff;
  std::memcpy(&in6.s6_addr[12], &in4, sizeof in4);
  EXPECT_EQ(a.sendto(mapped, std::string(1472, 'x'), to4), 1472);
  if (ours()) {
    EXPECT_EQ(fd_table().find(mapped)->stats->tx_packets.get(), 1U);
  }
  EXPECT_EQ(b.recv(r).size(), 1472U);
  a.close(mapped);
  b.close(r);
}

// Who waits for datagrams without a port has none for that; another thread's send gives it one.
TEST_P(Udp, AReceiverWithoutAPortWaits) {
  const auto [r, to] = receiver();
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  const timeval soon{0, 30'000};
  EXPECT_EQ(a.setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon), 0);
  EXPECT_EQ(a.recv(s, 16), "!EAGAIN");
  EXPECT_EQ(port_of(a.getsockname(s)), 0);
  const timeval later{5, 0};
  EXPECT_EQ(a.setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &later, sizeof later), 0);
  for (const bool by_send : {true, false}) {
    const int u = by_send ? s : a.socket(AF_INET, SOCK_DGRAM);
    std::string got;
    std::thread reader([&] {
      a.host().enter();
      got = a.recv(u, 16);
    });
    ::usleep(30'000);
    EXPECT_EQ(port_of(a.getsockname(u)), 0);
    if (by_send) {
      EXPECT_EQ(a.sendto(u, "ask", to), 3);
      const Received asked = receive(b, r, 16);
      EXPECT_EQ(asked.bytes, "ask");
      EXPECT_EQ(b.sendto(r, "answer", asked.from), 6);
    } else {
      EXPECT_EQ(a.bind(u, 0, false), 0);
      EXPECT_EQ(b.sendto(r, "answer", address(a.host(), port_of(a.getsockname(u)))), 6);
    }
    reader.join();
    EXPECT_EQ(got, "answer");
    EXPECT_EQ(a.is_carried(u), ours());
    if (!by_send) a.close(u);
  }
  a.close(s);
  // Shut, it waits for nothing.
  const int shut = a.socket(AF_INET, SOCK_DGRAM);
  EXPECT_EQ(a.shutdown(shut, SHUT_RD), -ENOTCONN);
  EXPECT_EQ(a.recv(shut, 16), "");
  a.close(shut);
  b.close(r);
}

TEST_P(Udp, LoopbackGoesByTheKernel) {
  const auto [r, at] = receiver();
  sockaddr_storage self = at;
  reinterpret_cast<sockaddr_in&>(self).sin_addr.s_addr = __builtin_bswap32(INADDR_LOOPBACK);
  const int s = b.socket(AF_INET, SOCK_DGRAM);
  EXPECT_EQ(b.sendto(s, "self", self), 4);
  EXPECT_EQ(b.recv(r), "self");
  EXPECT_FALSE(b.is_carried(s));
  b.close(s);
  b.close(r);
}

TEST_P(Udp, PacketInfoAndTtl) {
  const auto [r, to] = receiver();
  EXPECT_EQ(b.setsockopt(r, IPPROTO_IP, IP_PKTINFO, 1), 0);
  EXPECT_EQ(b.setsockopt(r, IPPROTO_IP, IP_RECVTTL, 1), 0);
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  EXPECT_EQ(a.setsockopt(s, IPPROTO_IP, IP_TTL, 7), 0);
  a.sendto(s, "x", to);
  Received got = receive(b, r, 10, 0, 256);
  ASSERT_EQ(got.bytes, "x");
  msghdr m{};
  m.msg_control = got.control.data();
  m.msg_controllen = got.control.size();
  int ttl = 0;
  in_pktinfo info{};
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_type == IP_TTL) memcpy(&ttl, CMSG_DATA(c), sizeof ttl);
    if (c->cmsg_type == IP_PKTINFO) memcpy(&info, CMSG_DATA(c), sizeof info);
  }
  EXPECT_EQ(ttl, 7);
  EXPECT_EQ(info.ipi_addr.s_addr, b.host().address().s_addr);
  EXPECT_EQ(info.ipi_spec_dst.s_addr, b.host().address().s_addr);
  EXPECT_GT(info.ipi_ifindex, 0);
  a.close(s);
  b.close(r);
}

TEST_P(Udp, WorksOverIpv6) {
  const int r = b.socket(AF_INET6, SOCK_DGRAM);
  ASSERT_EQ(b.bind6(r, 0), 0);
  const auto to = address6(b.host(), port_of(b.getsockname(r)));
  const int s = a.socket(AF_INET6, SOCK_DGRAM);
  EXPECT_EQ(a.sendto(s, "six", to), 3);
  const Received got = receive(b, r, 10);
  EXPECT_EQ(got.bytes, "six");
  EXPECT_EQ(got.from.ss_family, AF_INET6);
  // IPv4 comes to the same socket, its address mapped.
  const int s4 = a.socket(AF_INET, SOCK_DGRAM);
  EXPECT_EQ(a.sendto(s4, "four", address(b.host(), port_of(to))), 4);
  const Received mapped = receive(b, r, 10);
  EXPECT_EQ(mapped.bytes, "four");
  EXPECT_EQ(mapped.from.ss_family, AF_INET6);
  EXPECT_TRUE(IN6_IS_ADDR_V4MAPPED(&reinterpret_cast<const sockaddr_in6&>(mapped.from).sin6_addr));
  a.close(s);
  a.close(s4);
  b.close(r);
}

// recvfrom(2): the address is cut to the room there is, its length is told whole, and what lies
// beyond is left alone.
TEST_P(Udp, SourceAddressByteForByte) {
  const int r4 = b.socket(AF_INET, SOCK_DGRAM);
  const int r6 = b.socket(AF_INET6, SOCK_DGRAM);
  ASSERT_EQ(b.bind(r4, 0), 0);
  ASSERT_EQ(b.bind6(r6, 0), 0);
  EXPECT_EQ(b.is_carried(r4) && b.is_carried(r6), ours());
  const int s4 = a.socket(AF_INET, SOCK_DGRAM);
  const int s6 = a.socket(AF_INET6, SOCK_DGRAM);
  ASSERT_EQ(a.bind(s4, 0, false), 0);
  ASSERT_EQ(a.bind6(s6, 0), 0);
  const uint16_t port4 = port_of(b.getsockname(r4)), port6 = port_of(b.getsockname(r6));
  const auto from4 = address(a.host(), port_of(a.getsockname(s4)));
  const auto from6 = address6(a.host(), port_of(a.getsockname(s6)));
  sockaddr_storage mapped{};
  auto& in6 = reinterpret_cast<sockaddr_in6&>(mapped);
  in6.sin6_family = AF_INET6;
  in6.sin6_port = reinterpret_cast<const sockaddr_in&>(from4).sin_port;
  in6.sin6_addr.s6_addr[10] = in6.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(&in6.sin6_addr.s6_addr[12], &reinterpret_cast<const sockaddr_in&>(from4).sin_addr, 4);
  const struct {
    int from, at;
    sockaddr_storage to, expected;
  } cases[] = {{s4, r4, address(b.host(), port4), from4},
               {s4, r6, address(b.host(), port6), mapped},
               {s6, r6, address6(b.host(), port6), from6}};
  for (const auto& c : cases)
    for (const socklen_t room : {0U, 1U, 2U, 7U, 8U, 15U, 16U, 17U, 24U, 27U, 28U, 29U, 128U}) {
      ASSERT_EQ(a.sendto(c.from, "x", c.to), 1);
      ASSERT_TRUE(b.await(c.at, POLLIN));
      sockaddr_storage got, left;
      std::memset(&got, 0xa5, sizeof got);
      left = got;
      char byte;
      iovec v{&byte, 1};
      msghdr m{};
      m.msg_name = &got;
      m.msg_namelen = room;
      m.msg_iov = &v;
      m.msg_iovlen = 1;
      ASSERT_EQ(b.recvmsg(c.at, m, 0), 1);
      EXPECT_EQ(m.msg_namelen, length(c.expected));
      std::memcpy(&left, &c.expected, std::min(room, length(c.expected)));
      EXPECT_EQ(std::memcmp(&got, &left, sizeof got), 0) << room;
    }
  for (const int fd : {s4, s6}) a.close(fd);
  for (const int fd : {r4, r6}) b.close(fd);
}

TEST_P(Udp, ErrnoOfMalformedCalls) {
  const auto [r, to] = receiver();
  const int s = a.socket(AF_INET, SOCK_DGRAM);
  sockaddr_storage zero = to;
  reinterpret_cast<sockaddr_in&>(zero).sin_port = 0;
  EXPECT_EQ(a.sendto(s, "x", zero), -EINVAL);
  sockaddr_storage six = address6(b.host(), 1);
  EXPECT_EQ(a.sendto(s, "x", six), -EAFNOSUPPORT);
  EXPECT_EQ(a.listen(s), -EOPNOTSUPP);
  EXPECT_EQ(a.accept(s), -EOPNOTSUPP);
  EXPECT_EQ(a.shutdown(s, SHUT_WR), -ENOTCONN);
  sockaddr_storage peer{};
  EXPECT_EQ(a.getpeername(s, peer), -ENOTCONN);
  EXPECT_EQ(a.recv(s, 10, MSG_DONTWAIT), "!EAGAIN");
  a.close(s);
  b.close(r);
}

TEST_P(Udp, KernelOptionTakesItBack) {
  const auto [r, to] = receiver();
  EXPECT_EQ(b.setsockopt(r, IPPROTO_IP, IP_RECVERR, 1), 0);
  EXPECT_FALSE(b.is_carried(r));
  b.close(r);
}

}  // namespace
}  // namespace vireo::test
