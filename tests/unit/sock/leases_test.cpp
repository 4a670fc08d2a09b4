// Local ports that outlive their connection (stack/engine/port_leases.h): the next connection has
// one, and nobody can tell.
#include <sys/wait.h>

#include <set>
#include <vector>

#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

class Leases : public BothSides {
 protected:
  void SetUp() override {
    listener_ = b.socket(AF_INET, SOCK_STREAM);
    ASSERT_EQ(b.bind(listener_, 0), 0);
    ASSERT_EQ(b.listen(listener_, 64), 0);
    to_ = address(b.host(), port_of(b.getsockname(listener_)));
  }
  void TearDown() override { b.close(listener_); }

  int connected() {
    const int c = a.socket(AF_INET, SOCK_STREAM);
    EXPECT_EQ(a.connect(c, sockaddr_of(to_), length(to_)), 0);
    return c;
  }
  /// Bytes there and back and the end, the server's first or the client's. @return the client's
  /// port.
  uint16_t exchange(int c, bool server_first) {
    const int s = b.accept(listener_);
    EXPECT_GE(s, 0);
    const uint16_t port = port_of(a.getsockname(c));
    sockaddr_storage peer{};
    EXPECT_EQ(b.getpeername(s, peer), 0);
    EXPECT_EQ(port_of(peer), port);
    EXPECT_EQ(a.send(c, "ping" + std::to_string(port)), 4 + ssize_t(std::to_string(port).size()));
    EXPECT_EQ(b.recv(s), "ping" + std::to_string(port));
    EXPECT_EQ(b.send(s, "pong"), 4);
    EXPECT_EQ(a.recv(c), "pong");
    if (server_first) {
      b.close(s);
      EXPECT_EQ(a.recv(c), "");
      a.close(c);
    } else {
      a.close(c);
      EXPECT_EQ(b.recv(s), "");
      b.close(s);
      in_time_wait().insert(port);
    }
    return port;
  }
  /// Ports of this process that have had a connection which its own end closed first: whoever names
  /// one without SO_REUSEADDR is refused for a minute, as on Linux.
  static std::set<uint16_t>& in_time_wait() {
    static std::set<uint16_t> ports;
    return ports;
  }
  /// The last ACKs are on their way; ports rest.
  static void rest() { ::usleep(10'000); }
  uint64_t leased() { return ours() ? a.host().stack().stats().engines[0].leased_ports.get() : 0; }

  int listener_ = -1;
  sockaddr_storage to_{};
};
INSTANTIATE_TEST_SUITE_P(Sides, Leases, testing::Values(Side::kKernel, Side::kVireo),
                         [](const auto& i) {
                           return i.param == Side::kKernel ? "kernel" : "vireo";
                         });

TEST_P(Leases, ConnectionsFollowEachOtherWhoeverClosesFirst) {
  const uint64_t before = leased();
  for (int i = 0; i < 40; ++i) {
    exchange(connected(), i % 2 == 0);
    rest();
  }
  EXPECT_GE(leased() - before, ours() ? 30u : 0u);
}

TEST_P(Leases, WithoutARestNoneIsUsedAgain) {
  std::set<uint16_t> ports;
  for (int i = 0; i < 20; ++i) ports.insert(exchange(connected(), true));
  EXPECT_GE(ports.size(), 2u);
}

// bind(2): a port whose connection its peer closed first is free.
TEST_P(Leases, WhoNamesThePortGetsIt) {
  for (int i = 0; i < 3; ++i) {
    std::vector<int> others;  // which have the leases of such ports meanwhile
    int c = connected();
    for (; in_time_wait().contains(port_of(a.getsockname(c))); c = connected()) others.push_back(c);
    for (const int o : others) exchange(o, true);
    const uint16_t port = exchange(c, true);
    rest();
    const int other = a.socket(AF_INET, SOCK_STREAM);
    EXPECT_EQ(a.bind(other, port, false), 0);
    ASSERT_EQ(a.connect(other, sockaddr_of(to_), length(to_)), 0);
    EXPECT_EQ(port_of(a.getsockname(other)), port);
    exchange(other, true);
    rest();
  }
}

TEST_P(Leases, ASecondTryAfterARefusalHasAPortOfItsOwn) {
  exchange(connected(), true);
  rest();
  const int c = a.socket(AF_INET, SOCK_STREAM);
  const auto nobody = address(b.host(), 9);
  EXPECT_EQ(a.connect(c, sockaddr_of(nobody), length(nobody)), -ECONNREFUSED);
  EXPECT_EQ(a.getsockopt(c, SOL_SOCKET, SO_ERROR), 0);
  ASSERT_EQ(a.connect(c, sockaddr_of(to_), length(to_)), 0);
  exchange(c, true);
}

TEST_P(Leases, OpenTogetherTheyHaveDifferentPorts) {
  for (int i = 0; i < 4; ++i) exchange(connected(), true);
  rest();
  std::set<uint16_t> ports;
  std::vector<int> open;
  for (int i = 0; i < 8; ++i) {
    open.push_back(connected());
    ports.insert(port_of(a.getsockname(open.back())));
  }
  EXPECT_EQ(ports.size(), 8u);
  for (const int c : open) exchange(c, true);
}

TEST_P(Leases, DisconnectedItConnectsAgain) {  // connect(2), AF_UNSPEC
  exchange(connected(), true);
  rest();
  const int c = connected();
  const int s = b.accept(listener_);
  sockaddr_storage nowhere{};
  nowhere.ss_family = AF_UNSPEC;
  EXPECT_EQ(a.connect(c, sockaddr_of(nowhere), sizeof nowhere), 0);
  EXPECT_EQ(b.recv(s), "!ECONNRESET");
  b.close(s);
  ASSERT_EQ(a.connect(c, sockaddr_of(to_), length(to_)), 0);
  exchange(c, true);
}

TEST(LeasesOfAFork, TheChildKnowsTheName) {
  Api a(hosts().a, Side::kVireo), b(hosts().b, Side::kVireo);
  const int l = b.socket(AF_INET, SOCK_STREAM);
  b.bind(l, 0);
  b.listen(l);
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  EngineStats& stats = a.host().stack().stats().engines[0];
  int c = -1, s = -1;
  for (uint64_t before = stats.leased_ports.get(); stats.leased_ports.get() == before;) {
    if (c >= 0) {
      b.close(s);
      EXPECT_EQ(a.recv(c), "");
      a.close(c);
      ::usleep(10'000);
    }
    c = a.socket(AF_INET, SOCK_STREAM);
    ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
    s = b.accept(l);
    ASSERT_GE(s, 0);
  }
  const uint16_t port = port_of(a.getsockname(c));
  settle_before_fork();
  hosts().a.stack().fork_prepare();
  hosts().b.stack().fork_prepare();
  const pid_t pid = ::fork();
  if (pid == 0) {
    hosts().b.stack().fork_child();
    hosts().a.stack().fork_child();
    ::_exit(port_of(a.getsockname(c)) == port && a.send(c, "x") == -ENOTCONN ? 0 : 1);
  }
  hosts().b.stack().fork_parent();
  hosts().a.stack().fork_parent();
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(a.send(c, "parent"), 6);
  EXPECT_EQ(b.recv(s), "parent");
  for (const int fd : {s, l}) b.close(fd);
  a.close(c);
}

}  // namespace
}  // namespace vireo::test
