// Kernel sockets that outlive their connection (stack/sock/shadow_reserve.h): the next socket has
// one, and nobody can tell but by its inode.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <set>
#include <vector>

#include "core/own_fds.h"
#include "stack/sock/epoll.h"
#include "stack/sock/multiplex.h"
#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

class ShadowReserveTest : public BothSides {
 protected:
  void SetUp() override {
    listener_ = b.socket(AF_INET, SOCK_STREAM);
    ASSERT_EQ(b.bind(listener_, 0), 0);
    ASSERT_EQ(b.listen(listener_, 2 * int{ShadowReserve::kMax}), 0);
    to_ = address(b.host(), port_of(b.getsockname(listener_)));
    a.host().stack().shadow_reserve().fork_prepare();
    a.host().stack().shadow_reserve().fork_parent();
    for (int i = 0; i < 3; ++i) {  // ports are leased from the second on
      end(connected());
      ::usleep(10'000);
    }
  }
  void TearDown() override { b.close(listener_); }

  int connected(int type = SOCK_STREAM) {
    const int c = a.socket(AF_INET, type);
    connect(c);
    return c;
  }
  void connect(int c) {
    const int r = a.connect(c, sockaddr_of(to_), length(to_));
    EXPECT_TRUE(r == 0 || r == -EINPROGRESS) << r;
  }
  void end(int c) {
    const int s = b.accept(listener_);
    EXPECT_GE(s, 0);
    EXPECT_EQ(b.send(s, "pong"), 4);
    b.close(s);
    std::string got;
    for (int i = 0; i < 1000 && got.empty(); ++i, ::usleep(1000)) {
      got = a.recv(c);
      if (got == "!EAGAIN") got.clear();
    }
    EXPECT_EQ(got, "pong");
    a.close(c);
  }
  /// As the program sees it.
  int nodelay(int fd) {
    int v = -1;
    socklen_t n = sizeof v;
    EXPECT_EQ(a.getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &v, &n), 0);
    return v;
  }
  /// As the kernel does, from now on for good.
  static int kernels_nodelay(int fd) {
    fd_table().find(fd)->touch();
    int v = -1;
    socklen_t n = sizeof v;
    EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &v, &n), 0);
    return v;
  }
  void set_nodelay(int fd, int on) {
    EXPECT_EQ(a.setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
  }
  /// Vireo's own descriptors.
  static int own() {
    int n = 0;
    for (uint32_t i = 0; (i = next_own_fd(i)) < kMaxOwnFds; ++i) ++n;
    return n;
  }
  static ino_t inode(int fd) {
    struct stat s{};
    EXPECT_EQ(::fstat(fd, &s), 0);
    return s.st_ino;
  }
  uint64_t leased() { return a.host().stack().stats().engines[0].leased_ports.get(); }
  /// As connected(), with a leased port: those whose last ACK is still on its way rest.
  int connected_by_lease(int type = SOCK_STREAM) {
    for (int i = 0; i < 50; ++i) {
      const uint64_t before = leased();
      const int c = connected(type);
      if (leased() != before) return c;
      end(c);
      ::usleep(20'000);
    }
    ADD_FAILURE() << "no port was leased";
    return -1;
  }
  /// A connection by a leased port, of which `before` and `during` make what they like.
  /// @return the next socket lies on what was beneath it.
  bool is_reused(const std::function<void(int)>& before, const std::function<void(int)>& during) {
    for (int i = 0; i < 50; ++i) {
      const int c = a.socket(AF_INET, SOCK_STREAM);
      const ino_t its = inode(c);
      if (before) before(c);
      const uint64_t leases = leased();
      connect(c);
      const bool is_leased = leased() != leases;
      if (during) during(c);
      end(c);
      const int next = a.socket(AF_INET, SOCK_STREAM);
      const bool is_same = inode(next) == its;
      EXPECT_EQ(nodelay(next), 0);
      EXPECT_EQ(kernels_nodelay(next), 0);
      a.close(next);
      if (is_leased) return is_same;
      if (is_same) ADD_FAILURE() << "its port is its own";
      ::usleep(20'000);
    }
    return false;
  }

  int listener_ = -1;
  sockaddr_storage to_{};
};
INSTANTIATE_TEST_SUITE_P(Sides, ShadowReserveTest, testing::Values(Side::kVireo),
                         [](const auto&) { return "vireo"; });

TEST_P(ShadowReserveTest, TheNextSocketHasIt) {
  EXPECT_TRUE(is_reused({}, {}));
  EXPECT_TRUE(is_reused({}, [&](int c) {  // the kernel is not told of it
    const int on = 1;
    EXPECT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
  }));
}

TEST_P(ShadowReserveTest, TcpNodelayIsTakenOff) {
  const auto set = [&](int c, int on) { set_nodelay(c, on); };
  EXPECT_TRUE(is_reused(
      [&](int c) {
        set(c, 1);
        EXPECT_EQ(nodelay(c), 1);
      },
      {}));
  EXPECT_TRUE(is_reused([&](int c) { set(c, 1); }, [&](int c) { set(c, 0); }));
  EXPECT_TRUE(is_reused(
      [&](int c) {
        set(c, 1);
        set(c, 0);
      },
      [&](int c) { set(c, 1); }));
}

TEST_P(ShadowReserveTest, TheKernelIsToldOfTcpNodelayWhenItIsToHaveTheSocket) {
  for (const int told : {1, 0}) {
    for (const int wanted : {1, 0, -1}) {
      int c = -1;
      for (int i = 0; i < 50; ++i, ::usleep(20'000)) {  // until a port is leased
        c = a.socket(AF_INET, SOCK_STREAM);
        fd_table().find(c)->touch();  // what was lent is no spare any more
        a.close(c);
        c = a.socket(AF_INET, SOCK_STREAM);
        ASSERT_EQ(fd_table().find(c)->place.load(), 0U) << "fresh: the kernel is told at once";
        if (told != 0) set_nodelay(c, 1);
        const uint64_t before = leased();
        connect(c);
        end(c);
        if (leased() != before) break;
      }
      c = a.socket(AF_INET, SOCK_STREAM);
      ASSERT_NE(fd_table().find(c)->place.load(), 0U) << "lent";
      if (wanted >= 0) set_nodelay(c, wanted);
      EXPECT_EQ(nodelay(c), std::max(wanted, 0));
      ASSERT_EQ(a.bind(c, 0), 0);
      EXPECT_EQ(kernels_nodelay(c), std::max(wanted, 0)) << told << wanted;
      EXPECT_EQ(nodelay(c), std::max(wanted, 0));
      a.close(c);
    }
  }
}

TEST_P(ShadowReserveTest, ALoanEnds) {
  const auto lent = [&] {
    end(connected_by_lease());
    const int c = a.socket(AF_INET, SOCK_STREAM);
    EXPECT_NE(fd_table().find(c)->place.load(), 0U) << "lent";
    return c;
  };
  int c = lent();
  int before = own();
  set_nodelay(c, 1);
  EXPECT_EQ(own(), before);
  ASSERT_EQ(a.bind(c, 0), 0);
  EXPECT_EQ(own(), before - 1) << "with what the kernel remembers";
  a.close(c);
  EXPECT_EQ(own(), before - 1);

  c = lent();
  before = own();
  a.close(c);
  EXPECT_EQ(own(), before - 1) << "with the socket that was not used";

  c = lent();
  before = own();
  set_nodelay(c, 1);
  a.host().stack().fork_prepare();
  a.host().stack().fork_parent();
  EXPECT_EQ(own(), before - 1) << "with a child, who has all numbers";
  EXPECT_EQ(kernels_nodelay(c), 1);
  a.close(c);

  c = lent();
  before = own();
  connect(c);
  end(c);
  EXPECT_EQ(own(), before) << "it is a spare again";
}

TEST_P(ShadowReserveTest, WhoseFileIsClosedHasNone) {
  std::vector<int> open;
  for (unsigned i = 0; i < 2 * ShadowReserve::kMax; ++i)
    open.push_back(a.socket(AF_INET, SOCK_STREAM));
  std::vector<File*> files;
  for (const int fd : open) files.push_back(fd_table().find(fd).file);
  end(connected_by_lease());
  const int c = a.socket(AF_INET, SOCK_STREAM);
  ASSERT_NE(fd_table().find(c)->place.load(), 0U) << "lent";
  for (const int fd : open) a.close(fd);
  const int before = own();
  // As a call that another thread's close() has overtaken.
  for (File* f : files) f->touch();
  EXPECT_EQ(own(), before);
  a.close(c);
}

TEST_P(ShadowReserveTest, WhoHoldsOneForLongKeepsNoPlace) {
  std::vector<int> fresh;
  std::vector<int> lent;
  for (unsigned i = 0; i < ShadowReserve::kMax; ++i) fresh.push_back(connected());
  for (const int c : fresh) end(c);
  for (unsigned i = 0; i < ShadowReserve::kMax; ++i) lent.push_back(a.socket(AF_INET, SOCK_STREAM));
  ::usleep(20'000);
  const int most = own();
  EXPECT_TRUE(is_reused({}, {})) << "one of 64 gave its place up";
  EXPECT_LE(own(), most);
  for (const int fd : lent) a.close(fd);
}

TEST_P(ShadowReserveTest, AsSocket2MakesIt) {
  int c = connected_by_lease();
  const int number = c;
  for (const int type :
       {int{SOCK_NONBLOCK} | SOCK_CLOEXEC, 0, int{SOCK_NONBLOCK}, int{SOCK_CLOEXEC}, 0}) {
    const ino_t its = inode(c);
    end(c);
    c = a.socket(AF_INET, SOCK_STREAM | type);
    EXPECT_EQ(inode(c), its) << type;
    EXPECT_EQ(c, number) << "the lowest number";
    EXPECT_EQ(::fcntl(c, F_GETFL), O_RDWR | ((type & SOCK_NONBLOCK) != 0 ? O_NONBLOCK : 0));
    EXPECT_EQ(::fcntl(c, F_GETFD), (type & SOCK_CLOEXEC) != 0 ? FD_CLOEXEC : 0);
    EXPECT_EQ(port_of(a.getsockname(c)), 0);
    a.close(c);
    ::usleep(20'000);
    c = connected_by_lease(SOCK_STREAM | type);
    EXPECT_EQ(c, number);
  }
  end(c);
}

TEST_P(ShadowReserveTest, NotIfTheKernelRemembers) {
  const int on = 1;
  EXPECT_FALSE(is_reused(
      [&](int c) { EXPECT_EQ(a.setsockopt(c, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on), 0); }, {}));
  EXPECT_FALSE(is_reused(
      {}, [&](int c) { EXPECT_EQ(a.setsockopt(c, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on), 0); }));
  EXPECT_FALSE(is_reused([&](int c) { EXPECT_EQ(a.bind(c, 0), 0); }, {}));
  EXPECT_FALSE(is_reused({}, [&](int c) {
    EXPECT_TRUE(sock::fcntl(fd_table().find(c), F_SETOWN, static_cast<uintptr_t>(::getpid())));
  }));
  EXPECT_TRUE(is_reused({}, {})) << "what was before has left nothing behind";
}

TEST_P(ShadowReserveTest, NotIfItHasAnotherNumber) {
  int other = -1;
  EXPECT_FALSE(is_reused({}, [&](int c) {
    const auto d = sock::dup(fd_table().find(c));
    ASSERT_TRUE(d);
    other = *d;
  }));
  a.close(other);
  EXPECT_FALSE(is_reused({}, [&](int c) {
    const auto d = sock::dup(fd_table().find(c));
    ASSERT_TRUE(d);
    a.close(*d);
  })) << "who knows what became of the copy";
}

TEST_P(ShadowReserveTest, NotIfAnEpollHoldsIt) {
  const auto ep = sock::epoll_create(a.host().stack(), 0);
  ASSERT_TRUE(ep);
  EXPECT_FALSE(is_reused(
      [&](int c) {  // undecided: the kernel watches it
        epoll_event e{.events = EPOLLIN, .data = {.fd = c}};
        EXPECT_TRUE(sock::epoll_ctl(fd_table().find(*ep), EPOLL_CTL_ADD, c, &e));
      },
      {}));
  EXPECT_TRUE(is_reused({}, [&](int c) {  // a connection of ours is nothing to the kernel's
    epoll_event e{.events = EPOLLIN, .data = {.fd = c}};
    EXPECT_TRUE(sock::epoll_ctl(fd_table().find(*ep), EPOLL_CTL_ADD, c, &e));
  }));
  a.close(*ep);
}

TEST_P(ShadowReserveTest, NotAcrossAFork) {
  Stack& stack = a.host().stack();
  EXPECT_FALSE(is_reused({}, [&](int) {
    stack.fork_prepare();
    stack.fork_parent();
  }));
  const int c = connected_by_lease();
  const ino_t its = inode(c);
  end(c);
  stack.fork_prepare();
  stack.fork_parent();
  const int next = a.socket(AF_INET, SOCK_STREAM);
  EXPECT_NE(inode(next), its);
  a.close(next);
}

TEST_P(ShadowReserveTest, NotAcrossUsers) {
  const uid_t us = ::geteuid();
  const auto become = [](uid_t user) {
    EXPECT_EQ(::seteuid(user), 0);
    ShadowReserve::user_changed();  // as preload's does
  };
  /// @return what lies beneath a socket of another user.
  const auto of_another = [&] {
    become(us + 1);
    const auto fd = sock::socket(a.host().stack(), AF_INET, SOCK_STREAM, 0);
    become(us);
    EXPECT_TRUE(fd);
    const ino_t its = inode(*fd);
    a.close(*fd);
    return its;
  };
  int c = connected_by_lease();
  ino_t its = inode(c);
  end(c);
  EXPECT_NE(of_another(), its);
  c = connected_by_lease();
  its = inode(c);
  of_another();
  end(c);
  const int next = a.socket(AF_INET, SOCK_STREAM);
  EXPECT_NE(inode(next), its) << "there was another between";
  a.close(next);
  EXPECT_TRUE(is_reused({}, {}));
}

TEST_P(ShadowReserveTest, EachFamilyHasItsOwn) {
  const int c = connected_by_lease();
  const ino_t its = inode(c);
  end(c);
  const int six = a.socket(AF_INET6, SOCK_STREAM);
  EXPECT_NE(inode(six), its);
  int domain = 0;
  socklen_t len = sizeof domain;
  EXPECT_EQ(::getsockopt(six, SOL_SOCKET, SO_DOMAIN, &domain, &len), 0);
  EXPECT_EQ(domain, AF_INET6);
  a.close(six);
}

TEST_P(ShadowReserveTest, NoMoreThanSomeAreKept) {
  std::vector<int> open;
  for (unsigned i = 0; i < ShadowReserve::kMax + 8; ++i) open.push_back(connected());
  for (const int c : open) end(c);
  std::set<ino_t> kept;
  std::set<int> numbers;
  for (unsigned i = 0; i < ShadowReserve::kMax + 8; ++i) {
    const int fd = a.socket(AF_INET, SOCK_STREAM);
    kept.insert(inode(fd));
    numbers.insert(fd);
  }
  EXPECT_EQ(kept.size(), ShadowReserve::kMax + 8) << "none is given twice";
  for (const int fd : numbers) a.close(fd);
}

}  // namespace
}  // namespace vireo::test
