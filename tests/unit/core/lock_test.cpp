#include "core/lock.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/sleep.h"

namespace vireo {
namespace {

TEST(Lock, SleeperWakes) {
  Lock l;
  ASSERT_TRUE(l.try_lock());
  EXPECT_FALSE(l.try_lock());
  std::atomic<bool> got{false};
  std::jthread sleeper([&] {
    const LockGuard g(l);
    got = true;
  });
  for (int i = 0; i < 200; ++i)
    std::this_thread::yield();  // most likely asleep by now; either way it must end
  EXPECT_FALSE(got);
  l.unlock();
  sleeper.join();
  EXPECT_TRUE(got);
}

TEST(Lock, FreeInTheChildOfAFork) VIREO_NO_THREAD_ANALYSIS {
  Lock l;
  l.lock();
  l.reset_after_fork();  // as if its holder did not exist here
  EXPECT_TRUE(l.try_lock());
  l.unlock();
}

TEST(Lock, ExcludesAndWakes) {
  constexpr int kThreads = 6;
  constexpr int kRounds = 5000;
  Lock l;
  uint64_t plain = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < kRounds; ++i) {
          LockGuard g(l);
          ++plain;
          if (i % 500 == 0) std::this_thread::yield();
        }
      });
  }
  EXPECT_EQ(plain, uint64_t{kThreads} * kRounds);
  EXPECT_TRUE(l.try_lock()) << "no sleeper is left behind";
  l.unlock();
}

TEST(Sleep, FutexSeesAChangedWordATimeoutAndAWake) {
  std::atomic<uint32_t> w{1};
  EXPECT_EQ(futex_wait(w, 0), Wake::kWoken) << "differs: no sleep";
  EXPECT_EQ(futex_wait(w, 1, Duration::us(100)), Wake::kTimeout);
  EXPECT_EQ(futex_wait(w, 1, Duration::ns(-5)), Wake::kTimeout);
  std::jthread waker([&] {
    w = 2;
    futex_wake(w, 1);
  });
  while (w == 1) futex_wait(w, 1, Duration::s(5));
  EXPECT_EQ(w, 2U);
}

TEST(Sleep, EventFdWakesAPoller) {
  auto e = EventFd::create();
  ASSERT_TRUE(e);
  errno = 77;
  pollfd p{e->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, 0), 0);
  EXPECT_FALSE(e->drain());
  e->signal();
  e->signal();
  EXPECT_EQ(poll(&p, 1, -1), 1);
  EXPECT_TRUE(e->drain());
  EXPECT_FALSE(e->drain());
  EXPECT_EQ(errno, 77) << "errno belongs to the caller";
}

}  // namespace
}  // namespace vireo
