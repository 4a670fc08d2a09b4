// The lock of processes: excludes, is taken over from the dead by one only, and is left to the
// stopped.
#include "dev/xdp/group/shared_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <new>
#include <thread>
#include <vector>

namespace vireo::xdp {
namespace {

constexpr Duration kLong = Duration::s(20);
using Took = SharedLock::Took;

/// Memory that the children of a test share.
struct Shared {
  SharedLock lock;
  uint64_t plain = 0;  ///< guarded by the lock
  std::atomic<uint32_t> entered{0}, taken_over{0}, go{0};
};

class SharedLockTest : public ::testing::Test {
 protected:
  SharedLockTest()
      : memory_(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0)),
        shared(*new(memory_) Shared) {}
  ~SharedLockTest() override { munmap(memory_, sizeof(Shared)); }

  pid_t child(const std::function<void()>& body) {
    const pid_t pid = fork();
    if (pid == 0) {
      body();
      _exit(0);
    }
    return pid;
  }
  static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  bool within_a_while(const std::function<bool()>& is_so) {
    for (int tries = 0; tries < 5000; ++tries) {
      if (is_so()) return true;
      usleep(1000);
    }
    return false;
  }
  /// A child that takes the lock as `slot` and keeps it until it is ended.
  pid_t holder(unsigned slot) {
    const pid_t pid = child([&] {
      if (shared.lock.try_lock(slot)) ++shared.entered;
      pause();
    });
    EXPECT_TRUE(within_a_while([&] { return shared.entered == 1; }));
    return pid;
  }

 private:
  void* memory_;

 protected:
  Shared& shared;
};

TEST_F(SharedLockTest, ZeroBytesAreFree) {
  alignas(SharedLock) std::array<std::byte, sizeof(SharedLock)> zero{};
  auto& lock = *reinterpret_cast<SharedLock*>(zero.data());
  EXPECT_FALSE(lock.is_held_by(0));
  EXPECT_TRUE(lock.try_lock(0));
  EXPECT_TRUE(lock.is_held_by(0));
  EXPECT_FALSE(lock.is_held_by(63));
  EXPECT_FALSE(lock.try_lock(0)) << "it is not recursive";
  EXPECT_FALSE(lock.try_lock(63));
  lock.unlock();
  EXPECT_TRUE(lock.try_lock(63));
  lock.unlock();
}

TEST_F(SharedLockTest, ExcludesThreadsOfOneSlotAndOfSeveral) {
  constexpr unsigned kThreads = 4;
  constexpr uint64_t kRounds = 5000;
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < kThreads; ++t)
      threads.emplace_back([&, slot = t / 2] {
        SharedLockWait wait;
        for (uint64_t i = 0; i < kRounds; ++i) {
          ASSERT_EQ(shared.lock.lock(slot, wait, kLong, [](unsigned) { return true; }), Took::kYes);
          ++shared.plain;
          if (i % 500 == 0) std::this_thread::yield();
          shared.lock.unlock();
        }
      });
  }
  EXPECT_EQ(shared.plain, kThreads * kRounds);
}

TEST_F(SharedLockTest, ALiveHolderIsLeftInPeace) {
  ASSERT_TRUE(shared.lock.try_lock(5));
  SharedLockWait wait;
  unsigned asked = 0;
  const auto alive = [&](unsigned slot) {
    EXPECT_EQ(slot, 5U);
    ++asked;
    return true;
  };
  EXPECT_EQ(shared.lock.lock(6, wait, Duration::ms(50), alive), Took::kNo);
  EXPECT_GE(asked, 1U);
  EXPECT_LE(asked, 60U) << "more than once in a millisecond";
  const Instant before = Clock::now_from_kernel();
  EXPECT_EQ(shared.lock.lock(6, wait, Duration::ms(50), alive), Took::kNo);
  EXPECT_LT(Clock::now_from_kernel() - before, Duration::ms(40))
      << "waited for the same hold again";
  shared.lock.unlock();
  ASSERT_TRUE(shared.lock.try_lock(5));
  EXPECT_TRUE(shared.lock.is_held_by(5));
  const Instant again = Clock::now_from_kernel();
  EXPECT_EQ(shared.lock.lock(6, wait, Duration::ms(50), alive), Took::kNo);
  EXPECT_GE(Clock::now_from_kernel() - again, Duration::ms(50)) << "it is another hold";
  shared.lock.unlock();
}

