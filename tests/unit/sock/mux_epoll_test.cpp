// epoll: what it reports, the same script on the kernel's sockets and on ours. Each sub-test of a
// behaviour that epoll(7) or fs/eventpoll.c promises.
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <chrono>
#include <thread>

#include "tests/unit/sock/mux.h"

namespace vireo::test {
namespace {

class MuxEpoll : public BothSides {
 protected:
  Mux m{b};
  int ep = m.create();
  void TearDown() override { m.close(ep); }
  void deliver(int from, int to, const char* text = "x") { test::deliver(a, from, b, to, text); }
};
INSTANTIATE_TEST_SUITE_P(Sides, MuxEpoll, testing::Values(Side::kKernel, Side::kVireo),
                         [](const auto& i) {
                           return i.param == Side::kKernel ? "kernel" : "vireo";
                         });

TEST_P(MuxEpoll, LevelReportsUntilRead) {  // TCP.md 4.58
  const auto [c, s] = connection();
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 7), 0);
  EXPECT_EQ(m.now(ep), "");
  deliver(c, s, "ab");
  EXPECT_EQ(m.now(ep), "7:IN");
  EXPECT_EQ(m.now(ep), "7:IN");
  EXPECT_EQ(b.recv(s, 1), "a");
  EXPECT_EQ(m.now(ep), "7:IN");
  EXPECT_EQ(b.recv(s, 1), "b");
  EXPECT_EQ(m.now(ep), "");
  EXPECT_EQ(m.mod(ep, s, EPOLLIN | EPOLLOUT, 8), 0);
  EXPECT_EQ(m.now(ep), "8:OUT");
  EXPECT_EQ(m.now(ep), "8:OUT");
  a.close(c), b.close(s);
}

TEST_P(MuxEpoll, WaitSleepsUntilDataCome) {  // TCP.md 4.58
  const auto [c, s] = connection();
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 7), 0);
  for (const int pause_ms : {1, 150}) {  // within the spin, and asleep
    std::thread sender([&, from = c] {
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
      a.send(from, "x");
    });
    EXPECT_EQ(m.next(ep), "7:IN");
    EXPECT_EQ(b.recv(s), "x");
    sender.join();
  }
  a.close(c), b.close(s);
}

TEST_P(MuxEpoll, EdgeReportsOncePerArrival) {  // TCP.md 4.58
  const auto [c, s] = connection();
  EXPECT_EQ(m.add(ep, s, EPOLLIN | EPOLLOUT | EPOLLET, 7), 0);
  EXPECT_EQ(m.now(ep), "7:OUT");
  EXPECT_EQ(m.now(ep), "");
  deliver(c, s);
  EXPECT_EQ(m.now(ep), "7:IN|OUT");
  EXPECT_EQ(m.now(ep), "");
  EXPECT_EQ(a.send(c, "yz"), 2);
  EXPECT_EQ(m.next(ep), "7:IN|OUT");
  EXPECT_EQ(m.now(ep), "");
  EXPECT_EQ(m.mod(ep, s, EPOLLIN | EPOLLET, 9), 0);
  EXPECT_EQ(m.now(ep), "9:IN");
  EXPECT_EQ(m.now(ep), "");
  EXPECT_EQ(b.recv(s), "xyz");
  EXPECT_EQ(m.now(ep), "");
  a.close(c), b.close(s);
}

TEST_P(MuxEpoll, OneshotIsSilentUntilModified) {  // TCP.md 4.58
  const auto [c, s] = connection();
  EXPECT_EQ(m.add(ep, s, EPOLLIN | EPOLLONESHOT, 7), 0);
  deliver(c, s);
  EXPECT_EQ(m.now(ep), "7:IN");
  EXPECT_EQ(m.now(ep), "");
  deliver(c, s);
  EXPECT_EQ(m.now(ep), "");
  EXPECT_EQ(m.mod(ep, s, EPOLLIN | EPOLLONESHOT, 8), 0);
  EXPECT_EQ(m.now(ep), "8:IN");
  EXPECT_EQ(a.close(c), 0);
  ASSERT_TRUE(b.await(s, POLLRDHUP));
  EXPECT_EQ(m.now(ep), "");  // not even the end
  EXPECT_EQ(m.mod(ep, s, EPOLLRDHUP | EPOLLONESHOT, 9), 0);
  EXPECT_EQ(m.now(ep), "9:RDHUP");
  b.close(s);
}

