// Counts of a device's clock as time: a counter that is fast, that wraps, and a system's clock that
// somebody sets. All of it in virtual time.
#include "dev/verbs/stamp_clock.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace vireo::verbs {
namespace {

constexpr uint64_t kKhz = 250'000;
constexpr int64_t kEpoch = 1'700'000'000'000'000'000;

class Stamps : public testing::Test {
 protected:
  static constexpr uint64_t kMask = (uint64_t{1} << 41) - 1;

  void pass(Duration d) {
    now = now + d;
    wall += d.ns();
    const int64_t went = d.ns() / 4;
    count +=
        static_cast<uint64_t>(went + went / 1'000'000 * ppm + went % 1'000'000 * ppm / 1'000'000);
  }
  uint64_t ticks() const { return count & kMask; }
  std::optional<StampClock> clock() { return StampClock::by(read, this, kMask, kKhz, now); }
  static bool read(void* of, StampClock::Reading& out) {
    auto& s = *static_cast<Stamps*>(of);
    if (!s.can_read) return false;
    ++s.reads;
    out = {s.ticks(), s.wall, s.rate};
    return true;
  }

  Instant now = Instant::from_ns(5'000'000'000);
  int64_t wall = kEpoch;
  uint64_t count = 1000;
  int64_t ppm = 0;
  uint64_t rate = 0;
  bool can_read = true;
  int reads = 0;
};

TEST_F(Stamps, RawIsTheCountInNanoseconds) {
  StampClock c = StampClock::raw(kKhz);
  EXPECT_EQ(c.ns(1, now), 4);
  EXPECT_EQ(c.ns(250'000'000, now), 1'000'000'000);
  EXPECT_EQ(c.ns(uint64_t{1} << 47, now + Duration::s(1'000'000)), int64_t{1} << 49);
  EXPECT_EQ(StampClock::raw(156'250).ns(156'250'000, now), 999'999'999) << "6.4 ns, rounded down";
}

TEST_F(Stamps, BetweenReadingsTimeGoesOn) {
  auto c = clock();
  ASSERT_TRUE(c);
  EXPECT_EQ(c->ns(ticks(), now), kEpoch);
  const uint64_t early = ticks();
  pass(Duration::ms(3));
  EXPECT_EQ(c->ns(ticks(), now), wall);
  EXPECT_EQ(c->ns(early, now), kEpoch) << "an older frame, seen later";
  EXPECT_EQ(reads, 1);
}

TEST_F(Stamps, AFastCounterIsMeasured) {
  ppm = 200;
  auto c = clock();
  ASSERT_TRUE(c);
  for (int i = 0; i < 300; ++i) {
    pass(Duration::ms(33));
    const int64_t off = std::llabs(c->ns(ticks(), now) - wall);
    // Until it was measured, it is wrong by what it gained.
    EXPECT_LE(off, i == 0 ? 33'000 : 100) << "after " << 33 * (i + 1) << " ms";
  }
  EXPECT_LE(reads, 16) << "once a second, but for the beginning";
  EXPECT_GE(reads, 10);
}

TEST_F(Stamps, TheCounterWraps) {
  count = kMask - 100;
  auto c = clock();
  ASSERT_TRUE(c);
  const uint64_t before = ticks();
  pass(Duration::us(4));
  ASSERT_LT(ticks(), before);
  EXPECT_EQ(c->ns(ticks(), now), wall);
  EXPECT_EQ(c->ns(before, now), kEpoch);
}

TEST_F(Stamps, NobodyAskedForHours) {
  auto c = clock();
  ASSERT_TRUE(c);
  // A little less than a round of 2.4 hours: by the count alone that is the past.
  pass(Duration::s(8790));
  EXPECT_EQ(c->ns(ticks(), now), wall);
  pass(Duration::s(20'000));
  EXPECT_EQ(c->ns(ticks(), now), wall);
  pass(Duration::ms(5));
  EXPECT_EQ(c->ns(ticks(), now), wall) << "at the rate that the device says";
}

TEST_F(Stamps, SomebodySetsTheSystemsClock) {
  auto c = clock();
  ASSERT_TRUE(c);
  for (int i = 0; i < 20; ++i) {
    pass(Duration::s(1));
    (void)c->ns(ticks(), now);
  }
  wall += 3600 * int64_t{1'000'000'000};
  pass(Duration::s(1));
  EXPECT_EQ(c->ns(ticks(), now), wall);
  pass(Duration::ms(500));
  EXPECT_EQ(c->ns(ticks(), now), wall) << "the hour is not taken for the counter's slowness";
}

TEST_F(Stamps, ItCannotBeReadAnyMore) {
  auto c = clock();
  ASSERT_TRUE(c);
  can_read = false;
  for (int i = 0; i < 100; ++i) {
    pass(Duration::s(1));
    EXPECT_EQ(c->ns(ticks(), now), wall);
  }
  EXPECT_FALSE(clock());
}

/// The reading says how fast it goes, as libmlx5 does of a clock that PTP steers.
TEST_F(Stamps, ARateThatIsTold) {
  rate = (uint64_t{4} << 32) - 429'497;  // 25 ppm fewer nanoseconds a tick
  ppm = 25;
  auto c = clock();
  ASSERT_TRUE(c);
  pass(Duration::ms(9));
  EXPECT_LE(std::llabs(c->ns(ticks(), now) - wall), 2);
}

}  // namespace
}  // namespace vireo::verbs
