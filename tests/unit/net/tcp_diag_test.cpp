// Which connections the kernel says that it has at a port.
#include "stack/net/tcp_diag.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <vector>

#include "core/fd.h"
#include "tests/unit/net/lab.h"

namespace vireo::net {
namespace {

uint16_t port_of(int fd) {
  sockaddr_in6 a{};
  socklen_t n = sizeof a;
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&a), &n), 0);
  return ntohs(a.sin6_port);
}

/// Those of `port`, by their remote ends.
std::vector<IpAddr> seen(uint16_t port) {
  std::vector<IpAddr> all;
  const auto r = any_tcp(port, [&](const IpAddr&, const IpAddr& remote) {
    all.push_back(remote);
    return false;
  });
  EXPECT_TRUE(r && !*r) << (r ? "" : r.error().where);
  return all;
}

TEST(TcpDiag, ToldAreConnectionsOfThePortAndNoListener) {
  REQUIRE_ROOT();
  Lab lab;
  lab.run([] {
    ASSERT_TRUE(shell("ip link set lo up"));
    for (const bool v6 : {false, true}) {
      const int family = v6 ? AF_INET6 : AF_INET;
      sockaddr_in6 a6{};
      a6.sin6_family = AF_INET6;
      a6.sin6_addr = in6addr_loopback;
      sockaddr_in a4{};
      a4.sin_family = AF_INET;
      a4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      const auto* name = v6 ? reinterpret_cast<sockaddr*>(&a6) : reinterpret_cast<sockaddr*>(&a4);
      const socklen_t bytes = v6 ? sizeof a6 : sizeof a4;
      const UniqueFd listener(socket(family, SOCK_STREAM, 0));
      ASSERT_EQ(bind(listener.get(), name, bytes), 0);
      ASSERT_EQ(listen(listener.get(), 4), 0);
      const uint16_t port = port_of(listener.get());
      EXPECT_TRUE(seen(port).empty()) << "a listener is no connection";
      (v6 ? a6.sin6_port : a4.sin_port) = htons(port);
      UniqueFd client(socket(family, SOCK_STREAM, 0));
      ASSERT_EQ(connect(client.get(), name, bytes), 0);
      const IpAddr loopback = *IpAddr::parse(v6 ? "::1" : "127.0.0.1");
      EXPECT_EQ(seen(port), std::vector{loopback}) << "that waits to be accepted";
      EXPECT_TRUE(seen(static_cast<uint16_t>(port + 1)).empty());
      EXPECT_TRUE(seen(static_cast<uint16_t>(port - 1)).empty());
      client.reset(accept(listener.get(), nullptr, nullptr));  // whose peer is gone
      EXPECT_EQ(seen(port).size(), 1U) << "that is half closed";
    }
  });
}

TEST(TcpDiag, TheFirstThatIsItEndsTheLook) {
  REQUIRE_ROOT();
  Lab lab;
  lab.run([] {
    ASSERT_TRUE(shell("ip link set lo up"));
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
    ASSERT_EQ(listen(listener.get(), 300), 0);
    const uint16_t port = port_of(listener.get());
    a.sin_port = htons(port);
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 300; ++i) {  // more than one answer's worth
      clients.emplace_back(socket(AF_INET, SOCK_STREAM, 0));
      ASSERT_EQ(connect(clients.back().get(), reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
    }
    EXPECT_EQ(seen(port).size(), 300U);
    int looked = 0;
    const auto r = any_tcp(port, [&](const IpAddr&, const IpAddr&) { return ++looked == 7; });
    EXPECT_TRUE(r && *r);
    EXPECT_EQ(looked, 7);
  });
}

}  // namespace
}  // namespace vireo::net
