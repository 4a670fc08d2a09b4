// When processors are short (stack/sock/processor_time.h).
#include "stack/sock/processor_time.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace vireo::test {
namespace {

Instant at(int ms) { return Instant::from_ns(int64_t{1'000'000} * (1000 + ms)); }
ProcessorTime::Reading reading(int run_ms, int waited_ms) {
  return {int64_t{1'000'000} * run_ms, int64_t{1'000'000} * waited_ms};
}

TEST(ProcessorTimeTest, ShortIfItWaitsLongerThanItRuns) {
  ProcessorTime t;
  EXPECT_FALSE(t.judge(reading(20, 10), at(50)));
  EXPECT_TRUE(t.judge(reading(30, 31), at(90)));
}

TEST(ProcessorTimeTest, AFewMillisecondsAreAnAccident) {
  ProcessorTime t;
  EXPECT_FALSE(t.judge(reading(1, 5), at(50)));
  EXPECT_FALSE(t.judge(reading(2, 10), at(60)));
  EXPECT_TRUE(t.judge(reading(2, 11), at(70)));
}

/// A short time is added to the one before it; a long time ago does not count.
TEST(ProcessorTimeTest, OnlyTheLastWhileCounts) {
  ProcessorTime t;
  EXPECT_FALSE(t.judge(reading(1000, 900), at(0)));
  for (int ms = 1; ms < 6; ++ms) EXPECT_FALSE(t.judge(reading(1000, 900 + ms), at(10 * ms)));
  EXPECT_TRUE(t.judge(reading(1000, 906), at(60)));
  EXPECT_FALSE(t.judge(reading(1000, 906), at(2000)));
  EXPECT_FALSE(t.judge(reading(1200, 1006), at(2050)));
}

/// Two processes of which each wants the only processor wait for each other.
TEST(ProcessorTimeTest, TheKernelTells) {
  const auto before = ProcessorTime::read();
  ASSERT_TRUE(before);
  const pid_t child = ::fork();
  if (child == 0) {
    ProcessorTime t;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) ::_exit(2);
    std::vector<pid_t> rivals;
    for (int i = 0; i < 3; ++i) {
      rivals.push_back(::fork());
      if (rivals.back() == 0)
        for (;;) ::getppid();
    }
    bool is_short = false;
    for (int tries = 0; tries < 4'000'000 && !is_short; ++tries) {
      ::getppid();
      if (tries % 1000 == 0) is_short = t.is_short(Clock::now());
    }
    for (const pid_t p : rivals) {
      ::kill(p, SIGKILL);
      ::waitpid(p, nullptr, 0);
    }
    ::_exit(is_short ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const auto after = ProcessorTime::read();
  ASSERT_TRUE(after);
  EXPECT_GE(after->run_ns, before->run_ns);
}

}  // namespace
}  // namespace vireo::test