TEST_P(MuxEpoll, EndsAreReportedAskedForOrNot) {
  const auto [c, s] = connection();
  EXPECT_EQ(m.add(ep, s, EPOLLIN | EPOLLRDHUP, 7), 0);
  const int quiet = m.create();
  EXPECT_EQ(m.add(quiet, s, 0, 1), 0);
  EXPECT_EQ(a.shutdown(c, SHUT_WR), 0);
  ASSERT_TRUE(b.await(s, POLLRDHUP));
  EXPECT_EQ(m.now(ep), "7:IN|RDHUP");
  EXPECT_EQ(m.now(quiet), "");
  EXPECT_EQ(b.shutdown(s, SHUT_WR), 0);
  ASSERT_TRUE(b.await(s, POLLHUP));
  EXPECT_EQ(m.now(ep), "7:IN|HUP|RDHUP");
  EXPECT_EQ(m.now(quiet), "1:HUP");
  m.close(quiet);
  a.close(c), b.close(s);
}

TEST_P(MuxEpoll, ResetIsAnError) {
  const auto [c, s] = connection();
  EXPECT_EQ(m.add(ep, s, 0, 7), 0);
  const linger now{1, 0};
  EXPECT_EQ(a.setsockopt(c, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
  EXPECT_EQ(a.close(c), 0);
  EXPECT_EQ(m.next(ep), "7:ERR|HUP");
  b.close(s);
}

TEST_P(MuxEpoll, ErrnosAreLinuxs) {
  const auto [c, s] = connection();
  EXPECT_EQ(m.mod(ep, s, EPOLLIN, 1), -ENOENT);
  EXPECT_EQ(m.del(ep, s), -ENOENT);
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 1), 0);
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 1), -EEXIST);
  EXPECT_EQ(m.ctl(ep, 99, s, EPOLLIN, 1), -EINVAL);
  EXPECT_EQ(m.add(ep, ep, EPOLLIN, 1), -EINVAL);
  EXPECT_EQ(m.add(ep, 1 << 19, EPOLLIN, 1), -EBADF);
  EXPECT_EQ(m.add(ep, -1, EPOLLIN, 1), -EBADF);
  EXPECT_EQ(m.mod(ep, s, EPOLLIN | EPOLLEXCLUSIVE, 1), -EINVAL);
  EXPECT_EQ(m.del(ep, s), 0);
  EXPECT_EQ(m.add(ep, s, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1), -EINVAL);
  EXPECT_EQ(m.add(ep, s, EPOLLIN | EPOLLEXCLUSIVE, 1), 0);
  EXPECT_EQ(m.mod(ep, s, EPOLLIN, 1), -EINVAL);
  deliver(c, s);
  EXPECT_EQ(m.now(ep), "1:IN");
  const int file = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(m.add(ep, file, EPOLLIN, 1), -EPERM);
  ::close(file);
  epoll_event e;
  EXPECT_EQ(m.wait(ep, &e, 0, 0), -EINVAL);
  a.close(c), b.close(s);
}

TEST_P(MuxEpoll, DupsAreItemsOfTheirOwn) {
  const auto [c, s] = connection();
  const int d = b.dup(s);
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 1), 0);
  EXPECT_EQ(m.add(ep, d, EPOLLIN | EPOLLOUT, 2), 0);
  EXPECT_EQ(m.now(ep), "2:OUT");
  deliver(c, s);
  EXPECT_EQ(m.now(ep), "1:IN 2:IN|OUT");
  // The number goes, the description stays: epoll(7), question 6.
  EXPECT_EQ(b.close(d), 0);
  EXPECT_EQ(m.now(ep), "1:IN 2:IN|OUT");
  EXPECT_EQ(m.del(ep, d), -EBADF);
  EXPECT_EQ(b.close(s), 0);
  EXPECT_EQ(m.now(ep), "");
  a.close(c);
}

