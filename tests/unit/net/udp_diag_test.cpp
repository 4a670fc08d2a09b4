// Which UDP sockets the kernel says that it has at a port.
#include "stack/net/udp_diag.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>

#include "core/fd.h"
#include "tests/unit/net/lab.h"

namespace vireo::net {
namespace {

constexpr uint16_t kPort = 4711;

UniqueFd bound(const Endpoint& to, int family, bool v6only = false) {
  UniqueFd fd(socket(family, SOCK_DGRAM, 0));
  const int on = 1, only = v6only ? 1 : 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  sockaddr_storage a{};
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&a), to.to_sockaddr(a, family)), 0);
  return fd;
}

/// The one that is `fd`.
DiagSocket told(const UniqueFd& fd) {
  uint64_t cookie = 0;
  socklen_t n = sizeof cookie;
  EXPECT_EQ(getsockopt(fd.get(), SOL_SOCKET, SO_COOKIE, &cookie, &n), 0);
  const auto all = udp_sockets(kPort);
  EXPECT_TRUE(all) << (all ? "" : all.error().where);
  const auto it = std::ranges::find(*all, cookie, &DiagSocket::cookie);
  EXPECT_NE(it, all->end());
  return it != all->end() ? *it : DiagSocket{};
}

TEST(UdpDiag, ToldIsWhatASocketIsBoundTo) {
  REQUIRE_ROOT();
  Lab lab;
  lab.run([] {
    ASSERT_TRUE(shell("ip link set lo up"));
    const auto loopback = [](const char* a) { return *IpAddr::parse(a); };
    EXPECT_TRUE(udp_sockets(kPort)->empty());
    const UniqueFd any4 = bound({IpAddr::any_v4(), kPort, 0}, AF_INET);
    EXPECT_EQ(told(any4).local, IpAddr::any_v4());
    EXPECT_FALSE(told(any4).v6);
    const UniqueFd both = bound({IpAddr(), kPort, 0}, AF_INET6);
    EXPECT_EQ(told(both).local, IpAddr());
    EXPECT_TRUE(told(both).v6);
    EXPECT_FALSE(told(both).v6only);
    const UniqueFd only6 = bound({IpAddr(), kPort, 0}, AF_INET6, true);
    EXPECT_TRUE(told(only6).v6only);
    const UniqueFd mapped = bound({loopback("127.0.0.1"), kPort, 0}, AF_INET6);
    EXPECT_EQ(told(mapped).local, loopback("127.0.0.1"));
    const UniqueFd one = bound({loopback("::1"), kPort, 0}, AF_INET6);
    EXPECT_EQ(told(one).remote_port, 0);
    sockaddr_storage peer{};
    const socklen_t n = Endpoint{loopback("::1"), 99, 0}.to_sockaddr(peer, AF_INET6);
    ASSERT_EQ(connect(one.get(), reinterpret_cast<sockaddr*>(&peer), n), 0);
    EXPECT_EQ(told(one).remote, loopback("::1"));
    EXPECT_EQ(told(one).remote_port, 99);
    ASSERT_EQ(setsockopt(any4.get(), SOL_SOCKET, SO_BINDTODEVICE, "lo", 2), 0);
    EXPECT_EQ(told(any4).device, IfIndex(1));
    EXPECT_EQ(udp_sockets(kPort)->size(), 5U);
    const UniqueFd elsewhere = bound({IpAddr::any_v4(), kPort + 1, 0}, AF_INET);
    EXPECT_EQ(udp_sockets(kPort)->size(), 5U);
  });
}

}  // namespace
}  // namespace vireo::net
