// Members killed anywhere: the others lose nothing, and nothing stays behind.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <thread>
#include <vector>

#include "tests/unit/xdp/process.h"

namespace vireo::xdp::test {
namespace {

constexpr int kRounds = 300;
constexpr unsigned kRestless = 3;
constexpr uint32_t kKept = 10;  // deposits of the survivor: kinds 0 to 9

void require(bool fact, int status) {
  if (!fact) _exit(status);
}

/// Joins, deposits, withdraws, buries and leaves until it is killed. Exits only if something is
/// wrong.
[[noreturn]] void be_restless(const std::string& name, unsigned index) {
  std::minstd_rand random(static_cast<unsigned>(getpid()));
  const uint32_t own[] = {20 + index * 4, 21 + index * 4, 22 + index * 4};
  for (;;) {
    auto entered =
        Group::enter({.name = name, .version = 1, .patience = Duration::s(5)}, make_memory);
    require(entered.has_value(), 50 + (entered ? 0 : entered.error().code % 50));
    Group& g = **entered;
    require(!g.is_founder(), 40);
    for (const uint32_t kind : own) require(deposit(g, kind, 3, g.slot()).has_value(), 41);
    g.serve();
    const Group::Bury none = [](const Group::Control&, unsigned) { return true; };
    g.bury_dead(none);
    {
      const auto held = g.control(Duration::s(5));
      require(held.has_value(), 42);
      const uint32_t gone = own[random() % 3];
      require(
          g.withdraw(*held, [&](const Deposit& d) { return d.kind == gone && d.slot == g.slot(); })
              .has_value(),
          43);
      unsigned there = 0;
      require(g.for_each_deposit(
                   *held, [&](const Deposit& d) { return d.slot == g.slot(); },
                   [&](const Deposit&, std::span<UniqueFd> fds) { there += fds.size() == 3; })
                  .has_value(),
              44);
      require(there == 2, 45);
    }
    if (random() % 4 == 0) usleep(static_cast<unsigned>(random() % 2000));
  }
}

pid_t start_restless(const std::string& name, unsigned index) {
  const pid_t pid = fork();
  if (pid == 0) {
    close_own_fds();
    alarm(60);
    be_restless(name, index);
  }
  return pid;
}

uint64_t bit(unsigned slot) { return uint64_t{1} << slot; }

TEST(XdpGroupKills, NothingOfTheLivingIsLostAndNothingOfTheDeadStays) {
  alarm(200);
  const std::string name = unique_name();
  auto group = Group::enter({.name = name, .version = 1}, make_memory);
  ASSERT_TRUE(group);
  Group& g = **group;
  for (uint32_t kind = 0; kind < kKept; ++kind) ASSERT_TRUE(deposit(g, kind, 2, g.slot()));
  const unsigned descriptors = open_descriptors();

  const auto serve_for = [&](Duration span) {
    const Instant until = Clock::now_from_kernel() + span;
    do {
      g.serve();
      usleep(100);
    } while (Clock::now_from_kernel() < until);
  };
  const auto bury = [&] { g.bury_dead([](const Group::Control&, unsigned) { return true; }); };
  const auto kept = [&] {
    const auto held = g.control(Duration::s(5));
    return held && (deposits(g, *held).mask() & (bit(kKept) - 1)) == bit(kKept) - 1;
  };

  std::minstd_rand random(1);
  pid_t restless[kRestless];
  for (unsigned i = 0; i < kRestless; ++i) restless[i] = start_restless(name, i);
  for (int round = 0; round < kRounds; ++round) {
    serve_for(Duration::us(static_cast<int64_t>(random() % 6000)));
    const auto i = static_cast<unsigned>(random() % kRestless);
    kill(restless[i], SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(restless[i], &status, 0), restless[i]);
    ASSERT_TRUE(WIFSIGNALED(status)) << "round " << round << ": exit " << WEXITSTATUS(status);
    if (random() % 2 == 0) bury();
    ASSERT_TRUE(kept()) << "round " << round;
    restless[i] = start_restless(name, i);
  }
  for (const pid_t pid : restless) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  bury();
  EXPECT_EQ(g.members(), bit(g.slot()));
  const auto held = g.control(Duration::s(1));
  ASSERT_TRUE(held);
  const Kinds left = deposits(g, *held);
  EXPECT_EQ(left.mask(), bit(kKept) - 1);
  EXPECT_FALSE(left.any_other());
  EXPECT_EQ(open_descriptors(), descriptors);
  alarm(0);
}

}  // namespace
}  // namespace vireo::xdp::test
