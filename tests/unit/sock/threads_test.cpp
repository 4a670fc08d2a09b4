// Threads that share sockets: a reader and a writer, closes that race calls, signals that
// interrupt.
#include <fcntl.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "stack/sock/blocking.h"
#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

class Threads : public BothSides {
 protected:
  /// Datagram sockets connected to each other: {a's, b's}.
  std::pair<int, int> datagram_pair() {
    // A host's first socket is bound before the other's is made: it begins in the namespace that
    // socket() has entered.
    const int to = b.socket(AF_INET, SOCK_DGRAM);
    EXPECT_EQ(b.bind(to, 0), 0);
    const int from = a.socket(AF_INET, SOCK_DGRAM);
    EXPECT_EQ(a.bind(from, 0), 0);
    const auto at_a = address(a.host(), port_of(a.getsockname(from)));
    const auto at_b = address(b.host(), port_of(b.getsockname(to)));
    EXPECT_EQ(a.connect(from, sockaddr_of(at_b), length(at_b)), 0);
    EXPECT_EQ(b.connect(to, sockaddr_of(at_a), length(at_a)), 0);
    EXPECT_EQ(a.is_carried(from), ours());
    EXPECT_EQ(b.is_carried(to), ours());
    return {from, to};
  }
};
INSTANTIATE_TEST_SUITE_P(Sides, Threads, testing::Values(Side::kKernel, Side::kVireo),
                         [](const auto& i) {
                           return i.param == Side::kKernel ? "kernel" : "vireo";
                         });

