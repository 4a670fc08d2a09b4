// The child of a fork: what it inherits is safe to hold and to close, and has defined results.
#include <sys/wait.h>

#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

class Fork : public testing::Test {
 protected:
  Api a{hosts().a, Side::kVireo};
  Api b{hosts().b, Side::kVireo};

  /// A program has one stack. Here the first takes the locks that both share, so it is the one that
  /// has something to hand over.
  static void prepare() {
    settle_before_fork();
    hosts().b.stack().fork_prepare();
    hosts().a.stack().fork_prepare();
  }
  static void parent() {
    hosts().a.stack().fork_parent();
    hosts().b.stack().fork_parent();
  }
  static void child() {
    hosts().a.stack().fork_child();
    hosts().b.stack().fork_child();
  }
  /// Runs `f` in a child; true if it returned true.
  template <class F>
  bool in_child(F f) {
    prepare();
    const pid_t pid = ::fork();
    if (pid == 0) {
      child();
      ::_exit(f() ? 0 : 1);
    }
    parent();
    int status = -1;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
};

TEST_F(Fork, ChildsUseOfAConnectionIsNotconnAndTheParentGoesOn) {
  const int l = b.socket(AF_INET, SOCK_STREAM);
  b.bind(l, 0);
  b.listen(l);
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  const int c = a.socket(AF_INET, SOCK_STREAM);
  ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
  const int s = b.accept(l);
  ASSERT_GE(s, 0);
  EXPECT_TRUE(in_child([&] {
    bool ok = a.send(c, "child") == -ENOTCONN && a.recv(c) == "!ENOTCONN";
    ok = ok && b.recv(s, 10, MSG_DONTWAIT) == "!ENOTCONN" && a.shutdown(c, SHUT_RDWR) == -ENOTCONN;
    ok = ok && b.ready(s) == (POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP);
    ok = ok && a.close(c) == 0 && b.close(s) == 0;
    return ok;
  }));
  EXPECT_EQ(a.send(c, "parent"), 6);
  EXPECT_EQ(b.recv(s), "parent");
  a.close(c);
  EXPECT_EQ(b.recv(s), "");
  b.close(s);
  b.close(l);
}

TEST_F(Fork, ChildsListenerAndDatagramsAreTheKernels) {
  const int l = b.socket(AF_INET, SOCK_STREAM);
  b.bind(l, 0);
  b.listen(l);
  b.fcntl(l, F_SETFL, O_NONBLOCK);
  EXPECT_EQ(b.accept(l), -EAGAIN);  // the parent serves it
  b.fcntl(l, F_SETFL, 0);
  sockaddr_storage self = address(b.host(), port_of(b.getsockname(l)));
  reinterpret_cast<sockaddr_in&>(self).sin_addr.s_addr = __builtin_bswap32(INADDR_LOOPBACK);
  const int u = b.socket(AF_INET, SOCK_DGRAM);
  b.bind(u, 0);
  EXPECT_TRUE(in_child([&] {
    const int c = b.socket(AF_INET, SOCK_STREAM);
    bool ok = b.connect(c, sockaddr_of(self), length(self)) == 0;
    const int s = b.accept(l);
    ok = ok && s >= 0 && b.send(c, "x") == 1 && b.recv(s) == "x";
    sockaddr_storage to = self;
    reinterpret_cast<sockaddr_in&>(to).sin_port =
        reinterpret_cast<const sockaddr_in&>(static_cast<const sockaddr_storage&>(b.getsockname(u)))
            .sin_port;
    return ok && b.sendto(u, "self", to) == 4 && b.recv(u) == "self";
  }));
  // The parent's are carried as before.
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  const int c = a.socket(AF_INET, SOCK_STREAM);
  EXPECT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
  const int s = b.accept(l);
  EXPECT_TRUE(b.is_carried(s));
  a.close(c);
  b.close(s);
  b.close(l);
  b.close(u);
}

TEST_F(Fork, AListenerThatNobodyHasUsedIsTheKernelsInBoth) {
  const int l = b.socket(AF_INET, SOCK_STREAM);
  b.bind(l, 0);
  b.listen(l);
  sockaddr_storage self = address(b.host(), port_of(b.getsockname(l)));
  reinterpret_cast<sockaddr_in&>(self).sin_addr.s_addr = __builtin_bswap32(INADDR_LOOPBACK);
  const auto serves = [&] {
    const int c = b.socket(AF_INET, SOCK_STREAM);
    const bool connected = b.connect(c, sockaddr_of(self), length(self)) == 0;
    const int s = b.accept(l);  // waits, as the program's socket does
    const bool ok = connected && s >= 0 && b.send(c, "x") == 1 && b.recv(s) == "x";
    b.close(c);
    b.close(s);
    return ok;
  };
  EXPECT_TRUE(in_child(serves));
  EXPECT_TRUE(serves());
  EXPECT_FALSE(b.is_carried(l));
  // On this wire is no kernel, and the engine does not answer for it.
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  const int c = a.socket(AF_INET, SOCK_STREAM);
  a.fcntl(c, F_SETFL, O_NONBLOCK);
  EXPECT_EQ(a.connect(c, sockaddr_of(to), length(to)), -EINPROGRESS);
  ::usleep(200'000);
  EXPECT_EQ(a.ready(c) & (POLLIN | POLLOUT | POLLERR), 0);
  a.close(c);
  b.close(l);
}

TEST_F(Fork, AChildWithoutHandlersTouchesNothing) {
  const int l = b.socket(AF_INET, SOCK_STREAM);
  b.bind(l, 0);
  b.listen(l);
  const pid_t pid = ::fork();  // nobody told the library: these stacks have no pthread_atfork
  // To the child the descriptor is the kernel's.
  if (pid == 0) ::_exit(!fd_table().find(l) && ::close(l) == 0 ? 0 : 1);
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  const int c = a.socket(AF_INET, SOCK_STREAM);
  EXPECT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
  a.close(c);
  b.close(l);
}

}  // namespace
}  // namespace vireo::test
