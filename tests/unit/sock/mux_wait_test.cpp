// poll and select, signals, and many threads at once: the same script on the kernel's sockets and
// on ours.
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "tests/unit/sock/mux.h"

namespace vireo::test {
namespace {

class MuxWait : public BothSides {
 protected:
  Mux m{b};
  void deliver(int from, int to, const char* text = "x") { test::deliver(a, from, b, to, text); }
  std::string poll_text(std::vector<pollfd> fds, int timeout_ms) {
    const int n = m.poll(fds, timeout_ms);
    std::string s = std::to_string(n);
    for (const pollfd& p : fds) s += " " + bits_text(static_cast<uint16_t>(p.revents));
    return s;
  }
};
INSTANTIATE_TEST_SUITE_P(Sides, MuxWait, testing::Values(Side::kKernel, Side::kVireo),
                         [](const auto& i) {
                           return i.param == Side::kKernel ? "kernel" : "vireo";
                         });

TEST_P(MuxWait, PollMixesBothKinds) {
  const auto [c, s] = connection();
  int p[2];
  ASSERT_EQ(::pipe(p), 0);
  const pollfd of_s{s, POLLIN, 0}, of_c{c, POLLOUT, 0}, of_p{p[0], POLLIN, 0}, none{-1, POLLIN, 0};
  EXPECT_EQ(poll_text({of_s, of_p, none}, 0), "0   ");
  EXPECT_EQ(poll_text({of_s, of_c, of_p}, 0), "1  OUT ");
  deliver(c, s);
  EXPECT_EQ(poll_text({of_s, of_c, of_p}, 0), "2 IN OUT ");
  EXPECT_EQ(::write(p[1], "x", 1), 1);
  EXPECT_EQ(poll_text({of_s, none, of_p, of_s}, 0), "3 IN  IN IN");
  const int closed = ::dup(p[0]);
  ::close(closed);
  std::vector<pollfd> bad{{closed, POLLIN, 0}, of_s};
  EXPECT_EQ(m.poll(bad, 0), 2);
  EXPECT_EQ(bad[0].revents, POLLNVAL);
  EXPECT_EQ(a.close(c), 0);
  ASSERT_TRUE(b.await(s, POLLRDHUP));
  EXPECT_EQ(poll_text({{s, POLLRDHUP, 0}}, 0), "1 RDHUP");
  ::close(p[0]), ::close(p[1]);
  b.close(s);
}

/// Who asks without waiting and has data of ours makes no system call each time; what is the
/// kernel's is told within kBetweenLooks all the same, and in the next call where ours has nothing.
TEST_P(MuxWait, AskingWithoutWaitingSparesTheKernelAndMissesNothing) {
  const auto [c, s] = connection();
  const int event = ::eventfd(0, EFD_NONBLOCK);
  const int ep = m.create();
  ASSERT_EQ(m.add(ep, s, EPOLLIN, 1), 0);
  ASSERT_EQ(m.add(ep, event, EPOLLIN, 2), 0);
  // By one way to ask or the other. @return "s" for the socket, "e" for the eventfd.
  const timespec none{};
  const auto asked = [&](bool by_epoll) -> std::string {
    std::string told;
    if (by_epoll) {
      epoll_event got[4];
      const int n = m.wait(ep, got, 4, 0);
      for (int i = 0; i < n; ++i) told += got[i].data.u64 == 1 ? 's' : 'e';
      return told;
    }
    pollfd p[2] = {{s, POLLIN, 0}, {event, POLLIN, 0}};
    if (GetParam() == Side::kKernel)
      (void)::poll(p, 2, 0);
    else
      (void)sock::poll(p, &none, nullptr);
    if (p[0].revents != 0) told += 's';
    if (p[1].revents != 0) told += 'e';
    return told;
  };
  const auto has = [](const std::string& told, char what) { return told.contains(what); };
  eventfd_t v;
  for (const bool by_epoll : {true, false}) {
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(asked(by_epoll), "");
      ASSERT_EQ(::eventfd_write(event, 1), 0);
      ASSERT_EQ(asked(by_epoll), "e") << i;
      ASSERT_EQ(::eventfd_read(event, &v), 0);
    }
    deliver(c, s);
    int spared = 0;
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(has(asked(by_epoll), 's'));
      ASSERT_EQ(::eventfd_write(event, 1), 0);
      spared += !has(asked(by_epoll), 'e');
      const auto end = Clock::now() + Duration::s(5);
      bool is_told = false;
      while (!is_told && Clock::now() < end) is_told = has(asked(by_epoll), 'e');
      ASSERT_TRUE(is_told) << i;
      ASSERT_EQ(::eventfd_read(event, &v), 0);
    }
    if (GetParam() == Side::kKernel) {
      EXPECT_EQ(spared, 0);
    }
#ifndef __SANITIZE_THREAD__  // there a call takes longer than a look is good for
    if (GetParam() == Side::kVireo) {
      EXPECT_GT(spared, 100);
    }
#endif
    ASSERT_EQ(b.recv(s), "x");
  }
  m.close(ep), ::close(event);
  a.close(c), b.close(s);
}