TEST_P(MuxEpoll, ClosingTakesItOutAndTheNumberIsFree) {
  const auto [c, s] = connection();
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 1), 0);
  deliver(c, s);
  EXPECT_EQ(b.close(s), 0);
  EXPECT_EQ(m.now(ep), "");
  const auto [c2, s2] = connection();
  EXPECT_EQ(m.add(ep, s2, EPOLLIN, 2), 0);
  EXPECT_EQ(m.now(ep), "");
  deliver(c2, s2);
  EXPECT_EQ(m.now(ep), "2:IN");
  a.close(c), a.close(c2), b.close(s2);
}

TEST_P(MuxEpoll, SeveralEpollsSeeOneSocket) {
  const auto [c, s] = connection();
  const int other = m.create();
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 1), 0);
  EXPECT_EQ(m.add(other, s, EPOLLIN | EPOLLET, 2), 0);
  deliver(c, s);
  EXPECT_EQ(m.now(ep), "1:IN");
  EXPECT_EQ(m.now(other), "2:IN");
  EXPECT_EQ(m.now(other), "");
  EXPECT_EQ(m.del(ep, s), 0);
  deliver(c, s);
  EXPECT_EQ(m.now(ep), "");
  EXPECT_EQ(m.now(other), "2:IN");
  m.close(other);
  a.close(c), b.close(s);
}

TEST_P(MuxEpoll, NestedEpollsTellTheOuter) {
  const auto [c, s] = connection();
  int p[2];
  ASSERT_EQ(::pipe(p), 0);
  const int outer = m.create(), edge = m.create();
  EXPECT_EQ(m.add(outer, ep, EPOLLIN, 5), 0);
  EXPECT_EQ(m.add(edge, ep, EPOLLIN | EPOLLET, 6), 0);
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 1), 0);
  EXPECT_EQ(m.add(ep, p[0], EPOLLIN, 2), 0);
  EXPECT_EQ(m.now(outer), "");
  EXPECT_EQ(m.now(edge), "");
  deliver(c, s);
  EXPECT_EQ(m.now(outer), "5:IN");
  EXPECT_EQ(m.now(outer), "5:IN");
  EXPECT_EQ(m.now(edge), "6:IN");
  EXPECT_EQ(m.now(edge), "");
  std::vector<pollfd> fds{{outer, POLLIN, 0}, {ep, POLLIN, 0}};
  EXPECT_EQ(m.poll(fds, 0), 2);
  EXPECT_EQ(m.now(ep), "1:IN");
  EXPECT_EQ(b.recv(s), "x");
  EXPECT_EQ(m.now(outer), "");
  EXPECT_EQ(m.poll(fds, 0), 0);
  EXPECT_EQ(::write(p[1], "x", 1), 1);  // the kernel's side of the inner one
  EXPECT_EQ(m.now(outer), "5:IN");
  EXPECT_EQ(m.now(edge), "6:IN");
  char byte;
  EXPECT_EQ(::read(p[0], &byte, 1), 1);
  EXPECT_EQ(m.now(outer), "");
  // Asleep in the outer one, woken through the inner.
  std::thread sender([&, from = c] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    a.send(from, "y");
  });
  EXPECT_EQ(m.next(outer), "5:IN");
  sender.join();
  EXPECT_EQ(m.del(outer, ep), 0);
  EXPECT_EQ(m.now(outer), "");
  m.close(outer), m.close(edge), ::close(p[0]), ::close(p[1]);
  a.close(c), b.close(s);
}

