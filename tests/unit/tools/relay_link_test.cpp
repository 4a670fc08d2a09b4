// The relay's link, in the frames' own time: what a real link of that rate, queue and delay does.
#include <gtest/gtest.h>

#include "tools/relay/link.h"
#include "tools/relay/mark.h"

namespace relay {
namespace {

constexpr uint32_t kBytes = 1514;
constexpr Nanos kWireTime = (1514 + 24) * 8;  // at 1 Gbit/s

Link link(const char* text) { return Link(parse(text)); }

TEST(RelayLink, WithoutRateOnlyDelays) {
  Link l = link("delay=5ms");
  for (Nanos t = 0; t < 100; ++t) EXPECT_EQ(l.admit(kBytes, t), t + 5'000'000);
}

TEST(RelayLink, AFreeWireNeedsNoQueue) {
  Link l = link("rate=1gbit,limit=0");
  EXPECT_EQ(l.admit(kBytes, 1000), 1000 + kWireTime);
  EXPECT_EQ(l.admit(kBytes, 1000), std::nullopt) << "the wire is busy and nothing may wait";
  EXPECT_EQ(l.admit(kBytes, 1000 + kWireTime), 1000 + 2 * kWireTime);
}

TEST(RelayLink, FramesLeaveAtTheRate) {
  Link l = link("rate=1gbit,delay=10ms");
  for (Nanos i = 1; i <= 500; ++i) EXPECT_EQ(l.admit(kBytes, 0), i * kWireTime + 10'000'000);
}

TEST(RelayLink, TheQueueCountsBytesThatWaitAndNotThoseUnderWay) {
  Link l = link("rate=1gbit,delay=1s,queue=4542b,limit=1000");  // three frames
  for (int round = 0; round < 50; ++round) {
    const Nanos t = round * 4 * kWireTime;
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(l.admit(kBytes, t)) << "one on the wire, three wait";
    EXPECT_FALSE(l.admit(kBytes, t));
    EXPECT_FALSE(l.admit(60, t)) << "a small one does not fit either";
    EXPECT_EQ(l.waiting_bytes(), 3 * kBytes);
  }
  EXPECT_EQ(l.most_waiting_bytes(), 3 * kBytes);
}

TEST(RelayLink, LimitCountsFramesThatWait) {
  Link l = link("rate=1mbit,limit=2");
  EXPECT_TRUE(l.admit(60, 0));
  EXPECT_TRUE(l.admit(60, 0));
  EXPECT_TRUE(l.admit(60, 0));
  EXPECT_FALSE(l.admit(60, 0));
  EXPECT_TRUE(l.admit(60, (60 + 24) * 8 * 1000)) << "one has moved to the wire";
  EXPECT_FALSE(l.admit(60, (60 + 24) * 8 * 1000));
}

TEST(RelayLink, AFullQueueDelaysByItsLength) {
  Link l = link("rate=100mbit,queue=125kb,delay=10ms");
  std::optional<Nanos> last;
  while (const auto due = l.admit(kBytes, 0)) last = due;
  // 82 frames fit, and one is on the wire: 83 times 123.04 us, and the way.
  EXPECT_EQ(last, 83 * 10 * kWireTime + 10'000'000);
}

TEST(RelayLink, JitterSpreadsAndKeepsTheOrder) {
  Link l = link("delay=1ms");
  EXPECT_EQ(l.admit(kBytes, 0, 500), 1'000'500);
  EXPECT_EQ(l.admit(kBytes, 100, -500), 1'000'500) << "not before the one in front";
  EXPECT_EQ(l.admit(kBytes, 2000, -500), 1'001'500);
}

TEST(RelayLink, ALateLookAtTheClockLosesNoRate) {
  Link l = link("rate=1gbit");
  EXPECT_EQ(l.admit(kBytes, 50'000), 50'000 + kWireTime);
  EXPECT_EQ(l.admit(kBytes, 40'000), 50'000 + 2 * kWireTime) << "a stamp before the last one's";
}

TEST(RelayMark, IsLostAsOftenAsItSays) {
  Mark mark{.times = 2, .number = 7};
  std::array<uint8_t, 100> payload{};
  std::memcpy(payload.data() + 30, &mark, sizeof mark);
  Marks marks;
  EXPECT_TRUE(marks.loses(payload));
  EXPECT_TRUE(marks.loses(payload));
  EXPECT_FALSE(marks.loses(payload));
  mark.number = 8;
  std::memcpy(payload.data() + 30, &mark, sizeof mark);
  EXPECT_TRUE(marks.loses(payload)) << "another mark has a count of its own";
  EXPECT_FALSE(marks.loses(std::span(payload).first(40))) << "cut short: no mark";
  EXPECT_FALSE(marks.loses(std::span(payload).first(20)));
}

}  // namespace
}  // namespace relay
