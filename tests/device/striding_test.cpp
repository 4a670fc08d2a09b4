// Receiving by strides (dev/mlx5/striding.h) over softnic in lock-step: where it is, where the
// device is done without it, and that programs which keep packets for long stop nothing.
#include <infiniband/mlx5dv.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <optional>
#include <string>

#include "dev/mlx5/mlx5.h"
#include "dev/verbs/verbs.h"
#include "frames.h"
#include "opened_ends.h"
#include "tests/apparatus/softnic/control.h"

namespace vireo::test {
namespace {

constexpr uint16_t kPort = 7000;
constexpr size_t kHeader = 42;  // Ethernet, IPv4, UDP

class Strides : public testing::Test {
 protected:
  std::optional<OpenedEnds> ends_;
  std::unique_ptr<Queue> queues_[2];
  FlowRule rule_;
  uint32_t sent_ = 0;

  void SetUp() override {
    unsetenv("SOFTNIC_WIRE");
    softnic_drive(true);
  }
  void TearDown() override {
    close();
    unsetenv("SOFTNIC_LACKS");
    softnic_set_mtu(1500);
  }
  void close() {
    rule_.reset();
    for (auto& q : queues_) q.reset();
    if (!ends_) return;
    for (int side : {0, 1})
      EXPECT_EQ(ends_->pools[side]->free_count(), ends_->pools[side]->size()) << "frames are lent";
    ends_.reset();
  }
  /// Frames of side 0 to the port come to side 1, which has `frames` of them.
  void open(uint32_t frames, const char* lacks = "", uint32_t mtu = 1500) {
    close();
    setenv("SOFTNIC_LACKS", lacks, 1);
    softnic_set_mtu(mtu);
    ends_.emplace();
    ASSERT_TRUE(ends_->open(frames, [&](int side, Arena& arena) {
      const std::string name = "softnic" + std::to_string(side);
      return open_mlx5({.device = name, .mtu = mtu}, arena, {.stride = true});
    }));
    for (int side : {0, 1}) {
      auto queue = ends_->devices[side]->open_queue(QueueId(0), *ends_->pools[side]);
      ASSERT_TRUE(queue) << queue.error().where;
      queues_[side] = std::move(*queue);
    }
    FlowKey key;
    key.proto = IpProto::kUdp;
    key.local = {IpAddr::any_v4(), kPort, 0};
    auto rule = ends_->devices[1]->steer(key, FlowTag(1), *queues_[1]);
    ASSERT_TRUE(rule) << rule.error().where;
    rule_ = std::move(*rule);
  }
  PacketPool& pool() { return *ends_->pools[1]; }
  std::string mode() { return ends_->devices[1]->caps().mode; }
  static Bytes numbered(uint32_t number, size_t bytes) {
    FrameSpec spec;
    spec.from = {IpAddr::v4(be32(0x0a000001)), 6000, 0};
    spec.to = {IpAddr::v4(be32(0x0a000002)), kPort, 0};
    return build_frame(spec, numbered_payload(number, bytes - kHeader));
  }
  void send(size_t bytes = 100) {
    const Bytes frame = numbered(sent_++, bytes);
    ASSERT_TRUE(queues_[0]->tx({frame, {}}, Doorbell::kNow));
    while (softnic_pump()) {
    }
    queues_[0]->tx_reap();
  }
  /// All that has come, frame by frame.
  std::vector<PacketRef> take() {
    std::vector<PacketRef> got;
    RxDesc descs[16];
    while (const unsigned n = queues_[1]->rx_burst(descs)) {
      for (RxDesc& d : std::span(descs).first(n)) got.push_back(std::move(d.packet));
      queues_[1]->rx_refill();
    }
    return got;
  }
  static uint32_t number(const PacketRef& p) {
    return number_of(std::as_const(*p).bytes(), kHeader);
  }
};

TEST_F(Strides, WhereTheDeviceHasThemAndElseDoneWithout) {
  const auto mode_of = [&](uint32_t frames, const char* lacks) {
    open(frames, lacks);
    send();
    const auto got = take();
    EXPECT_EQ(got.size(), 1U) << lacks;
    return mode();
  };
  EXPECT_EQ(mode_of(256, ""), "mlx5-striding");
  EXPECT_EQ(mode_of(256, "striding"), "mlx5");
  EXPECT_EQ(mode_of(256, "tables"), "mlx5");
  EXPECT_EQ(mode_of(256, "shortruns"), "mlx5") << "no room for runs of 512 frames";
  EXPECT_EQ(mode_of(4096, "shortruns"), "mlx5-striding");
}

TEST_F(Strides, PacketsLieInAdjacentFramesWhereTheDevicePutThem) {
  open(1024);
  for (int i = 0; i < 40; ++i) send(1514);
  const auto got = take();
  ASSERT_EQ(got.size(), 40U);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i]->index, got[0]->index + i);
    EXPECT_EQ(got[i]->data(), got[i]->frame);
    EXPECT_EQ(number(got[i]), i);
  }
}

