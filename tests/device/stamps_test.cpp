// The device's time of received frames, by verbs and by mlx5 over softnic in lock-step: in each of
// the clocks that can be asked for, across a wrap of the counter, and from devices that lack a part
// of it.
#include <infiniband/mlx5dv.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <string>

#include "core/clock.h"
#include "dev/mlx5/mlx5.h"
#include "dev/verbs/verbs.h"
#include "frames.h"
#include "opened_ends.h"
#include "tests/apparatus/softnic/control.h"

namespace vireo::test {
namespace {

constexpr uint16_t kPort = 7000;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kTaiAhead = 37 * kSecond;  // of softnic's wall clock
/// How far two readings of clocks may lie apart on a busy machine that stops us in between.
constexpr int64_t kSlack = kSecond / 100;

int64_t realtime() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * kSecond + t.tv_nsec;
}

struct Kind {
  const char* name;
  decltype(&open_verbs) open;
  DeviceKind kind;
  bool stride = false;
};

class DeviceStamps : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    Clock::calibrate();
    unsetenv("SOFTNIC_WIRE");
    softnic_set_mtu(1500);
    softnic_drive(true);
    softnic_set_clock(1'000'000, 0);
  }
  void TearDown() override {
    close();
    unsetenv("SOFTNIC_LACKS");
    softnic_set_clock(0, 0);
  }
  void close() {
    rule_.reset();
    for (auto& q : queues_) q.reset();
    ends_.reset();
  }
  /// Two devices that lack `lacks`; frames of side 0 to the port come to side 1.
  void open(StampTime stamps, const char* lacks = "") {
    close();
    setenv("SOFTNIC_LACKS", lacks, 1);
    ends_.emplace();
    ASSERT_TRUE(ends_->open(256, [&](int side, Arena& arena) {
      const std::string name = "softnic" + std::to_string(side);
      return GetParam().open({.device = name, .mtu = 1500}, arena,
                             {.stamps = stamps, .stride = GetParam().stride});
    }));
    for (int side : {0, 1}) {
      auto queue = ends_->devices[side]->open_queue(QueueId(0), *ends_->pools[side]);
      ASSERT_TRUE(queue) << queue.error().where;
      queues_[side] = std::move(*queue);
      ASSERT_EQ(ends_->devices[side]->caps().kind, GetParam().kind);
    }
    FlowKey key;
    key.proto = IpProto::kUdp;
    key.local = {IpAddr::any_v4(), kPort, 0};
    auto rule = ends_->devices[1]->steer(key, FlowTag(1), *queues_[1]);
    ASSERT_TRUE(rule);
    rule_ = std::move(*rule);
  }
  bool tells() const { return ends_->devices[1]->caps().stamps; }
  void send() {
    FrameSpec spec;
    spec.from = {IpAddr::v4(be32(0x0a000001)), 6000, 0};
    spec.to = {IpAddr::v4(be32(0x0a000002)), kPort, 0};
    const Bytes bytes = build_frame(spec, Bytes(64));
    ASSERT_TRUE(queues_[0]->tx({bytes, {}}, Doorbell::kNow));
    while (softnic_pump()) {
    }
  }
  /// PacketBuf::hw_time of the oldest frame; -1: there is none.
  int64_t take() {
    RxDesc got[1];
    if (queues_[1]->rx_burst(got) == 0) return -1;
    const int64_t time = got[0].packet->hw_time;
    got[0].packet.reset();
    queues_[0]->tx_reap();
    queues_[1]->rx_refill();
    return time;
  }
  bool is_mlx5() const { return GetParam().kind == DeviceKind::kMlx5; }
  /// A frame's time lies between looks at the system's clock, which this one is `ahead` of.
  void expect_system_time(int64_t ahead = 0) {
    const int64_t before = realtime() + ahead;
    send();
    const int64_t after = realtime() + ahead;
    const int64_t time = take();
    EXPECT_GE(time, before - kSlack);
    EXPECT_LE(time, after + kSlack);
  }

  std::optional<OpenedEnds> ends_;
  std::unique_ptr<Queue> queues_[2];
  FlowRule rule_;
};

