// What a child holds of its parent's sockets, in memory of both.
#include "stack/sock/held_files.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace vireo::test {
namespace {

TEST(HeldFiles, HasWhatIsHeldUntilItIsDropped) {
  auto held = HeldFiles::make(100);
  ASSERT_TRUE(held);
  EXPECT_FALSE(held->holds(7));
  held->hold(7, 3);
  EXPECT_TRUE(held->holds(7));
  EXPECT_TRUE(held->holds(7, 3));
  EXPECT_FALSE(held->holds(7, 4)) << "another File of the same place";
  EXPECT_FALSE(held->is_sent(7));
  EXPECT_FALSE(held->drop(7)) << "nothing was sent";
  EXPECT_FALSE(held->holds(7));
  EXPECT_FALSE(held->drop(7));
}

TEST(HeldFiles, WhatIsSentIsHeldByTheChildAlone) {
  auto held = HeldFiles::make(100);
  ASSERT_TRUE(held);
  held->hold(7, 3);
  EXPECT_FALSE(held->mark_sent(7, 4));
  EXPECT_TRUE(held->mark_sent(7, 3));
  EXPECT_FALSE(held->mark_sent(7, 3)) << "once";
  EXPECT_TRUE(held->holds(7));
  EXPECT_TRUE(held->is_sent(7));
  EXPECT_FALSE(held->holds(7, 3)) << "nothing more to do for the owner";
  held->unmark_sent(7, 3);
  EXPECT_TRUE(held->holds(7, 3));
  EXPECT_TRUE(held->mark_sent(7, 3));
  EXPECT_TRUE(held->drop(7)) << "it is to be received";
}

TEST(HeldFiles, ADroppedOneIsNotSent) {
  auto held = HeldFiles::make(100);
  ASSERT_TRUE(held);
  held->hold(7, 3);
  (void)held->drop(7);
  EXPECT_FALSE(held->mark_sent(7, 3));
  held->unmark_sent(7, 3);
  EXPECT_FALSE(held->holds(7));
}

TEST(HeldFiles, HasNoneBeyondItsEnd) {
  auto held = HeldFiles::make(10);
  ASSERT_TRUE(held);
  held->hold(10, 3);
  EXPECT_FALSE(held->holds(10));
  EXPECT_FALSE(held->mark_sent(10, 3));
  EXPECT_FALSE(held->drop(10));
  EXPECT_FALSE(HeldFiles().holds(0));
}

TEST(HeldFiles, TheOwnerTellsOfItsClose) {
  auto held = HeldFiles::make(100);
  ASSERT_TRUE(held);
  EXPECT_FALSE(held->is_closed_by_owner(7)) << "nothing is known";
  held->tell_of(7, 3);
  EXPECT_TRUE(held->tells_of(7, 3));
  EXPECT_FALSE(held->tells_of(7, 4)) << "another File of the same place";
  EXPECT_FALSE(held->is_closed_by_owner(7));
  EXPECT_FALSE(held->holds(7)) << "what is held is said elsewhere";
  held->closed_by_owner(7);
  EXPECT_TRUE(held->is_closed_by_owner(7));
  EXPECT_FALSE(held->tells_of(7, 3));
  EXPECT_FALSE(held->is_closed_by_owner(6));
  held->closed_by_owner(100);
  EXPECT_FALSE(held->is_closed_by_owner(100)) << "beyond its end";
  EXPECT_FALSE(HeldFiles().is_closed_by_owner(0));
}

TEST(HeldFiles, AChildSharesIt) {
  auto held = HeldFiles::make(100);
  ASSERT_TRUE(held);
  held->hold(1, 5);
  held->hold(2, 6);
  held->tell_of(99, 7);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const bool ok = held->holds(1, 5) && !held->drop(1) && held->tells_of(99, 7);
    ::_exit(ok ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(held->mark_sent(1, 5));
  EXPECT_TRUE(held->mark_sent(2, 6));
}

TEST(HeldFiles, AnotherProcessMapsIt) {
  auto held = HeldFiles::make(100);
  ASSERT_TRUE(held);
  held->hold(1, 5);
  auto other = HeldFiles::map(std::move(held->memory()));
  ASSERT_TRUE(other);
  EXPECT_TRUE(other->holds(1, 5));
  EXPECT_FALSE(other->drop(1));
  EXPECT_FALSE(held->holds(1));
}

TEST(HeldFiles, WhatIsNoSuchMemoryIsRefused) {
  UniqueFd empty(static_cast<int>(::syscall(SYS_memfd_create, "empty", 0U)));
  EXPECT_EQ(HeldFiles::map(std::move(empty)).error().code, EINVAL);
  EXPECT_EQ(HeldFiles::map(UniqueFd()).error().code, EINVAL);
}

}  // namespace
}  // namespace vireo::test