TEST_P(MuxWait, PollWakesFromSpinAndSleep) {
  const auto [c, s] = connection();
  int p[2];
  ASSERT_EQ(::pipe(p), 0);
  for (const int pause_ms : {1, 150}) {
    for (const bool by_pipe : {false, true}) {
      std::thread sender([&, from = c] {
        std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
        if (by_pipe)
          EXPECT_EQ(::write(p[1], "x", 1), 1);
        else
          a.send(from, "x");
      });
      EXPECT_EQ(poll_text({{s, POLLIN, 0}, {p[0], POLLIN, 0}}, 5000), by_pipe ? "1  IN" : "1 IN ");
      sender.join();
      char byte;
      if (by_pipe)
        EXPECT_EQ(::read(p[0], &byte, 1), 1);
      else
        EXPECT_EQ(b.recv(s), "x");
    }
  }
  ::close(p[0]), ::close(p[1]);
  a.close(c), b.close(s);
}

TEST_P(MuxWait, PollOfManyUsesTheHeap) {
  const auto [c, s] = connection();
  const int event = ::eventfd(0, EFD_NONBLOCK);
  std::vector<pollfd> fds(300, {event, POLLIN, 0});
  for (size_t i = 0; i < fds.size(); i += 2) fds[i].fd = s;
  EXPECT_EQ(m.poll(fds, 0), 0);
  EXPECT_EQ(m.poll(fds, 120), 0);
  deliver(c, s);
  EXPECT_EQ(m.poll(fds, -1), 150);
  ::close(event);
  a.close(c), b.close(s);
}

TEST_P(MuxWait, SelectIsPollInBits) {
  const auto [c, s] = connection();
  int p[2];
  ASSERT_EQ(::pipe(p), 0);
  // More than an fd_set holds: a program may allocate its own.
  const int high = ::fcntl(p[0], F_DUPFD, 1500);
  ASSERT_GE(high, 1500);
  constexpr size_t kWords = 2048 / 64;
  const auto bit = [](unsigned long* set, int fd) -> bool {
    return (set[fd / 64] >> (fd % 64) & 1) != 0;
  };
  unsigned long in[kWords] = {}, out[kWords] = {}, pri[kWords] = {};
  const auto ask = [&] {
    for (auto* set : {in, out, pri}) std::fill(set, set + kWords, 0UL);
    for (const int fd : {s, high}) in[fd / 64] |= 1UL << (fd % 64);
    out[s / 64] |= 1UL << (s % 64);
    pri[s / 64] |= 1UL << (s % 64);
    return m.select(high + 1, reinterpret_cast<fd_set*>(in), reinterpret_cast<fd_set*>(out),
                    reinterpret_cast<fd_set*>(pri), 0);
  };
  EXPECT_EQ(ask(), 1);
  EXPECT_TRUE(bit(out, s));
  EXPECT_FALSE(bit(in, s) || bit(pri, s) || bit(in, high));
  deliver(c, s);
  EXPECT_EQ(::write(p[1], "x", 1), 1);
  EXPECT_EQ(ask(), 3);
  EXPECT_TRUE(bit(in, s) && bit(out, s) && bit(in, high));
  // The end is readable, and no exception.
  EXPECT_EQ(b.recv(s), "x");
  EXPECT_EQ(a.close(c), 0);
  ASSERT_TRUE(b.await(s, POLLRDHUP));
  EXPECT_EQ(ask(), 3);
  EXPECT_FALSE(bit(pri, s));
  fd_set only;
  FD_ZERO(&only);
  FD_SET(s, &only);
  EXPECT_EQ(b.shutdown(s, SHUT_WR), 0);
  ASSERT_TRUE(b.await(s, POLLHUP));
  EXPECT_EQ(m.select(s + 1, nullptr, nullptr, &only, 120), 0);  // hung up, and not what was asked
  EXPECT_FALSE(FD_ISSET(s, &only));
  ::close(high);
  FD_SET(s, &only);
  in[high / 64] |= 1UL << (high % 64);
  EXPECT_EQ(m.select(high + 1, reinterpret_cast<fd_set*>(in), nullptr, nullptr, 0), -EBADF);
  EXPECT_EQ(m.select(-1, nullptr, nullptr, nullptr, 0), -EINVAL);
  ::close(p[0]), ::close(p[1]);
  b.close(s);
}