TEST_F(Strides, AFrameKeptOfEachRunStopsNothing) {
  open(1024);  // 512 of them for receiving, in runs of 64
  std::vector<PacketRef> kept;
  uint32_t expected = 0;
  const uint32_t in_use = pool().size() - pool().free_count();
  for (unsigned round = 0; round < 400; ++round) {
    for (int i = 0; i < 16; ++i) send();
    auto got = take();
    ASSERT_EQ(got.size(), 16U) << "round " << round;
    for (const PacketRef& p : got) ASSERT_EQ(number(p), expected++);
    if (round % 2 == 0) kept.push_back(std::move(got[round / 2 % 16]));
  }
  EXPECT_EQ(queues_[1]->losses().rx_starved, 0U);
  EXPECT_LE(pool().size() - pool().free_count() - in_use, 512U + kept.size())
      << "a frame kept costs a run at first, in the end itself alone";
  for (size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(number(kept[i]), 32 * i + i % 16) << "what is kept stays as it was";
}

TEST_F(Strides, APoolThatIsAllInUseEndsInNothingWorseThanLoss) {
  open(256);
  std::deque<PacketRef> kept;
  for (int i = 0; i < 1000; ++i) {
    send();
    for (PacketRef& p : take()) kept.push_back(std::move(p));
    queues_[1]->rx_refill();
  }
  EXPECT_LT(kept.size(), 256U);
  EXPECT_GT(kept.size(), 128U) << "of the frames that are not for receiving, too";
  EXPECT_GT(queues_[1]->losses().rx_starved, 0U);
  EXPECT_LT(pool().rx_count(), 1U) << "the last 32nd is for senders";
  kept.clear();
  queues_[1]->rx_refill();
  for (int i = 0; i < 1000; ++i) {
    const uint32_t next = sent_;
    send();
    auto got = take();
    ASSERT_EQ(got.size(), 1U) << i;
    ASSERT_EQ(number(got[0]), next);
  }
}

TEST_F(Strides, WhateverIsKeptBetweenTwoRefillsTheQueueGoesOn) {
  open(4096);
  std::vector<PacketRef> kept;
  RxDesc descs[64];
  const auto keep_all = [&] {
    while (const unsigned n = queues_[1]->rx_burst(descs))
      for (RxDesc& d : std::span(descs).first(n)) kept.push_back(std::move(d.packet));
  };
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 512; ++i) send();
    keep_all();
    queues_[1]->rx_refill();
  }
  const size_t before = kept.size();
  for (int i = 0; i < 100; ++i) {
    send();
    keep_all();
    queues_[1]->rx_refill();
  }
  EXPECT_EQ(kept.size(), before + 100);
  for (size_t i = 0; i + 1 < kept.size(); ++i) ASSERT_LT(number(kept[i]), number(kept[i + 1]));
}

