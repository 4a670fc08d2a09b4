// Descriptors that outlive their depositor.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/fd_messages.h"
#include "tests/unit/xdp/process.h"

namespace vireo::xdp::test {
namespace {

class XdpGroupBank : public ::testing::Test {
 protected:
  void SetUp() override { alarm(120); }
  void TearDown() override { alarm(0); }
  const std::string name_ = unique_name();
};

uint64_t bit(unsigned kind) { return uint64_t{1} << kind; }

std::unique_ptr<Group> alone(const std::string& name) {
  auto group = Group::enter({.name = name, .version = 1}, make_memory);
  return group ? std::move(*group) : nullptr;
}

TEST_F(XdpGroupBank, DepositsOutliveTheirDepositorUntilItIsBuried) {
  Process a(name_), b(name_);
  ASSERT_EQ(a.entered().error, 0);
  const auto second = b.entered();
  ASSERT_EQ(second.error, 0);
  ASSERT_EQ(a.ask(Ask::kDeposit, 1), 0U);
  ASSERT_EQ(b.ask(Ask::kDeposit, 2), 0U);
  ASSERT_EQ(b.ask(Ask::kDepositForAll, 3), 0U);
  b.kill_now();
  EXPECT_EQ(a.ask(Ask::kKinds), bit(1) | bit(2) | bit(3));
  EXPECT_EQ(a.ask(Ask::kBury), bit(second.slot));
  EXPECT_EQ(a.ask(Ask::kKinds), bit(1) | bit(3)) << "its own are gone, that for all stays";
}

TEST_F(XdpGroupBank, WhoLeavesWithdrawsItsOwn) {
  Process a(name_), b(name_);
  ASSERT_EQ(a.entered().error, 0);
  ASSERT_EQ(b.entered().error, 0);
  ASSERT_EQ(b.ask(Ask::kDeposit, 2), 0U);
  ASSERT_EQ(a.ask(Ask::kDeposit, 1), 0U);
  ASSERT_EQ(b.ask(Ask::kDepositForAll, 3), 0U);
  b.tell(Ask::kQuit);
  ASSERT_EQ(b.join(), 0);
  EXPECT_EQ(a.ask(Ask::kKinds), bit(1) | bit(3));
  EXPECT_EQ(a.ask(Ask::kBury), 0U);
}

TEST_F(XdpGroupBank, AnyDepositIsWithdrawnAndTheOthersStay) {
  auto g = alone(name_);
  ASSERT_TRUE(g);
  const unsigned before = open_descriptors();
  for (uint32_t kind = 0; kind < 8; ++kind)
    ASSERT_TRUE(deposit(*g, kind, kind * 2, g->slot()));  // 0 to 14 descriptors
  uint64_t there = bit(8) - 1;
  for (const uint32_t kind : {3U, 0U, 7U, 4U}) {
    const auto held = g->control(Duration::s(1));
    ASSERT_TRUE(held);
    ASSERT_TRUE(g->withdraw(*held, [&](const Deposit& d) { return d.kind == kind; }));
    there &= ~bit(kind);
    const Kinds found = deposits(*g, *held);
    EXPECT_EQ(found.mask(), there);
    EXPECT_FALSE(found.any_other());
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(XdpGroupBank, WithdrawingClosesTheDescriptors) {
  auto g = alone(name_);
  ASSERT_TRUE(g);
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_NONBLOCK), 0);
  const auto held = g->control(Duration::s(1));
  ASSERT_TRUE(g->deposit(*held, {.kind = 1}, std::span(&pipe_fds[1], 1)));
  close(pipe_fds[1]);
  char c;
  EXPECT_EQ(read(pipe_fds[0], &c, 1), -1) << "a writer is left: the bank";
  ASSERT_TRUE(g->withdraw(*held, [](const Deposit&) { return true; }));
  EXPECT_EQ(read(pipe_fds[0], &c, 1), 0);
  close(pipe_fds[0]);
}

TEST_F(XdpGroupBank, TheLastMemberTakesTheDepositsAlong) {
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_NONBLOCK), 0);
  auto g = alone(name_);
  ASSERT_TRUE(g);
  {
    const auto held = g->control(Duration::s(1));
    ASSERT_TRUE(g->deposit(*held, {.kind = 1}, std::span(&pipe_fds[1], 1)));
  }
  close(pipe_fds[1]);
  g.reset();
  char c;
  EXPECT_EQ(read(pipe_fds[0], &c, 1), 0);
  close(pipe_fds[0]);
}

TEST_F(XdpGroupBank, AVisitorMayKeepADescriptor) {
  auto g = alone(name_);
  ASSERT_TRUE(g);
  ASSERT_TRUE(deposit(*g, 9, 3, g->slot()));
  const unsigned before = open_descriptors();
  UniqueFd kept;
  const auto held = g->control(Duration::s(1));
  ASSERT_TRUE(g->for_each_deposit(
      *held, [](const Deposit& d) { return d.kind == 9; },
      [&](const Deposit&, std::span<UniqueFd> fds) { kept = std::move(fds[1]); }));
  ASSERT_TRUE(kept);
  EXPECT_EQ(open_descriptors(), before + 1);
}