// ---- signals

void on_signal(int) { note_signal(); }  // as preload's wrapper does

TEST_P(MuxWait, SignalsInterruptSpinAndSleep) {
  struct sigaction action{};
  action.sa_handler = on_signal;
  struct sigaction before;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  const auto [c, s] = connection();
  const int ep = m.create();
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 1), 0);
  sigset_t usr1, old;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  for (const int pause_ms : {5, 200}) {
    const pthread_t self = ::pthread_self();
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
      ::pthread_kill(self, SIGUSR1);
    });
    epoll_event e;
    EXPECT_EQ(m.wait(ep, &e, 1, 5000), -EINTR);
    killer.join();
    std::thread again([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
      ::pthread_kill(self, SIGUSR1);
    });
    std::vector<pollfd> fds{{s, POLLIN, 0}};
    EXPECT_EQ(m.poll(fds, 5000), -EINTR);
    again.join();
  }
  // Blocked but for the wait: it is pending when the wait begins.
  ::pthread_sigmask(SIG_BLOCK, &usr1, &old);
  ::pthread_kill(::pthread_self(), SIGUSR1);
  epoll_event e;
  EXPECT_EQ(m.wait(ep, &e, 1, 50), 0);
  EXPECT_EQ(m.wait(ep, &e, 1, 5000, &old), -EINTR);
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, &old, &after);
  EXPECT_EQ(sigismember(&after, SIGUSR1), 1);  // put back
  ::sigaction(SIGUSR1, &before, nullptr);
  m.close(ep);
  a.close(c), b.close(s);
}

// ---- threads

/// The kernel waits for its own descriptors by itself; what comes from elsewhere ends that.
TEST_P(MuxWait, TheKernelsAloneAndThenOneMore) {
  const int ep = m.create();
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  ASSERT_EQ(m.add(ep, pipe[0], EPOLLIN, 1), 0);
  EXPECT_EQ(m.now(ep), "");
  epoll_event all[4] = {};
  const auto wait_for = [&](uint64_t data, const std::function<void()>& then) {
    std::thread waiters[2];  // the kernel has one, the other one sleeps as ever
    for (std::thread& w : waiters)
      w = std::thread([&] {
        epoll_event e[4] = {};
        const int n = m.wait(ep, e, 4, 5000);
        EXPECT_EQ(n, 1);
        EXPECT_EQ(uint64_t{e[0].data.u64}, data);
      });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    then();
    for (std::thread& w : waiters) w.join();
  };
  wait_for(1, [&] { EXPECT_EQ(::write(pipe[1], "x", 1), 1); });
  EXPECT_EQ(m.now(ep), "1:IN");
  char byte;
  EXPECT_EQ(::read(pipe[0], &byte, 1), 1);
  EXPECT_EQ(m.wait(ep, all, 4, 1), 0);
  const auto [c, s] = connection();
  deliver(c, s);
  wait_for(42, [&, s = s] { EXPECT_EQ(m.add(ep, s, EPOLLIN, 42), 0); });
  EXPECT_EQ(m.now(ep), "42:IN");
  EXPECT_EQ(m.now(ep, 1), "42:IN");
  m.close(ep);
  a.close(c), b.close(s);
  ::close(pipe[0]), ::close(pipe[1]);
}