INSTANTIATE_TEST_SUITE_P(, DeviceStamps,
                         testing::Values(Kind{"verbs", open_verbs, DeviceKind::kVerbs},
                                         Kind{"mlx5", open_mlx5, DeviceKind::kMlx5},
                                         Kind{"striding", open_mlx5, DeviceKind::kMlx5, true}),
                         [](const auto& i) { return std::string(i.param.name); });

TEST_P(DeviceStamps, NoneUntilTheyAreAskedFor) {
  open(StampTime::kSystem);
  EXPECT_TRUE(tells());
  send();
  EXPECT_EQ(take(), 0);
  queues_[1]->stamp();
  send();
  EXPECT_GT(take(), 0);
}

TEST_P(DeviceStamps, AsTheSystemHasIt) {
  open(StampTime::kSystem);
  queues_[1]->stamp();
  for (int i = 0; i < 50; ++i) expect_system_time();
}

/// The time is that of the frame's arrival, not of the look at it.
TEST_P(DeviceStamps, FramesThatWaited) {
  open(StampTime::kRaw);
  queues_[1]->stamp();
  for (uint64_t i = 1; i <= 10; ++i) {
    softnic_set_clock(i * 250'000'000, 0);
    send();
  }
  for (int64_t i = 1, last = 0; i <= 10; ++i) {
    const int64_t time = take();
    EXPECT_GE(time, i * kSecond);
    EXPECT_GT(time, last);
    last = time;
  }
  EXPECT_EQ(take(), -1);
}

TEST_P(DeviceStamps, RawIsTheCount) {
  open(StampTime::kRaw);
  queues_[1]->stamp();
  softnic_set_clock(25'000'000'000, 0);
  const int64_t before = realtime();
  send();
  const int64_t time = take();
  EXPECT_GE(time, 100 * kSecond);
  EXPECT_LE(time, 100 * kSecond + (realtime() - before) + kSlack);
}

TEST_P(DeviceStamps, TheDevicesOwnClock) {
  open(StampTime::kPtp);
  queues_[1]->stamp();
  expect_system_time(kTaiAhead);
}

TEST_P(DeviceStamps, TheCounterWraps) {
  softnic_set_clock((uint64_t{1} << 41) - 2'000'000, 0);  // in 8 ms
  open(StampTime::kSystem);
  queues_[1]->stamp();
  const int64_t end = realtime() + kSecond / 50;
  do expect_system_time();
  while (realtime() < end);
}

TEST_P(DeviceStamps, WhatADeviceLacks) {
  open(StampTime::kNone);
  EXPECT_FALSE(tells());
  queues_[1]->stamp();
  send();
  EXPECT_EQ(take(), 0);

  for (const char* lacks : {"stamps", "extended"}) {
    SCOPED_TRACE(lacks);
    open(StampTime::kBest, lacks);
    // The rings of an mlx5 tell the time whatever libibverbs offers; it is the counter that lacks.
    EXPECT_EQ(tells(), is_mlx5() && std::string(lacks) == "extended");
    queues_[1]->stamp();
    send();
    if (!tells()) {
      EXPECT_EQ(take(), 0);
    }
  }

  open(StampTime::kSystem, "clock");
  EXPECT_FALSE(tells()) << "nobody knows when a count was";

  softnic_set_clock(25'000'000'000, 0);
  open(StampTime::kBest, "clock");
  EXPECT_TRUE(tells());
  queues_[1]->stamp();
  send();
  EXPECT_LT(take(), 200 * kSecond) << "the count, then";

  open(StampTime::kPtp, "wallclock");
  EXPECT_TRUE(tells());
  queues_[1]->stamp();
  // By libmlx5 there is a clock all the same.
  expect_system_time(is_mlx5() ? kTaiAhead : 0);

  open(StampTime::kSystem, "tags");
  EXPECT_TRUE(tells());
  queues_[1]->stamp();
  expect_system_time();
}

/// Libraries that the test is linked with are found by dlopen(3) under their names.
[[maybe_unused]] const auto kLinked = &mlx5dv_is_supported;

}  // namespace
}  // namespace vireo::test
