// Connections that are undone, by the peer before they stood or by the program: the socket is as a
// new one, with at most an error to tell (Linux tcp_disconnect()). The same on the kernel's sockets
// and on ours.
#include <netinet/tcp.h>
#include <poll.h>

#include <cstdlib>
#include <thread>

#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

constexpr int kGone = POLLOUT | POLLHUP;  // of a new socket, too

class Undone : public BothSides {
 protected:
  void SetUp() override {
    // Frames leave, and nobody answers.
    a.host().enter();
    ASSERT_EQ(std::system("ip neigh replace 10.77.0.50 lladdr 02:00:00:00:00:50 dev eth0"), 0);
    l_ = b.socket(AF_INET, SOCK_STREAM);
    ASSERT_EQ(b.bind(l_, 0), 0);
    ASSERT_EQ(b.listen(l_), 0);
  }
  void TearDown() override { b.close(l_); }
  sockaddr_storage silent() {
    sockaddr_storage sa = address(b.host(), 5000);
    reinterpret_cast<sockaddr_in&>(sa).sin_addr.s_addr = htonl(0x0a4d0032);
    return sa;
  }
  sockaddr_storage there() { return address(b.host(), port_of(b.getsockname(l_))); }
  int connect(int fd, const sockaddr_storage& to) {
    return a.connect(fd, sockaddr_of(to), length(to));
  }
  int connecting() {
    const int c = a.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
    EXPECT_EQ(connect(c, silent()), -EINPROGRESS);
    return c;
  }
  int disconnect(int fd) {
    sockaddr_storage none{};
    return a.connect(fd, sockaddr_of(none), sizeof(sockaddr_in));
  }
  int error(int fd) { return a.getsockopt(fd, SOL_SOCKET, SO_ERROR); }
  uint32_t name(int fd) {
    const auto sa = a.getsockname(fd);
    return ntohl(reinterpret_cast<const sockaddr_in&>(sa).sin_addr.s_addr);
  }
  /// It is a socket like any other.
  void expect_fresh(int fd) {
    EXPECT_EQ(a.ready(fd), kGone);
    EXPECT_EQ(error(fd), 0);
    sockaddr_storage peer;
    EXPECT_EQ(a.getpeername(fd, peer), -ENOTCONN);
    EXPECT_EQ(a.recv(fd), "!ENOTCONN");
    EXPECT_EQ(a.send(fd, "x", MSG_NOSIGNAL), -EPIPE);
    EXPECT_EQ(a.fcntl(fd, F_SETFL, O_RDWR), 0);
    ASSERT_EQ(connect(fd, there()), 0);
    EXPECT_EQ(a.is_carried(fd), ours());
    const int s = b.accept(l_);
    EXPECT_EQ(a.send(fd, "anew"), 4);
    EXPECT_EQ(b.recv(s), "anew");
    EXPECT_EQ(a.close(fd), 0);
    EXPECT_EQ(b.close(s), 0);
  }
  int l_ = -1;
};
INSTANTIATE_TEST_SUITE_P(Sides, Undone, testing::Values(Side::kKernel, Side::kVireo),
                         [](const auto& i) {
                           return i.param == Side::kKernel ? "kernel" : "vireo";
                         });

TEST_P(Undone, ShutWhileConnecting) {
  for (const int how : {SHUT_RD, SHUT_WR, SHUT_RDWR}) {
    const int c = connecting();
    EXPECT_EQ(a.shutdown(c, how), 0);
    EXPECT_EQ(a.ready(c), kGone | POLLERR);
    EXPECT_EQ(name(c), 0U) << "it has no address any more";
    EXPECT_EQ(error(c), ECONNRESET);
    expect_fresh(c);
  }
}

TEST_P(Undone, TheErrorIsTheNextCallsOrTheNextConnectionForgetsIt) {
  int c = connecting();
  EXPECT_EQ(a.shutdown(c, SHUT_WR), 0);
  EXPECT_EQ(a.recv(c), "!ECONNRESET");
  expect_fresh(c);
  c = connecting();
  EXPECT_EQ(a.shutdown(c, SHUT_WR), 0);
  EXPECT_EQ(a.send(c, "x", MSG_NOSIGNAL), -ECONNRESET);
  expect_fresh(c);
  c = connecting();
  EXPECT_EQ(a.shutdown(c, SHUT_WR), 0);
  EXPECT_EQ(connect(c, silent()), -EINPROGRESS);
  EXPECT_EQ(error(c), 0);
  EXPECT_EQ(a.ready(c), 0);
  EXPECT_EQ(connect(c, silent()), -EALREADY);
  EXPECT_EQ(a.close(c), 0);
}

TEST_P(Undone, WhoWaitsInConnectHearsOfTheShutdown) {
  const int c = a.socket(AF_INET, SOCK_STREAM);
  std::thread waits([&] { EXPECT_EQ(connect(c, silent()), -ECONNRESET); });
  while (a.getpeername(c, *std::make_unique<sockaddr_storage>()) != -ENOTCONN || name(c) == 0)
    std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(a.shutdown(c, SHUT_RDWR), 0);
  waits.join();
  expect_fresh(c);
}

TEST_P(Undone, Refused) {
  const int c = a.socket(AF_INET, SOCK_STREAM);
  EXPECT_EQ(connect(c, address(b.host(), 9)), -ECONNREFUSED);
  EXPECT_EQ(name(c), 0U);
  EXPECT_EQ(connect(c, address(b.host(), 9)), -ECONNREFUSED) << "again";
  expect_fresh(c);
}

TEST_P(Undone, RefusedWhileNobodyWaited) {
  const int c = a.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
  EXPECT_EQ(connect(c, address(b.host(), 9)), -EINPROGRESS);
  ASSERT_TRUE(a.await(c, POLLERR));
  EXPECT_EQ(a.ready(c), kGone | POLLIN | POLLRDHUP | POLLERR) << "until connect() has told";
  EXPECT_EQ(error(c), ECONNREFUSED);
  EXPECT_EQ(a.ready(c), kGone | POLLIN | POLLRDHUP);
  EXPECT_EQ(connect(c, there()), -ECONNABORTED);
  expect_fresh(c);
}

TEST_P(Undone, ByNoAddress) {  // connect(2) AF_UNSPEC
  int c = connecting();
  EXPECT_EQ(disconnect(c), 0);
  EXPECT_EQ(a.ready(c), kGone | POLLERR);
  EXPECT_EQ(name(c), 0U);
  EXPECT_EQ(error(c), ECONNRESET);
  expect_fresh(c);
  c = a.socket(AF_INET, SOCK_STREAM);
  EXPECT_EQ(connect(c, there()), 0);
  const int s = b.accept(l_);
  EXPECT_EQ(disconnect(c), 0);
  EXPECT_EQ(b.recv(s), "!ECONNRESET");
  EXPECT_EQ(error(c), ECONNRESET);
  expect_fresh(c);
  EXPECT_EQ(b.close(s), 0);
}

TEST_P(Undone, AListenerListensNoMore) {
  const int l = a.socket(AF_INET, SOCK_STREAM);
  EXPECT_EQ(a.bind(l, 0), 0);
  EXPECT_EQ(a.listen(l), 0);
  EXPECT_EQ(disconnect(l), 0);
  EXPECT_EQ(a.ready(l), kGone);
  expect_fresh(l);
}

}  // namespace
}  // namespace vireo::test