TEST_F(SharedLockTest, TheDataPathWaitsAMillisecondBeforeItAsks) {
  ASSERT_TRUE(shared.lock.try_lock(5));
  SharedLockWait wait;
  unsigned asked = 0;
  const auto dead = [&](unsigned) {
    ++asked;
    return false;
  };
  const Instant t = Instant() + Duration::s(1);
  EXPECT_EQ(shared.lock.try_lock(6, wait, t, dead), Took::kNo);
  EXPECT_EQ(shared.lock.try_lock(6, wait, t + Duration::us(999), dead), Took::kNo);
  EXPECT_EQ(asked, 0U);
  EXPECT_EQ(shared.lock.try_lock(6, wait, t + Duration::ms(1), dead), Took::kFromDead);
  EXPECT_EQ(asked, 1U);
  EXPECT_TRUE(shared.lock.is_held_by(6));
  shared.lock.unlock();
  EXPECT_EQ(shared.lock.try_lock(7, wait, t, dead), Took::kYes);
  // A hold that was seen long ago is not the one of now.
  EXPECT_EQ(shared.lock.try_lock(6, wait, t + Duration::s(9), dead), Took::kNo);
  EXPECT_EQ(asked, 1U);
}

TEST_F(SharedLockTest, OneOfManyTakesOverFromAKilledProcess) {
  constexpr unsigned kTakers = 4;
  for (int round = 0; round < 20; ++round) {
    shared.entered = shared.taken_over = shared.go = 0;
    const pid_t victim = holder(1);
    // It ends before the takers ask: none of them is the parent, so none could wait for it.
    end(victim);
    std::vector<pid_t> takers;
    for (unsigned t = 0; t < kTakers; ++t)
      takers.push_back(child([&, slot = 2 + t] {
        SharedLockWait wait;
        while (shared.go == 0) usleep(100);
        const Took took =
            shared.lock.lock(slot, wait, kLong, [](unsigned holder) { return holder != 1; });
        if (took == Took::kFromDead) ++shared.taken_over;
        if (took != Took::kNo) ++shared.plain;
        shared.lock.unlock();
      }));
    shared.plain = 0;
    shared.go = 1;
    for (const pid_t taker : takers) waitpid(taker, nullptr, 0);
    ASSERT_EQ(shared.taken_over, 1U);
    ASSERT_EQ(shared.plain, kTakers);
  }
}

TEST_F(SharedLockTest, WhoDiesInTheRepairLeavesItToTheNext) {
  end(holder(1));
  const pid_t second = child([&] {
    SharedLockWait wait;
    if (shared.lock.lock(2, wait, kLong, [](unsigned) { return false; }) == Took::kFromDead)
      ++shared.taken_over;
    pause();
  });
  EXPECT_TRUE(within_a_while([&] { return shared.taken_over == 1; }));
  end(second);
  SharedLockWait wait;
  EXPECT_EQ(shared.lock.lock(3, wait, kLong, [](unsigned slot) { return slot != 2; }),
            Took::kFromDead);
  shared.lock.unlock();
  EXPECT_EQ(shared.lock.lock(3, wait, kLong, [](unsigned) { return false; }), Took::kYes);
}

// Children take the lock again and again and are killed at any instruction.
TEST_F(SharedLockTest, KilledAtAnyInstructionItIsNeverLost) {
  constexpr unsigned kRounds = 100;
  std::array<std::atomic<bool>, kRounds + 1> dead{};  // by slot
  SharedLockWait wait;
  unsigned from_dead = 0;
  for (unsigned round = 0; round < kRounds; ++round) {
    shared.entered = 0;
    const pid_t victim = child([&] {
      shared.entered = 1;
      for (;;) {
        if (!shared.lock.try_lock(round)) continue;
        shared.plain = shared.plain + 1;
        shared.lock.unlock();
      }
    });
    ASSERT_TRUE(within_a_while([&] { return shared.entered == 1; }));
    usleep(200 + round * 37 % 500);
    end(victim);
    dead[round] = true;
    const Took took =
        shared.lock.lock(kRounds, wait, kLong, [&](unsigned slot) { return !dead[slot]; });
    ASSERT_NE(took, Took::kNo);
    if (took == Took::kFromDead) ++from_dead;
    shared.lock.unlock();
  }
  EXPECT_GT(from_dead, 0U) << "no round met the holder inside";
}

}  // namespace
}  // namespace vireo::xdp
