// Who sits where, who is refused, and what a dead process leaves.
#include "dev/shm/host_registry.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "dev/shm/wire.h"

namespace vireo {
namespace {

std::string unique_name(const char* what) {
  return std::string(what) + "-" + std::to_string(getpid());
}

bool file_exists(const std::string& name, const char* suffix) {
  const std::string path = "/dev/shm/vireo-" + std::to_string(geteuid()) + "/" + name + suffix;
  struct stat st;
  return stat(path.c_str(), &st) == 0;
}

bool any_file(const std::string& name) {
  return file_exists(name, ".lock") || file_exists(name, ".wire") || file_exists(name, ".bell");
}

TEST(ShmRegistry, FirstHostsSecondJoinsThirdIsRefused) {
  const std::string name = unique_name("seats");
  auto host = take_seat(name, 64, 1500);
  ASSERT_TRUE(host);
  EXPECT_TRUE(host->host);
  auto joiner = take_seat(name, 128, 9000);
  ASSERT_TRUE(joiner);
  EXPECT_FALSE(joiner->host);
  const auto& header = *reinterpret_cast<const WireHeader*>(joiner->wire.data());
  EXPECT_EQ(header.slots, 64U) << "the host decides";
  EXPECT_EQ(header.mtu, 1500U);
  EXPECT_FALSE(file_exists(name, ".wire"))
      << "after the join only the two processes hold the memory";
  auto third = take_seat(name, 64, 1500);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, EBUSY);
  host->wire.data()[1000] = std::byte{42};
  EXPECT_EQ(joiner->wire.data()[1000], std::byte{42});
}

TEST(ShmRegistry, LastToLeaveTakesTheFilesAlong) {
  const std::string name = unique_name("leave");
  {
    auto alone = take_seat(name, 64, 1500);
    ASSERT_TRUE(alone);
    EXPECT_TRUE(file_exists(name, ".wire"));
  }
  EXPECT_FALSE(any_file(name));
  {
    auto host = take_seat(name, 64, 1500);
    auto joiner = take_seat(name, 64, 1500);
    ASSERT_TRUE(host && joiner);
    {
      const WireSeat gone = std::move(*host);
    }
    EXPECT_TRUE(file_exists(name, ".lock"));
  }
  EXPECT_FALSE(any_file(name));
}

TEST(ShmRegistry, ASpentWireIsNotJoinedAgain) {
  const std::string name = unique_name("spent");
  auto host = take_seat(name, 64, 1500);
  ASSERT_TRUE(host);
  {
    auto joiner = take_seat(name, 64, 1500);
  }
  auto second = take_seat(name, 64, 1500);
  ASSERT_FALSE(second) << "the host still sits before the old ring";
  EXPECT_EQ(second.error().code, EBUSY);
  {
    const WireSeat gone = std::move(*host);
  }
  second = take_seat(name, 64, 1500);
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->host);
}

TEST(ShmRegistry, BadNamesAndSizesAreRefused) {
  for (const char* name : {"", "../x", "a/b", ".hidden", "with space"}) {
    auto seat = take_seat(name, 64, 1500);
    ASSERT_FALSE(seat) << name;
    EXPECT_EQ(seat.error().code, EINVAL);
  }
  EXPECT_FALSE(take_seat(std::string(65, 'x'), 64, 1500));
  EXPECT_FALSE(take_seat(unique_name("odd"), 63, 1500));
  EXPECT_FALSE(take_seat(unique_name("small"), 64, 100));
}

/// A child that sits at `name` until it is killed.
pid_t sit_in_child(const std::string& name) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto seat = take_seat(name, 64, 1500);
    const char ok = seat ? 1 : 0;
    if (write(ready[1], &ok, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char ok = 0;
  EXPECT_EQ(read(ready[0], &ok, 1), 1);
  EXPECT_EQ(ok, 1);
  close(ready[0]);
  close(ready[1]);
  return child;
}

void kill_and_reap(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(ShmRegistry, AKilledHostLeavesItsSeat) {
  const std::string name = unique_name("killed");
  const pid_t child = sit_in_child(name);
  EXPECT_TRUE(file_exists(name, ".wire"));
  kill_and_reap(child);
  auto seat = take_seat(name, 64, 1500);
  ASSERT_TRUE(seat);
  EXPECT_TRUE(seat->host);
}

TEST(ShmRegistry, StaleWiresAreCleanedAndLivingOnesStay) {
  const std::string dead = unique_name("dead");
  const std::string living = unique_name("living");
  auto seat = take_seat(living, 64, 1500);
  ASSERT_TRUE(seat);
  kill_and_reap(sit_in_child(dead));
  EXPECT_TRUE(any_file(dead));
  EXPECT_GE(clean_stale_wires(), 1U);
  EXPECT_FALSE(any_file(dead));
  EXPECT_TRUE(file_exists(living, ".wire"));
}

}  // namespace
}  // namespace vireo
