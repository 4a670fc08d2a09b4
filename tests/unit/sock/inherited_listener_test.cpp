// A listener that Vireo has not seen made (stack/sock/inherited_listener.h): its File has what the
// kernel's socket has.
#include "stack/sock/inherited_listener.h"

#include <netinet/tcp.h>

#include <cerrno>

#include "stack/sock/options/table.h"
#include "stack/sock/options/values.h"
#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

class InheritedListenerTest : public testing::Test {
 protected:
  /// Made by the kernel's own calls.
  int make(int domain, bool listens = true) {
    hosts().b.enter();
    const int fd = ::socket(domain, SOCK_STREAM | SOCK_NONBLOCK, 0);
    EXPECT_GE(fd, 0);
    if (listens) {
      EXPECT_EQ(::listen(fd, 8), 0);
    }
    return fd;
  }
  static void set(int fd, int level, int name, int value) {
    EXPECT_EQ(::setsockopt(fd, level, name, &value, sizeof value), 0) << level << ' ' << name;
  }
  Handle adopt(int fd) { return sock::adopt_listener(hosts().b.stack(), fd); }
};

TEST_F(InheritedListenerTest, OnlyTcpListenersAreMeant) {
  const int listener = make(AF_INET);
  const int unconnected = make(AF_INET, false);
  const int datagrams = ::socket(AF_INET, SOCK_DGRAM, 0);
  const int local = ::socket(AF_UNIX, SOCK_STREAM, 0);
  errno = EDOM;
  EXPECT_TRUE(sock::is_listener(listener));
  for (const int fd : {unconnected, datagrams, local, -1, 1 << 19})
    EXPECT_FALSE(sock::is_listener(fd)) << fd;
  EXPECT_EQ(errno, EDOM);
  for (const int fd : {listener, unconnected, datagrams, local}) ::close(fd);
}

TEST_F(InheritedListenerTest, ServesAsOneThatAParentLeft) {
  const int fd = make(AF_INET6);
  const Handle h = adopt(fd);
  ASSERT_TRUE(h);
  EXPECT_EQ(h->mode.load(), Mode::kKernel);
  EXPECT_EQ(h->forced.why, Carriage::kInherited);
  EXPECT_EQ(h->domain.load(), AF_INET6);
  EXPECT_TRUE(h->nonblock.load());
  EXPECT_EQ(adopt(fd).file, h.file);
  EXPECT_TRUE(sock::close(h));
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
}

TEST_F(InheritedListenerTest, ItsOptionsAreTheSockets) {
  const int fd = make(AF_INET, false);
  set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, SOL_SOCKET, SO_RCVBUF, 50'000);
  set(fd, IPPROTO_IP, IP_TTL, 33);
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 77);
  set(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 5);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 12'345);
  const linger l{1, 9};
  EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l), 0);
  const timeval t{3, 0};
  EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t), 0);
  EXPECT_EQ(::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4), 0);
  EXPECT_EQ(::listen(fd, 8), 0);
  const Handle h = adopt(fd);
  ASSERT_TRUE(h);
  EXPECT_EQ(h->forced.why, Carriage::kInherited);
  const SocketOptions& o = *h->tcp.options;
  EXPECT_EQ(o.socket.reuse_addr, 1);
  EXPECT_EQ(o.socket.keepalive, 1);
  EXPECT_TRUE(o.socket.rcvbuf_set);
  EXPECT_EQ(o.socket.rcvbuf, 100'000);
  EXPECT_FALSE(o.socket.sndbuf_set);
  EXPECT_EQ(o.ip.ttl, 33);
  EXPECT_EQ(o.tcp.nodelay, 1);
  EXPECT_EQ(o.tcp.keepidle, 77);
  EXPECT_GE(o.tcp.defer_accept, 5);
  EXPECT_EQ(o.tcp.user_timeout_ms, 12'345);
  EXPECT_EQ(o.socket.linger_on, 1);
  EXPECT_EQ(o.socket.linger_s, 9);
  EXPECT_EQ(h->rcv_timeout_ns.load(), 3'000'000'000);
  EXPECT_EQ(o.tcp.congestion, tcp::CcKind::kReno);
  EXPECT_TRUE(sock::close(h));
}

/// What Vireo cannot do for its connections keeps it on the kernel, and is named.
TEST_F(InheritedListenerTest, AnOptionOfTheKernelsAloneKeepsIt) {
  const int fd = make(AF_INET);
  set(fd, IPPROTO_TCP, TCP_SAVE_SYN, 1);
  const Handle h = adopt(fd);
  ASSERT_TRUE(h);
  EXPECT_EQ(h->forced.why, Carriage::kOption);
  const SocketOption* const option = option_of(h->forced.option);
  ASSERT_NE(option, nullptr);
  EXPECT_STREQ(option->text, "TCP_SAVE_SYN");
  EXPECT_TRUE(sock::close(h));
}

}  // namespace
}  // namespace vireo::test
