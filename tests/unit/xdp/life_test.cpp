// Who counts as alive, burial, and the control lock.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/unit/xdp/process.h"

namespace vireo::xdp::test {
namespace {

class XdpGroupLife : public ::testing::Test {
 protected:
  void SetUp() override { alarm(120); }
  void TearDown() override { alarm(0); }
  const std::string name_ = unique_name();
};

uint64_t bit(unsigned slot) { return uint64_t{1} << slot; }

TEST_F(XdpGroupLife, AKilledMemberIsDeadUntilBuriedAndASlotIsNotGivenBefore) {
  Process a(name_), b(name_);
  const auto first = a.entered(), second = b.entered();
  ASSERT_EQ(first.error | second.error, 0);
  EXPECT_EQ(a.ask(Ask::kIsAlive, second.slot), 1U);
  EXPECT_EQ(a.ask(Ask::kIsAlive, first.slot), 1U) << "itself";
  EXPECT_EQ(a.ask(Ask::kBury), 0U) << "nobody died";
  b.kill_now();
  EXPECT_EQ(a.ask(Ask::kIsAlive, second.slot), 0U);
  EXPECT_EQ(a.ask(Ask::kMembers), bit(first.slot) | bit(second.slot));
  Process c(name_);
  const auto third = c.entered();
  ASSERT_EQ(third.error, 0);
  EXPECT_NE(third.slot, second.slot);
  EXPECT_EQ(c.ask(Ask::kBury), bit(second.slot)) << "any member buries";
  EXPECT_EQ(a.ask(Ask::kBury), 0U) << "once";
  EXPECT_EQ(a.ask(Ask::kMembers), bit(first.slot) | bit(third.slot));
  Process d(name_);
  EXPECT_EQ(d.entered().slot, second.slot) << "given again";
}

TEST_F(XdpGroupLife, AStoppedMemberIsNotDead) {
  Process a(name_), b(name_);
  ASSERT_EQ(a.entered().error, 0);
  const auto second = b.entered();
  ASSERT_EQ(second.error, 0);
  b.stop();
  EXPECT_EQ(a.ask(Ask::kIsAlive, second.slot), 1U);
  EXPECT_EQ(a.ask(Ask::kBury), 0U);
}

TEST_F(XdpGroupLife, AForkedChildNeitherKeepsItsParentAliveNorEndsIt) {
  Process a(name_), b(name_);
  const auto first = a.entered(), second = b.entered();
  ASSERT_EQ(first.error | second.error, 0);
  ASSERT_EQ(b.ask(Ask::kDeposit, 5), 0U);
  const auto child = static_cast<pid_t>(b.ask(Ask::kForkAndWait));
  ASSERT_GT(child, 0) << "it closed a number that is no longer the group's";
  EXPECT_EQ(a.ask(Ask::kIsAlive, second.slot), 1U) << "the child destroyed its copy of the group";
  EXPECT_EQ(a.ask(Ask::kKinds), bit(5));
  b.kill_now();
  EXPECT_EQ(a.ask(Ask::kIsAlive, second.slot), 0U) << "the child lives";
  a.kill_now();
  Process next(name_);
  EXPECT_TRUE(next.entered().founder) << "the child keeps the name";
  kill(child, SIGKILL);
}

TEST_F(XdpGroupLife, AMemberThatExecutesAnotherProgramIsDead) {
  Process a(name_), b(name_);
  ASSERT_EQ(a.entered().error, 0);
  const auto second = b.entered();
  ASSERT_EQ(second.error, 0);
  b.tell(Ask::kExec);
  uint64_t alive = 1;
  for (int tries = 0; alive != 0 && tries < 200; ++tries) {
    usleep(10'000);
    alive = a.ask(Ask::kIsAlive, second.slot);
  }
  EXPECT_EQ(alive, 0U);
  EXPECT_EQ(kill(b.pid(), 0), 0) << "as a process it lives";
}

TEST_F(XdpGroupLife, TheControlLockIsExclusiveAmongProcessesAndGoesWithItsHolder) {
  Process a(name_), b(name_);
  ASSERT_EQ(a.entered().error, 0);
  ASSERT_EQ(b.entered().error, 0);
  ASSERT_EQ(a.ask(Ask::kLock), 0U);
  EXPECT_EQ(b.ask(Ask::kLock), static_cast<uint64_t>(ETIMEDOUT));
  a.kill_now();
  EXPECT_EQ(b.ask(Ask::kLock), 0U);
}

TEST_F(XdpGroupLife, WhileAnotherHasTheLockBurialReturnsAtOnce) {
  Process a(name_), b(name_), c(name_);
  ASSERT_EQ(a.entered().error, 0);
  ASSERT_EQ(b.entered().error, 0);
  const auto third = c.entered();
  ASSERT_EQ(third.error, 0);
  ASSERT_EQ(a.ask(Ask::kLock), 0U);
  a.stop();
  c.kill_now();
  const Instant began = Clock::now_from_kernel();
  EXPECT_EQ(b.ask(Ask::kBury), 0U);
  EXPECT_LT(Clock::now_from_kernel() - began, Duration::ms(500));
  a.kill_now();
  EXPECT_NE(b.ask(Ask::kBury) & bit(third.slot), 0U);
}

TEST_F(XdpGroupLife, TheControlLockIsExclusiveAmongThreads) {
  auto group = Group::enter({.name = name_, .version = 1}, make_memory);
  ASSERT_TRUE(group);
  int inside = 0;
  std::atomic<bool> wrong{false};
  const auto body = [&] {
    for (int i = 0; i < 500; ++i) {
      const auto held = (*group)->control(Duration::s(10));
      if (!held || ++inside != 1) wrong = true;
      --inside;
    }
  };
  std::thread one(body), two(body);
  one.join();
  two.join();
  EXPECT_FALSE(wrong);
}

TEST_F(XdpGroupLife, WhoDiesAmidABurialIsBuriedWithTheFirst) {
  auto group = Group::enter({.name = name_, .version = 1}, make_memory);
  ASSERT_TRUE(group);
  Group& g = **group;
  std::atomic<bool> ends{false};
  std::thread server([&] {
    while (!ends) {
      g.serve();
      usleep(1000);
    }
  });
  Process first(name_);
  const auto a = first.entered();
  ASSERT_EQ(a.error, 0);
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t digger = fork();
  if (digger == 0) {
    // Not a member yet: our own group is not for a child.
    close_own_fds();
    auto own = Group::enter({.name = name_, .version = 1}, make_memory);
    (void)!write(told[1], own ? "y" : "n", 1);
    for (int tries = 0; own && tries < 5000; ++tries) {
      (*own)->bury_dead([](const Group::Control&, unsigned) { return raise(SIGKILL) == 0; });
      usleep(1000);
    }
    _exit(1);
  }
  char entered = 0;
  ASSERT_EQ(read(told[0], &entered, 1), 1);
  ASSERT_EQ(entered, 'y');
  ASSERT_EQ(__builtin_popcountll(g.members()), 3);
  first.kill_now();
  int status = 0;
  ASSERT_EQ(waitpid(digger, &status, 0), digger);
  EXPECT_TRUE(WIFSIGNALED(status));
  uint64_t buried = 0;
  const auto bury = [&](bool is_done) {
    buried = 0;
    g.bury_dead([&](const Group::Control&, unsigned slot) {
      buried |= bit(slot);
      return is_done;
    });
  };
  bury(false);
  EXPECT_EQ(__builtin_popcountll(g.members()), 3) << "not buried: they keep their slots";
  bury(true);
  EXPECT_EQ(__builtin_popcountll(buried), 2);
  EXPECT_NE(buried & bit(a.slot), 0U);
  EXPECT_EQ(g.members(), bit(g.slot()));
  ends = true;
  server.join();
  close(told[0]);
  close(told[1]);
}

}  // namespace
}  // namespace vireo::xdp::test
