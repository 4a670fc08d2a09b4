// Whose an address, a port and a pair of them are: as the kernel's sockets have it.
#include <linux/tcp.h>

#include <chrono>
#include <thread>

#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

class InUse : public BothSides {
 protected:
  int bound(Api& by, uint16_t port, bool reuse, int expected = 0, bool any = false) {
    const int fd = by.socket(AF_INET, SOCK_STREAM);
    if (reuse) {
      EXPECT_EQ(by.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, 1), 0);
    }
    EXPECT_EQ(by.bind(fd, port, any), expected);
    return fd;
  }
  int listener(bool reuse) {
    const int l = bound(b, 0, reuse);
    EXPECT_EQ(b.listen(l), 0);
    return l;
  }
  sockaddr_storage of(int l) { return address(b.host(), port_of(b.getsockname(l))); }
  int connect(int fd, const sockaddr_storage& to) {
    return a.connect(fd, sockaddr_of(to), length(to));
  }
  /// Both ends are closed, `first`'s before the other's, which has seen it then.
  static void end(Api& first, int fd, Api& then, int other) {
    EXPECT_EQ(first.close(fd), 0);
    EXPECT_EQ(then.recv(other), "");
    EXPECT_EQ(then.close(other), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the last ACK
    first.ready(0);
  }
};
INSTANTIATE_TEST_SUITE_P(Sides, InUse, testing::Values(Side::kKernel, Side::kVireo),
                         [](const auto& i) {
                           return i.param == Side::kKernel ? "kernel" : "vireo";
                         });

TEST_P(InUse, ASecondConnectionOfOnePairIsNotAvailable) {
  const int l = listener(true);
  const int c = bound(a, 0, true);
  const uint16_t port = port_of(a.getsockname(c));
  ASSERT_EQ(connect(c, of(l)), 0);
  const int s = b.accept(l);
  const int d = bound(a, port, true);
  EXPECT_EQ(connect(d, of(l)), -EADDRNOTAVAIL);
  EXPECT_EQ(a.getsockopt(d, SOL_SOCKET, SO_ERROR), 0);
  EXPECT_EQ(a.ready(d), POLLOUT | POLLHUP);
  EXPECT_EQ(a.send(c, "lives"), 5);
  EXPECT_EQ(b.recv(s), "lives");
  const int other = listener(true);
  EXPECT_EQ(connect(d, of(other)), 0) << "the same port, elsewhere";
  EXPECT_EQ(a.is_carried(d), ours());
  end(a, c, b, s);  // in TIME-WAIT here
  const int again = bound(a, port, true);
  EXPECT_EQ(connect(again, of(l)), 0) << "its timestamps tell it from the old one";
  for (const int fd : {d, again}) EXPECT_EQ(a.close(fd), 0);
  for (const int fd : {l, other}) EXPECT_EQ(b.close(fd), 0);
}

TEST_P(InUse, ATimeWaitHasItsPort) {
  for (const bool reuse : {false, true}) {
    const int l = listener(reuse);
    const sockaddr_storage at = of(l);
    const int c = a.socket(AF_INET, SOCK_STREAM);
    ASSERT_EQ(connect(c, at), 0);
    const int s = b.accept(l);
    EXPECT_EQ(b.close(l), 0);
    const uint16_t port = port_of(at);
    b.close(bound(b, port, false, -EADDRINUSE));  // the connection lives
    end(b, s, a, c);
    b.close(bound(b, port, false, -EADDRINUSE));
    b.close(bound(b, port, false, -EADDRINUSE, true));
    const int next = bound(b, port, true, reuse ? 0 : -EADDRINUSE);
    if (reuse) {
      EXPECT_EQ(b.listen(next), 0);
      const int again = a.socket(AF_INET, SOCK_STREAM);
      EXPECT_EQ(connect(again, at), 0);
      EXPECT_EQ(a.close(again), 0);
    }
    EXPECT_EQ(b.close(next), 0);
  }
}

TEST_P(InUse, OfAClientsPortToo) {
  const int l = listener(true);
  const int c = a.socket(AF_INET, SOCK_STREAM);
  ASSERT_EQ(connect(c, of(l)), 0);
  const uint16_t port = port_of(a.getsockname(c));
  const int s = b.accept(l);
  a.close(bound(a, port, true, -EADDRINUSE));
  end(a, c, b, s);
  a.close(bound(a, port, false, -EADDRINUSE));
  a.close(bound(a, port, true, -EADDRINUSE));
  EXPECT_EQ(b.close(l), 0);
}

// tcp(7) TCP_INFO: a SYN and a FIN count as bytes, but not the SYN that a listener answers with.
TEST_P(InUse, BytesAreCountedAsLinuxCounts) {
  const auto [c, s] = connection();
  const auto counts = [](Api& of, int fd) {
    tcp_info i{};
    socklen_t len = sizeof i;
    EXPECT_EQ(of.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len), 0);
    return std::pair<uint64_t, uint64_t>(i.tcpi_bytes_acked, i.tcpi_bytes_received);
  };
  using Counts = std::pair<uint64_t, uint64_t>;
  EXPECT_EQ(a.send(c, "12345"), 5);
  EXPECT_EQ(b.recv(s), "12345");
  EXPECT_EQ(b.send(s, "123"), 3);
  EXPECT_EQ(a.recv(c), "123");
  EXPECT_EQ(a.shutdown(c, SHUT_WR), 0);
  EXPECT_EQ(b.recv(s), "");
  for (int i = 0; i < 100 && counts(a, c) != Counts(7, 3); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    a.ready(c);
    b.ready(s);
  }
  EXPECT_EQ(counts(a, c), Counts(7, 3));
  EXPECT_EQ(counts(b, s), Counts(3, 6));
  EXPECT_EQ(a.close(c), 0);
  EXPECT_EQ(b.close(s), 0);
}

// ipv6(7): before the socket has a name.
TEST_P(InUse, V6OnlyComesTooLate) {
  const auto [c, s] = connection(AF_INET6);
  EXPECT_EQ(a.setsockopt(c, IPPROTO_IPV6, IPV6_V6ONLY, 1), -EINVAL);
  EXPECT_EQ(a.close(c), 0);
  EXPECT_EQ(b.close(s), 0);
}

}  // namespace
}  // namespace vireo::test