TEST_P(MuxEpoll, LoopsAndDepthAreRefused) {
  int chain[6];
  for (int& e : chain) e = m.create();
  EXPECT_EQ(m.add(chain[0], chain[1], EPOLLIN, 1), 0);
  EXPECT_EQ(m.add(chain[1], chain[0], EPOLLIN, 1), -ELOOP);
  EXPECT_EQ(m.add(chain[1], chain[2], EPOLLIN, 1), 0);
  EXPECT_EQ(m.add(chain[2], chain[0], EPOLLIN, 1), -ELOOP);
  EXPECT_EQ(m.add(chain[2], chain[3], EPOLLIN, 1), 0);
  EXPECT_EQ(m.add(chain[3], chain[4], EPOLLIN, 1), 0);
  EXPECT_EQ(m.add(chain[4], chain[5], EPOLLIN, 1), -ELOOP);
  EXPECT_EQ(m.add(chain[0], chain[5], EPOLLIN | EPOLLEXCLUSIVE, 1), -EINVAL);
  EXPECT_EQ(m.del(chain[0], chain[1]), 0);
  EXPECT_EQ(m.add(chain[3], chain[0], EPOLLIN, 1), 0);
  for (const int e : chain) m.close(e);
}

TEST_P(MuxEpoll, KernelDescriptorsAreMixedIn) {
  const auto [c, s] = connection();
  int p[2];
  ASSERT_EQ(::pipe(p), 0);
  const int event = ::eventfd(0, EFD_NONBLOCK);
  const int timer = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 1), 0);
  EXPECT_EQ(m.add(ep, p[0], EPOLLIN, 2), 0);
  EXPECT_EQ(m.add(ep, event, EPOLLIN | EPOLLOUT | EPOLLET, 3), 0);
  EXPECT_EQ(m.add(ep, timer, EPOLLIN | EPOLLONESHOT, 4), 0);
  EXPECT_EQ(m.now(ep), "3:OUT");
  const itimerspec in_1ms{{}, {0, 1'000'000}};
  ASSERT_EQ(::timerfd_settime(timer, 0, &in_1ms, nullptr), 0);
  EXPECT_EQ(m.next(ep), "4:IN");
  EXPECT_EQ(::write(p[1], "x", 1), 1);
  deliver(c, s);
  ASSERT_EQ(::eventfd_write(event, 1), 0);
  EXPECT_EQ(m.now(ep), "1:IN 2:IN 3:IN|OUT");
  EXPECT_EQ(m.now(ep), "1:IN 2:IN");
  // Room for one: all get their turn.
  std::string seen;
  for (int i = 0; i < 4; ++i) seen += m.now(ep, 1).substr(0, 1);
  EXPECT_NE(seen.find('1'), std::string::npos) << seen;
  EXPECT_NE(seen.find('2'), std::string::npos) << seen;
  ::close(p[1]);
  char byte;
  EXPECT_EQ(::read(p[0], &byte, 1), 1);
  EXPECT_EQ(m.now(ep), "1:IN 2:HUP");
  for (const int fd : {p[0], event, timer}) ::close(fd);
  a.close(c), b.close(s);
}

TEST_P(MuxEpoll, RoundRobinAmongMany) {
  std::vector<std::pair<int, int>> pairs;
  for (uint64_t i = 0; i < 5; ++i) {
    pairs.push_back(connection());
    EXPECT_EQ(m.add(ep, pairs.back().second, EPOLLIN, i), 0);
    deliver(pairs.back().first, pairs.back().second);
  }
  unsigned seen = 0;
  for (int i = 0; i < 3; ++i) {
    epoll_event out[2];
    ASSERT_EQ(m.wait(ep, out, 2, 0), 2);
    for (const epoll_event& e : out) seen |= 1U << e.data.u64;
  }
  EXPECT_EQ(seen, 31U);
  for (const auto& [c, s] : pairs) a.close(c), b.close(s);
}

TEST_P(MuxEpoll, WhoWasToldGoesLast) {
  std::vector<std::pair<int, int>> pairs;
  for (uint64_t i = 0; i < 3; ++i) {
    pairs.push_back(connection());
    EXPECT_EQ(m.add(ep, pairs.back().second, EPOLLIN, i), 0);
    deliver(pairs.back().first, pairs.back().second);
  }
  for (const char* const turn : {"0:IN", "1:IN", "2:IN", "0:IN", "1:IN"})
    EXPECT_EQ(m.now(ep, 1), turn);
  EXPECT_EQ(b.recv(pairs[2].second), "x");
  for (const char* const turn : {"0:IN", "1:IN", "0:IN"}) EXPECT_EQ(m.now(ep, 1), turn);
  for (const auto& [c, s] : pairs) a.close(c), b.close(s);
}

