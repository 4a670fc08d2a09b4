#include "core/biased_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/lock.h"

namespace vireo {
namespace {

/// Holds it `times` in a row.
void hold(BiasedLock& l, uint32_t times) {
  for (uint32_t i = 0; i < times; ++i) const LockGuard guard(l);
}

/// In a thread of its own, which ends before it returns.
template <class F>
void elsewhere(F f) {
  std::jthread(f).join();
}

/// Is it free for others?
bool is_free(BiasedLock& l) {
  bool got = false;
  elsewhere([&] {
    if (!l.try_lock()) return;
    got = true;
    l.unlock();
  });
  return got;
}

class Biased : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(BiasedLock::allow()); }
  BiasedLock l;
};

TEST_F(Biased, AfterARowOfOneThread) {
  hold(l, BiasedLock::kRow);
  EXPECT_FALSE(l.is_biased());
  hold(l, 1);
  EXPECT_TRUE(l.is_biased());
  hold(l, 10);
  EXPECT_TRUE(l.is_biased());
}

TEST_F(Biased, NoRowWhereTwoTakeTurns) {
  std::atomic<int> turn{0};
  const auto half = [&](int mine) {
    for (uint32_t i = 0; i < BiasedLock::kRow + 16; ++i) {
      while (turn.load() != mine) std::this_thread::yield();
      hold(l, 1);
      turn.store(1 - mine);
    }
  };
  std::jthread other(half, 1);
  half(0);
  other.join();
  EXPECT_FALSE(l.is_biased());
}

TEST_F(Biased, ExcludesWhileTheOwnerIsInside) VIREO_NO_THREAD_ANALYSIS {
  hold(l, BiasedLock::kRow + 1);
  l.lock();
  EXPECT_TRUE(l.is_biased());
  EXPECT_FALSE(is_free(l)) << "its owner is at work";
  EXPECT_TRUE(l.is_biased()) << "and who only tries leaves it to it";
  std::atomic<bool> got{false};
  std::jthread waits([&] {
    const LockGuard guard(l);
    got = true;
  });
  while (l.is_biased()) std::this_thread::yield();  // claimed
  EXPECT_FALSE(got);
  l.unlock();
  waits.join();
  EXPECT_TRUE(got);
  EXPECT_TRUE(is_free(l));
}

TEST_F(Biased, GivenInTheMiddleOfAHold) VIREO_NO_THREAD_ANALYSIS {
  hold(l, BiasedLock::kRow);
  l.lock();
  EXPECT_TRUE(l.is_biased());
  EXPECT_FALSE(is_free(l));
  l.unlock();
  EXPECT_TRUE(is_free(l));
}

TEST_F(Biased, WhoSharesItIsSoonLeftAlone) {
  hold(l, BiasedLock::kRow + 1);
  elsewhere([&] { hold(l, 1); });
  EXPECT_FALSE(l.is_biased());
  hold(l, 16 * BiasedLock::kRowAgain);
  EXPECT_FALSE(l.is_biased()) << "a longer row is asked for now";
  hold(l, 256 * BiasedLock::kRowAgain);
  EXPECT_TRUE(l.is_biased());
  elsewhere([&] { hold(l, 1); });
  hold(l, 512 * BiasedLock::kRowAgain);
  EXPECT_FALSE(l.is_biased()) << "and then one that is hardly ever seen";
}

TEST_F(Biased, AVisitIsNotHeldAgainstIt) {
  hold(l, BiasedLock::kRow);
  for (int i = 0; i < 5; ++i) {
    hold(l, BiasedLock::kRowAgain + 1);
    EXPECT_TRUE(l.is_biased()) << i;
    elsewhere([&] {
      BiasedLock::visit_only();
      hold(l, 2 * BiasedLock::kRow);
    });
    EXPECT_FALSE(l.is_biased()) << "a visitor gets none";
  }
}

/// A former owner may be just about to come in, and has lost its processor there.
TEST_F(Biased, OfOneThreadAlone) {
  hold(l, BiasedLock::kRow + 1);
  elsewhere([&] {
    hold(l, 512 * BiasedLock::kRowAgain);
    EXPECT_FALSE(l.is_biased());
  });
  hold(l, 257 * BiasedLock::kRowAgain);
  EXPECT_TRUE(l.is_biased()) << "its own again";
}

TEST_F(Biased, OfAThreadThatHasEnded) {
  elsewhere([&] { hold(l, BiasedLock::kRow + 1); });
  EXPECT_TRUE(l.is_biased());
  elsewhere([&] { hold(l, 1); });  // perhaps at the same place in memory
  EXPECT_FALSE(l.is_biased());
}

TEST_F(Biased, InTheChildOfAFork) {
  hold(l, BiasedLock::kRow + 1);
  BiasedLock others;
  elsewhere([&] { hold(others, BiasedLock::kRow + 1); });
  ASSERT_TRUE(others.is_biased());
  const pid_t child = fork();
  if (child == 0) {
    // What this thread had is its still; what one had that is not here is taken away from it.
    alarm(10);
    hold(l, 1);
    const bool kept = l.is_biased();
    hold(others, 1);
    const bool taken = !others.is_biased();
    l.lock();
    l.reset_after_fork();
    const bool anew = l.try_lock();
    _exit(kept && taken && anew ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

/// An owner, some that share it, and a visitor: nobody is let in beside another, and nobody sleeps
/// for ever.
TEST_F(Biased, ExcludesWhoeverComes) {
  constexpr int kSharers = 2;
  constexpr uint32_t kHolds = 20'000;
  for (int round = 0; round < 30; ++round) {
    BiasedLock shared;
    hold(shared, BiasedLock::kRow + 1);
    ASSERT_TRUE(shared.is_biased());
    uint64_t plain = 0;
    std::atomic<int> begun{0};
    std::atomic<bool> end{false};
    std::atomic<uint64_t> others{0};
    std::vector<std::jthread> threads;
    threads.reserve(kSharers + 1);
    const auto share = [&] {
      for (uint32_t i = 0; i < kHolds; ++i) {
        const LockGuard guard(shared);
        ++plain;
      }
      others += kHolds;
    };
    threads.emplace_back([&] {
      BiasedLock::visit_only();
      ++begun;
      while (!end.load()) {
        if (shared.try_lock()) {
          ++plain;
          ++others;
          shared.unlock();
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    });
    uint64_t mine = 0;
    const auto own = [&](uint32_t times) {
      for (uint32_t i = 0; i < times; ++i, ++mine) {
        const LockGuard guard(shared);
        ++plain;
      }
    };
    while (begun == 0) std::this_thread::yield();
    own(20 * BiasedLock::kRowAgain);  // visited, and biased again, some times
    for (int t = 0; t < kSharers; ++t) threads.emplace_back(share);
    own(kHolds);
    for (size_t t = 1; t < threads.size(); ++t) threads[t].join();
    own(kHolds);
    end = true;
    threads.clear();
    EXPECT_EQ(plain, mine + others);
    EXPECT_TRUE(is_free(shared));
  }
}

}  // namespace
}  // namespace vireo
