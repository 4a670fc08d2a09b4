#include "core/lock.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "core/sleep.h"

namespace vireo {
namespace {

constexpr auto kNoWork = [](Work) {};

TEST(EngineLock, LockedOrNoted) VIREO_NO_THREAD_ANALYSIS {
  EngineLock l;
  ASSERT_TRUE(l.lock_or_note(Work::kInbox)) << "free: taken, and no note is left";
  EXPECT_FALSE(l.has_work());
  EXPECT_FALSE(l.try_lock());
  EXPECT_FALSE(l.lock_or_note(Work::kTimers));
  EXPECT_FALSE(l.lock_or_note(Work::kClose));
  EXPECT_TRUE(l.has_work());
  Work seen = Work::kNone;
  int runs = 0;
  l.unlock([&](Work w) {
    EXPECT_TRUE(l.is_locked());
    seen |= w;
    if (++runs == 1) {
      EXPECT_FALSE(l.lock_or_note(Work::kRefill)) << "noted while notes run";
    }
  });
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(seen, Work::kTimers | Work::kClose | Work::kRefill);
  EXPECT_FALSE(l.is_locked());
}

TEST(EngineLock, TakeWorkMidway) VIREO_NO_THREAD_ANALYSIS {
  EngineLock l;
  l.lock();
  EXPECT_FALSE(l.lock_or_note(Work::kInbox));
  EXPECT_EQ(l.take_work(), Work::kInbox);
  EXPECT_EQ(l.take_work(), Work::kNone);
  l.unlock([](Work) { FAIL() << "nothing left"; });
}

// Producers publish an increment by a relaxed-free counter each and leave a note; only the lock's
// holder may move it to the plain total. A lost note leaves a count behind at the end; a broken
// lock is a data race or a wrong total.
TEST(EngineLock, NoNoteIsLost) VIREO_NO_THREAD_ANALYSIS {
  constexpr int kThreads = 4;
  constexpr int kRounds = 30000;
  EngineLock l;
  struct alignas(64) Box {
    std::atomic<uint64_t> posted{0};
  };
  std::array<Box, kThreads> boxes;
  uint64_t total = 0;  // plain: guarded by l
  const auto drain = [&](Work w) {
    if (!has(w, Work::kInbox)) return;
    // relaxed: the note orders it, which is what is tested.
    for (auto& b : boxes) total += b.posted.exchange(0, std::memory_order_relaxed);
  };
  std::atomic<uint64_t> noted{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t]() VIREO_NO_THREAD_ANALYSIS {
        for (int i = 0; i < kRounds; ++i) {
          boxes[static_cast<size_t>(t)].posted.fetch_add(1, std::memory_order_relaxed);
          if (l.lock_or_note(Work::kInbox)) {
            drain(Work::kInbox);
            // With two processors, holding on for a moment is what makes the others note.
            if (i % 64 == 0) std::this_thread::yield();
            l.unlock(drain);
          } else {
            noted.fetch_add(1);
          }
        }
      });
  }
  EXPECT_FALSE(l.is_locked());
  for (auto& b : boxes) EXPECT_EQ(b.posted.load(), 0U) << "left behind by a lost note";
  EXPECT_EQ(total, uint64_t{kThreads} * kRounds);
  EXPECT_GT(noted.load(), 0U) << "the test never contended";
}

TEST(EngineLock, SleepersAllGetTheirTurn) VIREO_NO_THREAD_ANALYSIS {
  constexpr int kThreads = 6;
  constexpr int kRounds = 2000;
  EngineLock l;
  uint64_t plain = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&]() VIREO_NO_THREAD_ANALYSIS {
        for (int i = 0; i < kRounds; ++i) {
          l.lock();
          ++plain;
          if (i % 100 == 0) std::this_thread::yield();
          l.unlock(kNoWork);
        }
      });
  }
  EXPECT_EQ(plain, uint64_t{kThreads} * kRounds);
  EXPECT_TRUE(l.try_lock()) << "no SLEEPER is left behind";
  l.unlock(kNoWork);
}

TEST(EngineLock, SleeperWakesWithWorkPending) VIREO_NO_THREAD_ANALYSIS {
  EngineLock l;
  l.lock();
  std::atomic<bool> got{false};
  std::jthread sleeper([&]() VIREO_NO_THREAD_ANALYSIS {
    l.lock();
    got = true;
    l.unlock(kNoWork);
  });
  for (int i = 0; i < 200; ++i)
    std::this_thread::yield();  // most likely asleep by now; either way it must end
  EXPECT_FALSE(got);
  EXPECT_FALSE(l.lock_or_note(Work::kTimers));
  l.unlock(kNoWork);
  sleeper.join();
  EXPECT_TRUE(got);
}

TEST(ControlLock, ExcludesAndWakes) {
  constexpr int kThreads = 6;
  constexpr int kRounds = 5000;
  ControlLock l;
  uint64_t plain = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < kRounds; ++i) {
          ControlGuard g(l);
          ++plain;
          if (i % 500 == 0) std::this_thread::yield();
        }
      });
  }
  EXPECT_EQ(plain, uint64_t{kThreads} * kRounds);
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
  EXPECT_EQ(*wait_fd(e->fd(), 1, Duration()), 0);
  EXPECT_FALSE(e->drain());
  e->signal();
  e->signal();
  EXPECT_EQ(*wait_fd(e->fd(), 1, Duration::max()), 1);
  EXPECT_TRUE(e->drain());
  EXPECT_FALSE(e->drain());
  EXPECT_EQ(errno, 77) << "errno belongs to the caller";
}

}  // namespace
}  // namespace vireo
