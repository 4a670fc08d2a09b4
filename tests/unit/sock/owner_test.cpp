// Whose memory it is (stack/sock/owner.h), in every kind of child that Linux has.
#include "stack/sock/owner.h"

#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <thread>

namespace vireo::test {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr bool kIsThreadSanitizer = true;
#else
constexpr bool kIsThreadSanitizer = false;
#endif

int status_of(pid_t child) {
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, __WALL), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
[[noreturn]] void leave(int status) {
  ::syscall(SYS_exit, status);
  __builtin_unreachable();
}

TEST(OwnerTest, HereInEveryThread) {
  const Owner owner;
  EXPECT_TRUE(owner.is_here());
  bool there = false;
  std::thread([&] { there = owner.is_here(); }).join();
  EXPECT_TRUE(there);
}

/// A child of which no handler tells, and then one that takes its copy over.
TEST(OwnerTest, NotInAForkedChild) {
  Owner owner;
  auto child =
      static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child == 0) leave(owner.is_here() ? 1 : 0);
  EXPECT_EQ(status_of(child), 0);
  child = ::fork();
  if (child == 0) {
    owner.move_here();
    leave(owner.is_here() ? 0 : 1);
  }
  EXPECT_EQ(status_of(child), 0);
  EXPECT_TRUE(owner.is_here());
}

TEST(OwnerTest, AsksTheKernelNothing) {
  const pid_t child = ::fork();
  if (child == 0) {
    const Owner owner;
    ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);  // getpid(2) would be its end
    ::syscall(SYS_exit, owner.is_here() ? 0 : 1);  // not leave(): sanitizers make calls before it
  }
  EXPECT_EQ(status_of(child), 0);
}

TEST(OwnerTest, NotInTheChildOfAVfork) {
  if (kIsThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer makes vfork(2) a fork(2)";
  const Owner owner;
  for (int i = 0; i < 2; ++i) {
    volatile bool there = true, there_again = true;
    Owner::before_vfork();
    const pid_t child = ::vfork();
    if (child == 0) {
      there = owner.is_here();
      there_again = owner.is_here();
      leave(0);
    }
    EXPECT_EQ(status_of(child), 0);
    EXPECT_FALSE(there || there_again);
    EXPECT_TRUE(owner.is_here());
  }
}

TEST(OwnerTest, AsksNoMoreWhenACloneWasWaitedFor) {
  const pid_t tester = ::fork();  // what came before is not ours
  if (tester == 0) {
    static const Owner owner;
    static int there;
    there = -1;
    Owner::before_clone(CLONE_VM | CLONE_THREAD | CLONE_SIGHAND);
    Owner::before_clone(SIGCHLD);
    if (Owner::may_be_child()) leave(1);
    constexpr int kFlags = CLONE_VM | CLONE_VFORK | SIGCHLD;
    Owner::before_clone(kFlags);
    alignas(16) static std::array<std::byte, 65536> stack;
    const pid_t child = ::clone(
        [](void*) {
          there = owner.is_here() ? 1 : 0;
          return 0;
        },
        stack.data() + stack.size(), kFlags, nullptr);
    if (status_of(child) != 0 || there != 0) leave(2);
    if (!owner.is_here()) leave(3);                // this asked
    ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);  // getpid(2) would be its end
    ::syscall(SYS_exit, owner.is_here() && !Owner::may_be_child() ? 0 : 4);
  }
  EXPECT_EQ(status_of(tester), 0);
}

/// The last: from here on it asks.
TEST(OwnerTest, NotInAProcessThatSharesMemory) {
  if (kIsThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer ends a process that shares memory";
  static const Owner owner;
  static int there;
  there = -1;
  Owner::memory_is_shared();
  alignas(16) static std::array<std::byte, 65536> stack;
  const pid_t child = ::clone(
      [](void*) {
        there = owner.is_here() ? 1 : 0;
        return 0;
      },
      stack.data() + stack.size(), CLONE_VM | SIGCHLD, nullptr);
  ASSERT_GT(child, 0);
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(there, 0);
  EXPECT_TRUE(owner.is_here());
}

}  // namespace
}  // namespace vireo::test