TEST_F(XdpGroupBank, TooManyDescriptorsAreRefused) {
  auto g = alone(name_);
  ASSERT_TRUE(g);
  const auto refused = deposit(*g, 1, kMaxSentFds + 1, g->slot());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EINVAL);
  EXPECT_TRUE(deposit(*g, 2, kMaxSentFds, g->slot()));
}

TEST_F(XdpGroupBank, ADoubleCountsOnceAndGoesWithTheNextWithdrawal) {
  const auto ends = Bank::create();
  ASSERT_TRUE(ends);
  const auto queued = [&] {
    int bytes = 0;
    return ioctl(ends->tail.get(), SIOCOUTQ, &bytes) == 0 ? bytes : -1;
  };
  Bank bank(ends->tail.get(), ends->head.get());
  ASSERT_TRUE(bank.deposit(1, {.kind = 1}, {}));
  const int one = queued();
  ASSERT_TRUE(bank.deposit(2, {.kind = 2}, {}));
  ASSERT_TRUE(bank.deposit(1, {.kind = 1}, {}));  // as one killed amid a withdrawal leaves it
  unsigned count[3] = {};
  const auto all = [](const Deposit&) { return true; };
  ASSERT_TRUE(bank.for_each(all, [&](const Deposit& d, auto) { ++count[d.kind]; }));
  EXPECT_EQ(count[1], 1U);
  EXPECT_EQ(count[2], 1U);
  ASSERT_TRUE(bank.withdraw([](const Deposit& d) { return d.kind == 2; }));
  EXPECT_EQ(queued(), one);
}

TEST_F(XdpGroupBank, AFullQueueRefusesAndCanStillBeWithdrawnFrom) {
  auto g = alone(name_);
  ASSERT_TRUE(g);
  const auto held = g->control(Duration::s(1));
  ASSERT_TRUE(g->deposit(*held, {.kind = 2}, {}));
  Result<void> last;
  unsigned n = 0;
  for (; last && n < 10'000; ++n) last = g->deposit(*held, {.kind = 1}, {});
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().code, ENOBUFS);
  EXPECT_STREQ(last.error().where, "deposits of the group need more than net.core.wmem_max");
  EXPECT_GT(n, 500U) << "with Linux's default of 212992 bytes";
  // The first has to pass all others, and then there is no room yet.
  ASSERT_TRUE(g->withdraw(*held, [](const Deposit& d) { return d.kind == 1; }));
  EXPECT_EQ(deposits(*g, *held).mask(), bit(2));
}

// The kernel's limit holds for users without CAP_SYS_RESOURCE, and for all of a user's processes.
TEST_F(XdpGroupBank, AtTheLimitOfDescriptorsInFlightWithdrawingWorks) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be a user with nothing in flight";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    const rlimit limit{200, 200};
    if (setresuid(51'234, 51'234, 51'234) != 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(10);
    auto g = alone(name_);
    if (!g) _exit(11);
    Result<void> last;
    uint32_t n = 0;
    for (; last && n < 60; ++n) last = deposit(*g, n, 10, g->slot());
    if (last || last.error().code != ENOBUFS) _exit(12);
    const uint32_t there = n - 1;
    if (there < 15) _exit(13);
    auto held = g->control(Duration::s(1));
    if (!held) _exit(14);
    if (!g->withdraw(*held, [&](const Deposit& d) { return d.kind == there - 1; })) _exit(15);
    const Kinds found = deposits(*g, *held);
    if (found.any_other() || found.mask() != bit(there - 1) - 1) _exit(16);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see the test";
}

TEST_F(XdpGroupBank, WithoutDescriptorNumbersNothingIsLost) {
  auto g = alone(name_);
  ASSERT_TRUE(g);
  for (uint32_t kind = 0; kind < 4; ++kind) ASSERT_TRUE(deposit(*g, kind, 12, g->slot()));
  const auto held = g->control(Duration::s(1));
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit low = limit;
  const int lowest = dup(0);
  close(lowest);
  low.rlim_cur = static_cast<rlim_t>(lowest) + 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto withdrawn = g->withdraw(*held, [](const Deposit& d) { return d.kind == 2; });
  const auto visited =
      g->for_each_deposit(*held, [](const Deposit&) { return true; }, [](auto&&...) {});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_FALSE(withdrawn);
  EXPECT_EQ(withdrawn.error().code, EMFILE);
  ASSERT_FALSE(visited);
  EXPECT_EQ(visited.error().code, EMFILE);
  const Kinds found = deposits(*g, *held);
  EXPECT_EQ(found.mask(), bit(4) - 1);
  EXPECT_FALSE(found.any_other());
}

}  // namespace
}  // namespace vireo::xdp::test