TEST_P(MuxWait, CtlAndCloseWhileAnotherWaits) {
  const auto [c, s] = connection();
  const int ep = m.create();
  epoll_event e{};
  std::thread waiter([&] { EXPECT_EQ(m.wait(ep, &e, 1, 5000), 1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // asleep, with nothing of ours
  deliver(c, s);
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 42), 0);
  waiter.join();
  EXPECT_EQ(uint64_t{e.data.u64}, 42U);
  // Closed while it sleeps: it goes on sleeping, and hears of the other one.
  EXPECT_EQ(b.recv(s), "x");
  const auto [c2, s2] = connection();
  EXPECT_EQ(m.add(ep, s2, EPOLLIN, 43), 0);
  std::thread second([&] { EXPECT_EQ(m.wait(ep, &e, 1, 5000), 1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_EQ(b.close(s), 0);
  a.close(c);
  EXPECT_EQ(a.send(c2, "y"), 1);
  second.join();
  EXPECT_EQ(uint64_t{e.data.u64}, 43U);
  m.close(ep);
  a.close(c2), b.close(s2);
}

TEST_P(MuxWait, ThreadsShareTheEvents) {
  // Oneshot: every byte is taken by one thread, and none is forgotten.
  constexpr int kPairs = 6, kBytes = 300, kThreads = 3;
  const int ep = m.create();
  const int stop = ::eventfd(0, EFD_NONBLOCK);
  EXPECT_EQ(m.add(ep, stop, EPOLLIN, 1000), 0);
  std::vector<std::pair<int, int>> pairs;
  for (uint64_t i = 0; i < kPairs; ++i) {
    pairs.push_back(connection());
    EXPECT_EQ(b.fcntl(pairs.back().second, F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(m.add(ep, pairs.back().second, EPOLLIN | EPOLLONESHOT, i), 0);
  }
  std::atomic<int> got{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (;;) {
        epoll_event events[4];
        const int n = m.wait(ep, events, 4, 20'000);
        ASSERT_GT(n, 0) << "forgotten at " << got.load();
        for (int i = 0; i < n; ++i) {
          if (events[i].data.u64 == 1000) return;
          const int fd = pairs[events[i].data.u64].second;
          for (std::string s; (s = b.recv(fd, 16)) != "!EAGAIN";) got += static_cast<int>(s.size());
          EXPECT_EQ(m.mod(ep, fd, EPOLLIN | EPOLLONESHOT, events[i].data.u64), 0);
        }
      }
    });
  std::mt19937 random(1);
  for (int i = 0; i < kBytes; ++i) {
    ASSERT_EQ(a.send(pairs[random() % kPairs].first, "x"), 1);
    if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  const auto end = Clock::now() + Duration::s(20);
  while (got != kBytes && Clock::now() < end) ::usleep(200);
  EXPECT_EQ(got, kBytes);
  ASSERT_EQ(::eventfd_write(stop, 1), 0);
  for (auto& t : threads) t.join();
  m.close(ep), ::close(stop);
  for (const auto& [c, s] : pairs) a.close(c), b.close(s);
}

TEST_P(MuxWait, ChurnOfItemsUnderWaiters) {
  const int ep = m.create();
  std::atomic<bool> done{false};
  std::vector<std::thread> waiters;
  for (int t = 0; t < 2; ++t)
    waiters.emplace_back([&] {
      while (!done) {
        epoll_event events[8];
        const int n = m.wait(ep, events, 8, 5);
        ASSERT_GE(n, 0);
        for (int i = 0; i < n; ++i) ASSERT_LT(uint64_t{events[i].data.u64}, 8U);
      }
    });
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i < 4; ++i) pairs.push_back(connection());
  std::mt19937 random(2);
  for (int i = 0; i < 600; ++i) {
    const auto& [c, s] = pairs[random() % pairs.size()];
    switch (random() % 5) {
      case 0:
        m.add(ep, s, EPOLLIN | EPOLLOUT | EPOLLET, random() % 8);
        break;
      case 1:
        m.mod(ep, s, EPOLLIN, random() % 8);
        break;
      case 2:
        m.del(ep, s);
        break;
      case 3:
        a.send(c, "x");
        break;
      default:
        b.recv(s, 4096, MSG_DONTWAIT);
        break;
    }
  }
  done = true;
  for (auto& t : waiters) t.join();
  for (const auto& [c, s] : pairs) a.close(c), b.close(s);
  EXPECT_EQ(m.now(ep), "");
  m.close(ep);
}

// ---- fork

TEST(MuxFork, TheChildsCopyServesWhatIsTheKernels) {
  Api a{hosts().a, Side::kVireo}, b{hosts().b, Side::kVireo};
  Mux m{b};
  const int l = b.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
  ASSERT_EQ(b.bind(l, 0), 0);
  ASSERT_EQ(b.listen(l), 0);
  const uint16_t port = port_of(b.getsockname(l));
  const auto to = address(b.host(), port);
  const int c = a.socket(AF_INET, SOCK_STREAM);
  ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
  ASSERT_TRUE(b.await(l, POLLIN));
  const int s = b.accept(l);
  ASSERT_GE(s, 0);
  int p[2];
  ASSERT_EQ(::pipe(p), 0);
  const int ep = m.create();
  EXPECT_EQ(m.add(ep, s, EPOLLIN, 1), 0);
  EXPECT_EQ(m.add(ep, p[0], EPOLLIN, 2), 0);
  EXPECT_EQ(m.add(ep, l, EPOLLIN, 3), 0);
  EXPECT_EQ(m.now(ep), "");

  settle_before_fork();
  hosts().a.stack().fork_prepare();
  hosts().b.stack().fork_prepare();
  const pid_t pid = ::fork();
  if (pid == 0) {
    hosts().b.stack().fork_child();
    hosts().a.stack().fork_child();
    if (m.now(ep) != "1:IN|ERR|HUP") ::_exit(1);
    if (b.close(s) != 0 || m.now(ep) != "") ::_exit(2);
    if (::write(p[1], "x", 1) != 1 || m.next(ep) != "2:IN") ::_exit(3);
    char byte;
    if (::read(p[0], &byte, 1) != 1 || m.now(ep) != "") ::_exit(4);
    b.host().enter();
    const int own = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_storage lo = to;
    reinterpret_cast<sockaddr_in&>(lo).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(own, sockaddr_of(lo), length(lo)) != 0 || m.next(ep) != "3:IN") ::_exit(5);
    const int taken = b.accept(l);
    if (taken < 0 || m.now(ep) != "") ::_exit(6);
    ::_exit(0);
  }
  hosts().b.stack().fork_parent();
  hosts().a.stack().fork_parent();
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(m.now(ep), "");
  deliver(a, c, b, s, "x");
  EXPECT_EQ(m.now(ep), "1:IN");
  ::close(p[0]), ::close(p[1]);
  m.close(ep), a.close(c), b.close(s), b.close(l);
}

// ---- a random script, run on the kernel and on ours, event for event

std::string random_script(Api& a, Api& b, uint32_t seed,
                          const std::vector<std::pair<int, int>>& pairs) {
  Mux m{b};
  std::mt19937 random(seed);
  int eps[2] = {m.create(), m.create()};
  int events[2] = {::eventfd(0, EFD_NONBLOCK), ::eventfd(0, EFD_NONBLOCK)};
  std::vector<int> fds;
  for (const auto& p : pairs) fds.push_back(p.second);
  for (const int e : events) fds.push_back(e);
  fds.push_back(eps[1]);
  std::string log;
  static constexpr uint32_t kInterest[] = {EPOLLIN, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLRDHUP, 0};
  static constexpr uint32_t kFlags[] = {0, 0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
  for (int step = 0; step < 300; ++step) {
    const size_t which = random() % fds.size();
    const int ep = eps[random() % 2];
    const int fd = fds[which];
    const uint32_t interest = kInterest[random() % 4] | kFlags[random() % 5];
    const bool is_socket = which < pairs.size();
    log += "\n" + std::to_string(step) + " " + std::to_string(ep == eps[1]) + " " +
           std::to_string(which) + " ";
    switch (random() % 8) {
      case 0:
      case 1:
        log += "add " + std::to_string(m.add(ep, fd, interest, which));
        break;
      case 2:
        log += "mod " + std::to_string(m.mod(ep, fd, interest, which));
        break;
      case 3:
        log += "del " + std::to_string(m.del(ep, fd));
        break;
      case 4:
      case 5:
        if (is_socket) {
          deliver(a, pairs[which].first, b, fd, "x");
        } else if (which < fds.size() - 1) {
          ::eventfd_write(fd, 1);
        }
        break;
      default:
        if (is_socket) {
          b.recv(fd, 4096, MSG_DONTWAIT);
        } else if (which < fds.size() - 1) {
          eventfd_t v;
          (void)!::eventfd_read(fd, &v);
        }
    }
    if (random() % 2 == 0) log += " [" + m.now(ep) + "]";
  }
  for (const int e : eps) m.close(e);
  for (const int e : events) ::close(e);
  return log;
}

TEST(MuxModel, RandomScriptsGiveTheSameEvents) {
  Api ka{hosts().a, Side::kKernel}, kb{hosts().b, Side::kKernel};
  Api va{hosts().a, Side::kVireo}, vb{hosts().b, Side::kVireo};
  const auto connect = [](Api& a, Api& b) {
    const int l = b.socket(AF_INET, SOCK_STREAM);
    EXPECT_EQ(b.bind(l, 0), 0);
    EXPECT_EQ(b.listen(l), 0);
    const auto to = address(b.host(), port_of(b.getsockname(l)));
    const int c = a.socket(AF_INET, SOCK_STREAM);
    EXPECT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
    const int s = b.accept(l);
    b.close(l);
    return std::pair{c, s};
  };
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::vector<std::pair<int, int>> k, v;
    for (int i = 0; i < 3; ++i) k.push_back(connect(ka, kb)), v.push_back(connect(va, vb));
    const std::string by_kernel = random_script(ka, kb, seed, k);
    const std::string by_us = random_script(va, vb, seed, v);
    EXPECT_EQ(by_kernel, by_us) << "seed " << seed;
    for (const auto& [c, s] : k) ka.close(c), kb.close(s);
    for (const auto& [c, s] : v) va.close(c), vb.close(s);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace vireo::test