/// A server of many: the one that was told in the call before is ready no more.
TEST_P(MuxEpoll, WhatWasReadIsToldNoMore) {
  const auto [c, s] = connection();
  const auto [c2, s2] = connection();
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 1), 0);
  EXPECT_EQ(m.add(ep, s2, EPOLLIN | EPOLLET, 2), 0);
  for (int i = 0; i < 3; ++i) {
    deliver(c, s);
    EXPECT_EQ(m.now(ep), "1:IN");
    EXPECT_EQ(b.recv(s), "x");
    deliver(c2, s2);
    EXPECT_EQ(m.now(ep), "2:IN");
    EXPECT_EQ(m.now(ep), "");
  }
  deliver(c, s);
  deliver(c2, s2);
  EXPECT_EQ(m.mod(ep, s2, EPOLLIN | EPOLLONESHOT, 3), 0);
  EXPECT_EQ(m.now(ep), "1:IN 3:IN");
  EXPECT_EQ(m.now(ep), "1:IN");
  a.close(c), a.close(c2), b.close(s), b.close(s2);
}

TEST_P(MuxEpoll, AddedBeforeConnectItFollowsTheSocket) {
  const int l = b.socket(AF_INET, SOCK_STREAM);
  ASSERT_EQ(b.bind(l, 0), 0);
  ASSERT_EQ(b.listen(l), 0);
  Mux at_a{a};
  const int e = at_a.create();
  const int c = a.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
  EXPECT_EQ(at_a.add(e, c, EPOLLIN | EPOLLOUT | EPOLLONESHOT, 1), 0);
  EXPECT_EQ(at_a.now(e), "1:OUT|HUP");  // as Linux says of a socket that is nothing yet
  EXPECT_EQ(at_a.now(e), "");
  EXPECT_EQ(at_a.mod(e, c, EPOLLOUT, 2), 0);
  EXPECT_EQ(at_a.now(e), "2:OUT|HUP");
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  EXPECT_EQ(a.connect(c, sockaddr_of(to), length(to)), -EINPROGRESS);
  EXPECT_EQ(at_a.next(e), "2:OUT");
  EXPECT_EQ(a.getsockopt(c, SOL_SOCKET, SO_ERROR), 0);
  const int s = b.accept(l);
  ASSERT_GE(s, 0);
  EXPECT_EQ(at_a.mod(e, c, EPOLLIN, 3), 0);
  EXPECT_EQ(at_a.now(e), "");
  EXPECT_EQ(b.send(s, "x"), 1);
  EXPECT_EQ(at_a.next(e), "3:IN");
  EXPECT_EQ(a.close(c), 0);
  EXPECT_EQ(at_a.now(e), "");
  b.close(s), b.close(l), at_a.close(e);
}

