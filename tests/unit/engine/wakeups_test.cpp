// When the helper's bell rings, and when it does not: each ring costs the program a system call.
#include "stack/engine/wakeups.h"

#include <gtest/gtest.h>

namespace vireo::test {
namespace {

Instant at(int64_t ms) { return Instant::from_ns(ms * 1'000'000); }

class WakeupsTest : public testing::Test {
 protected:
  Wakeups w;
  EventFd bell;

  void SetUp() override {
    auto made = EventFd::create();
    ASSERT_TRUE(made);
    bell = std::move(*made);
    w.set_helper_bell(&bell);
  }
  bool rang() { return bell.drain(); }
};

TEST_F(WakeupsTest, NothingIsDueAtFirst) {
  EXPECT_TRUE(w.deadline().is_never());
  EXPECT_FALSE(w.is_due(at(1'000'000)));
  EXPECT_EQ(w.flows(), 0U);
  EXPECT_EQ(w.sleepers(), 0U);
}

TEST_F(WakeupsTest, ADeadlineIsDueFromItsTimeOn) {
  w.set_deadline(at(10));
  EXPECT_FALSE(w.is_due(at(9)));
  EXPECT_TRUE(w.is_due(at(10)));
  EXPECT_TRUE(w.is_due(at(11)));
}

TEST_F(WakeupsTest, AnAwakeHelperIsNotWoken) {
  w.set_helper_sleep(Instant());
  w.set_deadline(at(10));
  EXPECT_FALSE(rang());
}

TEST_F(WakeupsTest, AnEarlierDeadlineWakesASleepingHelper) {
  w.set_helper_sleep(at(100));
  w.set_deadline(at(10));
  EXPECT_TRUE(rang());
}

TEST_F(WakeupsTest, ALaterDeadlineLetsItSleep) {
  w.set_helper_sleep(at(100));
  w.set_deadline(at(100));
  w.set_deadline(at(200));
  EXPECT_FALSE(rang());
}

TEST_F(WakeupsTest, OneSleepIsEndedOnce) {
  w.set_helper_sleep(at(100));
  w.set_deadline(at(10));
  EXPECT_TRUE(rang());
  w.set_deadline(at(5));
  EXPECT_FALSE(rang()) << "it is awake since the first";
}

TEST_F(WakeupsTest, TheSameDeadlineAgainIsNoNews) {
  w.set_deadline(at(10));
  w.set_helper_sleep(at(100));
  w.set_deadline(at(10));
  EXPECT_FALSE(rang());
}

TEST_F(WakeupsTest, AnImmediateDeadlineIsLeftToTheProgram) {
  w.set_helper_sleep(at(100));
  w.set_due(at(7));
  EXPECT_FALSE(rang());
  EXPECT_TRUE(w.is_due(at(7)));
}

TEST_F(WakeupsTest, TheFirstFlowWakesTheHelperAndNoOther) {
  w.set_helper_sleep(at(100));
  w.count_flow();
  EXPECT_TRUE(rang());
  w.set_helper_sleep(at(100));
  w.count_flow();
  EXPECT_FALSE(rang());
  EXPECT_EQ(w.flows(), 2U);
  w.uncount_flow();
  w.uncount_flow();
  w.count_flow();
  EXPECT_TRUE(rang()) << "the first of all again";
}

TEST_F(WakeupsTest, TheLastSleeperIsTold) {
  w.count_sleeper();
  w.count_sleeper();
  EXPECT_FALSE(w.uncount_sleeper());
  EXPECT_TRUE(w.uncount_sleeper());
  EXPECT_EQ(w.sleepers(), 0U);
}

TEST_F(WakeupsTest, RingsWithoutASleep) {
  w.ring_helper();
  EXPECT_TRUE(rang());
}

TEST_F(WakeupsTest, APollIsRemembered) {
  w.note_poll(at(3));
  EXPECT_EQ(w.last_poll(), at(3));
}

}  // namespace
}  // namespace vireo::test