TEST_P(Threads, EveryByteArrivesInOrder) {
  const auto [c, s] = connection();
  constexpr size_t kBytes = 8 << 20;
  const auto byte_at = [](size_t i) { return static_cast<char>(i * 2654435761U >> 13); };
  std::thread writer([&, fd = c] {
    std::string block;
    for (size_t at = 0; at < kBytes;) {
      block.resize(std::min<size_t>(1 + at % 40'000, kBytes - at));
      for (size_t i = 0; i < block.size(); ++i) block[i] = byte_at(at + i);
      ASSERT_EQ(a.send(fd, block), static_cast<ssize_t>(block.size()));
      at += block.size();
    }
    a.shutdown(fd, SHUT_WR);
  });
  size_t got = 0;
  for (;;) {
    const std::string part = b.recv(s, 30'000);
    if (part.empty()) break;
    ASSERT_NE(part[0] == '!' && part.size() < 20, true) << part;
    for (const char ch : part) {
      ASSERT_EQ(ch, byte_at(got)) << "at " << got;
      ++got;
    }
  }
  writer.join();
  EXPECT_EQ(got, kBytes);
  a.close(c);
  b.close(s);
}

TEST_P(Threads, PingPong) {
  const auto [c, s] = connection();
  std::thread echo([&, fd = s] {
    for (;;) {
      const std::string m = b.recv(fd, 100);
      if (m.empty()) return;
      ASSERT_EQ(b.send(fd, m), static_cast<ssize_t>(m.size()));
    }
  });
  for (int i = 0; i < 300; ++i) {
    const std::string m = "message " + std::to_string(i);
    ASSERT_EQ(a.send(c, m), static_cast<ssize_t>(m.size()));
    ASSERT_EQ(a.recv(c, 100), m);
  }
  a.shutdown(c, SHUT_WR);
  echo.join();
  a.close(c);
  b.close(s);
}

// What another thread's poll has queued comes before what the reader's own poll finds.
TEST_P(Threads, DatagramsKeepTheirOrderWhoeverPolls) {
  const auto pair = datagram_pair();
  const int from = pair.first, to = pair.second;
  constexpr uint32_t kDatagrams = 20'000;
  constexpr int32_t kUnread = 8;
  std::atomic<uint32_t> got{0};
  std::thread poller([&] {
    while (got < kDatagrams) b.ready(to);
  });
  std::thread sender([&] {
    for (uint32_t i = 0; i < kDatagrams; ++i) {
      while (static_cast<int32_t>(i - got) >= kUnread) std::this_thread::yield();
      ASSERT_EQ(a.send(from, &i, sizeof i, 0), static_cast<ssize_t>(sizeof i));
    }
  });
  for (uint32_t i = 0; i < kDatagrams; ++i, ++got) {
    uint32_t number = 0;
    EXPECT_EQ(b.recv(to, &number, sizeof number), static_cast<ssize_t>(sizeof number));
    EXPECT_EQ(number, i);
    if (HasFailure()) break;
  }
  got = kDatagrams;
  sender.join();
  poller.join();
  a.close(from);
  b.close(to);
}

TEST_P(Threads, AcceptAndConnectBlock) {
  const int l = b.socket(AF_INET, SOCK_STREAM);
  b.bind(l, 0);
  b.listen(l);
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  std::atomic<int> served{0};
  std::vector<std::thread> servers;
  for (int i = 0; i < 3; ++i)
    servers.emplace_back([&] {
      for (int k = 0; k < 5; ++k) {
        const int s = b.accept(l);
        ASSERT_GE(s, 0);
        EXPECT_EQ(b.recv(s, 2), "hi");
        b.close(s);
        ++served;
      }
    });
  for (int k = 0; k < 15; ++k) {
    const int c = a.socket(AF_INET, SOCK_STREAM);
    ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
    EXPECT_EQ(a.send(c, "hi"), 2);
    EXPECT_EQ(a.recv(c), "");
    a.close(c);
  }
  for (auto& t : servers) t.join();
  EXPECT_EQ(served, 15);
  b.close(l);
}

/// The calling thread, to the first that it may run on.
void pin_to_one_processor() {
  cpu_set_t may, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof may, &may), 0);
  size_t first = 0;
  while (!CPU_ISSET(first, &may)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

// Two sleep, one is woken, goes, and asks for nothing more: what is for the other wakes that, and
// not only once the helper looks. Datagrams: of TCP an ACK is owed, for which it looks soon.
TEST_P(Threads, EachSleeperIsWokenForItsOwn) {
  const auto [c1, s1] = datagram_pair();
  const auto [c2, s2] = datagram_pair();
  constexpr Duration kLong = Duration::ms(300);
  constexpr int kRounds = 20;
  int late = 0;
  for (int i = 0; i < kRounds; ++i) {
    // On one processor, where the other comes first: it is through with all before this one looks.
    std::atomic<int64_t> at{0};
    std::thread stays([&, fd = s2] {
      pin_to_one_processor();
      ASSERT_EQ(setpriority(PRIO_PROCESS, 0, 10), 0);  // of the thread
      EXPECT_EQ(b.recv(fd, 1), "y");
      at = Clock::now().ns();
    });
    ::usleep(10'000);
    std::thread goes([&, fd = s1] {
      pin_to_one_processor();
      EXPECT_EQ(b.recv(fd, 1), "x");
    });
    ::usleep(10'000);  // both sleep
    a.send(c1, "x");
    goes.join();
    ::usleep(5'000);
    const Instant sent = Clock::now();
    a.send(c2, "y");
    stays.join();
    late += at - sent.ns() > kLong.ns() ? 1 : 0;
  }
  EXPECT_LE(late, kRounds / 5) << "a machine may stand still, but not each time";
  for (const int fd : {c1, c2}) a.close(fd);
  for (const int fd : {s1, s2}) b.close(fd);
}

TEST_P(Threads, ShutdownWakesTheReader) {
  const auto [c, s] = connection();
  std::thread reader([&, fd = c] { EXPECT_EQ(a.recv(fd), ""); });
  ::usleep(20'000);
  EXPECT_EQ(a.shutdown(c, SHUT_RDWR), 0);
  reader.join();
  a.close(c);
  b.close(s);
}

TEST_P(Threads, SignalInterruptsAWaitingCall) {
  struct sigaction act{};
  act.sa_handler = [](int) { note_signal(); };  // as preload's wrapper does
  ::sigaction(SIGUSR1, &act, nullptr);
  const auto [c, s] = connection();
  std::atomic<bool> done{false};
  std::thread reader([&, fd = c] {
    EXPECT_EQ(a.recv(fd), "!EINTR");
    done = true;
  });
  ::usleep(20'000);
  while (!done) {
    pthread_kill(reader.native_handle(), SIGUSR1);
    ::usleep(5'000);
  }
  reader.join();
  a.close(c);
  b.close(s);
}

// A spinner that is preempted again and again only burns the processor of others: it shall sleep
// for a while if it would have slept some time, and in any case if others of its process wait.
TEST(SpinPlaces, APreemptedSpinnerSleeps) {
  SpinPlaces places;
  while (places.try_enter()) {
  }
  Instant now = Clock::now();
  const auto preempt = [&] {  // one long absence counts as 2 ms
    places.note_preempted(now = now + Duration::ms(100), Duration::ms(4));
  };
  Waiter follower;
  ASSERT_TRUE(places.follow(follower));
  preempt();
  preempt();
  EXPECT_FALSE(places.is_shared(now) || places.is_contended(now)) << "may be an accident";
  preempt();
  EXPECT_TRUE(places.is_shared(now) && places.is_contended(now));
  places.forget_follower(follower);
  EXPECT_TRUE(places.is_shared(now));
  EXPECT_FALSE(places.is_contended(now)) << "of another program: who must not sleep goes on";
  ASSERT_TRUE(places.follow(follower));
  EXPECT_TRUE(places.is_contended(now + Duration::ms(1999)));
  now = now + Duration::ms(2000);
  EXPECT_FALSE(places.is_contended(now)) << "tried again";
  preempt();
  EXPECT_TRUE(places.is_shared(now + Duration::ms(3999))) << "as before: believed for longer";
  EXPECT_FALSE(places.is_shared(now + Duration::ms(4000)));
  now = now + Duration::s(10);
  preempt();
  preempt();
  now = now + Duration::s(2);
  preempt();
  preempt();
  EXPECT_FALSE(places.is_shared(now)) << "rare ones are not added up";
  preempt();
  EXPECT_TRUE(places.is_shared(now));
  EXPECT_FALSE(places.is_shared(now + Duration::ms(2000))) << "nor remembered";
  places.forget_follower(follower);
}

// Who was told to poll for ever gives way only where it loses a tenth of its time, or goes on
// losing.
TEST(SpinPlaces, ACrowdedProcessorIsNoPlaceToPollForEver) {
  SpinPlaces places;
  Instant now = Clock::now();
  const auto preempt = [&](int times) {
    for (int i = 0; i < times; ++i)
      places.note_preempted(now = now + Duration::ms(20), Duration::ms(4));
  };
  preempt(24);
  EXPECT_TRUE(places.is_shared(now));
  EXPECT_FALSE(places.is_crowded(now)) << "96 ms of a second";
  preempt(1);
  EXPECT_TRUE(places.is_crowded(now));
  EXPECT_TRUE(places.is_crowded(now + Duration::ms(1999)));
  now = now + Duration::ms(2000);
  EXPECT_FALSE(places.is_crowded(now)) << "tried again";
  preempt(4);
  EXPECT_FALSE(places.is_crowded(now));
  preempt(1);
  EXPECT_TRUE(places.is_crowded(now + Duration::ms(3999))) << "as before: believed for longer";
  now = now + Duration::s(20);
  for (int i = 0; i < 9; ++i) places.note_preempted(now = now + Duration::ms(1), Duration::s(3));
  EXPECT_FALSE(places.is_crowded(now)) << "a debugger, a suspended machine";
}

/// Processor time of the calling thread.
int64_t used_by_thread_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

// Who has the engine polls for all. But a holder that lost its processor may wait for that of one
// who waits for it: it must get that at once, not after a turn of the scheduler.
TEST_P(Threads, AHolderThatDoesNotPollIsLeftTheProcessor) {
  if (!ours()) GTEST_SKIP() << "the kernel has no engine";
  const auto [c, s] = connection();
  Engine& e = *b.host().stack().engine_if_any();
  e.acquire();
  bool taken_from_who_polls = false;
  std::thread([&] {
    const Instant now = e.last_poll();
    if (!take_to_poll(e, now + Duration::us(1))) return;
    taken_from_who_polls = true;
    e.unlock();
  }).join();
  std::atomic<int64_t> used_ns{0};
  std::thread waits([&] {
    const int64_t before = used_by_thread_ns();
    while (!take_to_poll(e, Clock::now())) cpu_relax();
    e.unlock();
    used_ns = used_by_thread_ns() - before;
  });
  ::usleep(200'000);
  e.unlock();
  waits.join();
  EXPECT_FALSE(taken_from_who_polls);
  EXPECT_LT(used_ns, Duration::ms(50).ns()) << "of 200 ms";
  a.close(c);
  b.close(s);
}

/// How often the helper threads of this process have slept.
long helper_sleeps() {
  long sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string line;
    bool is_helper = false;
    while (std::getline(status, line)) {
      if (line == "Name:\tvireo") is_helper = true;
      constexpr std::string_view kField = "voluntary_ctxt_switches:";
      if (is_helper && line.starts_with(kField)) sum += std::stol(line.substr(kField.size()));
    }
  }
  return sum;
}

// Each look of the helper takes some 20 us from a program that has one processor: it is the 99.9th
// percentile of a round trip.
TEST_P(Threads, HelperSeldomLooksAtWhoPolls) {
  if (!ours()) GTEST_SKIP() << "the kernel has none";
  const auto [c, s] = connection();
  char byte = 0;
  const auto poll_for = [&, fd = c](Duration d) {
    for (const Instant end = Clock::now() + d; Clock::now() < end;)
      a.recv(fd, &byte, 1, MSG_DONTWAIT);
  };
  poll_for(Duration::ms(200));
  const long before = helper_sleeps();
  poll_for(Duration::ms(400));
  EXPECT_LE(helper_sleeps() - before, 100) << "a look each 10 ms; 400 by the grace";
  // And who stops is served soon: nobody but the helper acknowledges this.
  b.send(s, "x");
  for (int i = 0; i < 5000 && b.ioctl(s, SIOCOUTQ) != 0; ++i) ::usleep(100);
  EXPECT_EQ(b.ioctl(s, SIOCOUTQ), 0);
  a.close(c);
  b.close(s);
}

// Who serves one connection after the other, and none between two, does not ring for each.
TEST_P(Threads, HelperIsNotWokenByEachConnection) {
  if (!ours()) GTEST_SKIP() << "the kernel has none";
  const int l = b.socket(AF_INET, SOCK_STREAM);
  b.bind(l, 0);
  b.listen(l);
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  std::atomic<bool> stop{false};
  std::atomic<int> served{0};
  std::thread server([&] {
    b.host().enter();
    b.fcntl(l, F_SETFL, O_NONBLOCK);
    while (!stop) {
      const int s = b.accept(l);
      if (s < 0) continue;
      EXPECT_EQ(b.recv(s, 1), "x");
      b.close(s);
      ++served;
    }
  });
  const auto serve = [&](int n) {
    for (int i = 0; i < n; ++i) {
      const int c = a.socket(AF_INET, SOCK_STREAM);
      ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
      ASSERT_EQ(a.send(c, "x"), 1);
      EXPECT_EQ(a.recv(c), "");
      a.close(c);
    }
  };
  serve(50);
  const long before = helper_sleeps();
  const Instant begun = Clock::now();
  serve(400);
  const auto looks = 2 * (Clock::now() - begun).ns() / Duration::ms(1).ns();
  EXPECT_LE(helper_sleeps() - before, looks + 100)
      << "of two helpers, looks by the clock and no more";
  stop = true;
  server.join();
  EXPECT_EQ(served, 450);
  b.close(l);
}

// Nor who sleeps until the next request and wakes soon, again and again.
TEST_P(Threads, HelperIsNotWokenByEachSleep) {
  if (!ours()) GTEST_SKIP() << "the kernel has none";
  const auto [c, s] = connection();
  std::thread echo([&, fd = s] {
    while (b.recv(fd, 1) == "x") b.send(fd, "x");
  });
  const auto ask = [&, fd = c](int n) {
    for (int i = 0; i < n; ++i) {
      ::usleep(150);  // longer than it polls
      ASSERT_EQ(a.send(fd, "x"), 1);
      ASSERT_EQ(a.recv(fd, 1), "x");
    }
  };
  ask(500);
  const long before = helper_sleeps();
  const Instant begun = Clock::now();
  ask(2000);
  const auto looks = (Clock::now() - begun).ns() / Duration::ms(1).ns();
  EXPECT_LE(helper_sleeps() - before, looks + 100)
      << "of two helpers, looks by the clock and no more";
  a.shutdown(c, SHUT_WR);
  echo.join();
  a.close(c);
  b.close(s);
}

// A File may be reused while another thread still holds the old Handle: it must be told, not served
// from the new socket. TCP.md 4.46.
TEST_P(Threads, CloseRacesReceive) {
  if (!ours()) GTEST_SKIP() << "the kernel's own business";
  std::atomic<bool> stop{false};
  std::atomic<int> fd{-1};
  std::thread reader([&] {
    char buffer[64];
    const iovec v{buffer, sizeof buffer};
    while (!stop) {
      const Handle h = fd_table().find(fd.load());
      if (!h) continue;
      const auto n = sock::recv(h, {&v, 1}, MSG_DONTWAIT);
      EXPECT_LE(n.value_or(0), 64);
    }
  });
  for (int i = 0; i < 100; ++i) {
    const auto [c, s] = connection();
    fd = c;
    b.send(s, "something");
    a.close(c);
    b.close(s);
  }
  stop = true;
  reader.join();
}

TEST_P(Threads, CloseWhileAnotherSleepsInReceive) {  // TCP.md 4.46
  const auto [c, s] = connection();
  std::thread reader([&, fd = c] { EXPECT_EQ(a.recv(fd), "late"); });
  ::usleep(50'000);
  EXPECT_EQ(a.close(c), 0);  // Linux: the reader's reference keeps the connection
  EXPECT_EQ(b.send(s, "late"), 4);
  reader.join();
  b.close(s);
}

}  // namespace
}  // namespace vireo::test