TEST_P(MuxEpoll, RefusedConnectIsReported) {
  Mux at_a{a};
  const int e = at_a.create();
  const int c = a.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
  EXPECT_EQ(at_a.add(e, c, EPOLLOUT | EPOLLIN | EPOLLET | EPOLLRDHUP, 1), 0);
  EXPECT_EQ(at_a.now(e), "1:OUT|HUP");
  const int taken = b.socket(AF_INET, SOCK_STREAM);  // bound, listens to nobody
  ASSERT_EQ(b.bind(taken, 0), 0);
  const auto to = address(b.host(), port_of(b.getsockname(taken)));
  EXPECT_EQ(a.connect(c, sockaddr_of(to), length(to)), -EINPROGRESS);
  EXPECT_EQ(at_a.next(e), "1:IN|OUT|ERR|HUP|RDHUP");
  EXPECT_EQ(a.getsockopt(c, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
  a.close(c), b.close(taken), at_a.close(e);
}

TEST_P(MuxEpoll, ListenersTellOfConnections) {
  const int l = b.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
  ASSERT_EQ(b.bind(l, 0), 0);
  EXPECT_EQ(m.add(ep, l, EPOLLIN | EPOLLOUT, 1), 0);
  EXPECT_EQ(m.now(ep), "1:OUT|HUP");
  ASSERT_EQ(b.listen(l), 0);
  EXPECT_EQ(m.now(ep), "");
  const uint16_t port = port_of(b.getsockname(l));
  const int c = a.socket(AF_INET, SOCK_STREAM);
  const auto to = address(b.host(), port);
  EXPECT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
  EXPECT_EQ(m.next(ep), "1:IN");
  const int s = b.accept(l);
  ASSERT_GE(s, 0);
  EXPECT_EQ(m.now(ep), "");
  // From the host itself: by loopback, and so by the kernel.
  const int own = b.socket(AF_INET, SOCK_STREAM);
  sockaddr_storage lo = address(b.host(), port);
  reinterpret_cast<sockaddr_in&>(lo).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(b.connect(own, sockaddr_of(lo), length(lo)), 0);
  EXPECT_EQ(m.next(ep), "1:IN");
  const int s2 = b.accept(l);
  ASSERT_GE(s2, 0);
  EXPECT_FALSE(b.is_carried(s2));
  EXPECT_EQ(m.now(ep), "");
  EXPECT_EQ(m.add(ep, s2, EPOLLIN, 2), 0);
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 3), 0);
  EXPECT_EQ(b.send(own, "x"), 1);
  EXPECT_EQ(m.next(ep), "2:IN");
  deliver(c, s);
  EXPECT_EQ(m.now(ep), "2:IN 3:IN");
  for (const int fd : {l, s, s2, own}) b.close(fd);
  EXPECT_EQ(m.now(ep), "");
  a.close(c);
}

TEST_P(MuxEpoll, DatagramsOfBothSides) {
  const int u = b.socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK);
  EXPECT_EQ(m.add(ep, u, EPOLLIN, 1), 0);  // before it is bound
  ASSERT_EQ(b.bind(u, 0), 0);
  EXPECT_EQ(m.now(ep), "");
  const uint16_t port = port_of(b.getsockname(u));
  const int from = a.socket(AF_INET, SOCK_DGRAM);
  EXPECT_EQ(a.sendto(from, "one", address(b.host(), port)), 3);
  EXPECT_EQ(m.next(ep), "1:IN");
  EXPECT_EQ(b.recv(u), "one");
  EXPECT_EQ(m.now(ep), "");
  const int own = b.socket(AF_INET, SOCK_DGRAM);
  sockaddr_storage lo = address(b.host(), port);
  reinterpret_cast<sockaddr_in&>(lo).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(b.sendto(own, "two", lo), 3);
  EXPECT_EQ(m.next(ep), "1:IN");
  EXPECT_EQ(m.now(ep), "1:IN");
  EXPECT_EQ(b.recv(u), "two");
  EXPECT_EQ(m.now(ep), "");
  EXPECT_EQ(m.mod(ep, u, EPOLLIN | EPOLLOUT | EPOLLET, 2), 0);
  EXPECT_EQ(m.now(ep), "2:OUT");
  EXPECT_EQ(m.now(ep), "");
  EXPECT_EQ(b.sendto(own, "three", lo), 5);
  EXPECT_EQ(m.next(ep), "2:IN|OUT");
  EXPECT_EQ(m.now(ep), "");
  EXPECT_EQ(m.mod(ep, u, EPOLLIN | EPOLLONESHOT, 3), 0);
  EXPECT_EQ(m.now(ep), "3:IN");
  EXPECT_EQ(m.now(ep), "");
  b.close(u), b.close(own), a.close(from);
}

TEST_P(MuxEpoll, TimeoutsArePrecise) {
  const auto [c, s] = connection();
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 1), 0);
  for (const int ms : {0, 3, 160}) {
    epoll_event e;
    const Instant start = Clock::now_from_kernel();
    EXPECT_EQ(m.wait(ep, &e, 1, ms), 0);
    const Duration took = Clock::now_from_kernel() - start;
    EXPECT_GE(took, Duration::ms(ms));
    EXPECT_LT(took, Duration::ms(ms + 100));  // the machine is shared
  }
  a.close(c), b.close(s);
}

}  // namespace
}  // namespace vireo::test