/// What is free is asked by whoever may keep packets for long: TCP refuses what comes out of order
/// once a quarter is left, and windows shrink at an eighth.
TEST_F(Strides, WhatIsNotInUseCountsAsFreeAfterASurge) {
  open(4096);
  for (int i = 0; i < 512; ++i) send();
  (void)take();
  const uint32_t calm = pool().free_count();
  std::vector<PacketRef> kept;
  RxDesc descs[16];
  for (int i = 0; i < 1500; ++i) {
    send();
    while (const unsigned n = queues_[1]->rx_burst(descs))
      for (RxDesc& d : std::span(descs).first(n)) kept.push_back(std::move(d.packet));
    queues_[1]->rx_refill();
  }
  EXPECT_LE(pool().free_count(), pool().size() - kept.size());
  kept.clear();
  queues_[1]->rx_refill();
  EXPECT_GE(pool().free_count() + 64, calm) << "a run may be begun";
  // And they are there for whoever sends.
  for (PacketBuf* p = pool().take(); p != nullptr; queues_[1]->rx_refill(), p = pool().take())
    kept.emplace_back(p);
  EXPECT_GE(kept.size() + 64, calm);
  kept.clear();
  const uint32_t next = sent_;
  send();
  const auto got = take();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(number(got[0]), next);
}

TEST_F(Strides, APacketKeptNowAndThenHoldsUpAnEighthOfThePoolAtMost) {
  open(4096);
  std::vector<PacketRef> kept;
  for (int round = 0; round < 300; ++round) {
    for (int i = 0; i < 64; ++i) send();
    auto got = take();
    ASSERT_EQ(got.size(), 64U) << round;
    kept.push_back(std::move(got[static_cast<size_t>(round) % 64]));
  }
  const auto used = static_cast<uint32_t>(kept.size()) + 512;
  EXPECT_LE(pool().size() - pool().free_count(), used + pool().size() / 8 + 3 * 64);
}

TEST_F(Strides, FramesOutliveTheQueue) {
  open(1024);
  for (int i = 0; i < 100; ++i) send();
  auto got = take();
  ASSERT_EQ(got.size(), 100U);
  rule_.reset();
  queues_[1].reset();
  EXPECT_EQ(pool().size() - pool().free_count(), 100U);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(number(got[i]), i);
  got.clear();
  EXPECT_EQ(pool().free_count(), pool().size());
}

TEST_F(Strides, LongPacketsBetweenShortOnes) {
  open(1024, "", 9000);
  RxDesc descs[16];
  for (uint32_t i = 0; i < 2000; ++i) {
    const size_t bytes = i % 3 == 0 ? 9014 : i % 3 == 1 ? 60 : 2048 + i % 7 * 1000;
    const Bytes frame = numbered(i, bytes);
    PacketRef parts[8];
    PacketSlice slices[8];
    unsigned n = 0;
    for (size_t at = kHeader; at < bytes; ++n) {
      parts[n].reset(ends_->pools[0]->take());
      const size_t part = std::min<size_t>(1500, bytes - at);
      std::memcpy(parts[n]->data(), frame.data() + at, part);
      slices[n] = {parts[n].get(), parts[n]->data_at, static_cast<uint16_t>(part)};
      at += part;
    }
    ASSERT_TRUE(queues_[0]->tx({std::span(frame).first(kHeader), std::span(slices).first(n)},
                               Doorbell::kNow));
    while (softnic_pump()) {
    }
    queues_[0]->tx_reap();
    Bytes whole;
    const unsigned came = queues_[1]->rx_burst(descs);
    ASSERT_EQ(came, (bytes + 2047) / 2048) << i;
    for (unsigned k = 0; k < came; ++k) {
      EXPECT_EQ(has(descs[k].flags, RxFlags::kMore), k + 1 < came);
      const auto b = std::as_const(*descs[k].packet).bytes();
      whole.insert(whole.end(), b.begin(), b.end());
      descs[k].packet.reset();
    }
    ASSERT_EQ(whole.size(), bytes);
    ASSERT_TRUE(std::equal(whole.begin() + kHeader, whole.end(), frame.begin() + kHeader)) << i;
    queues_[1]->rx_refill();
  }
  EXPECT_EQ(queues_[1]->losses().rx_starved, 0U);
}

/// Libraries that the test is linked with are found by dlopen(3) under their names.
[[maybe_unused]] const auto kLinked = &mlx5dv_is_supported;

}  // namespace
}  // namespace vireo::test
