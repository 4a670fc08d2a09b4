// Frames arrive whole, once and in order, from any shape of head and body.
#include <cstring>

#include "contract.h"

namespace vireo::test {
namespace {

TEST_P(DeviceContract, FramesArriveWholeAndInOrder) {
  constexpr uint32_t kCount = 600;
  std::vector<Received> got;
  for (uint32_t i = 0; i < kCount; ++i) {
    send_surely(0, frame(0, i, 60 + (i * 37) % 1455));
    if (i % 16 == 15) {
      auto some = receive(1, 16);
      std::move(some.begin(), some.end(), std::back_inserter(got));
    }
  }
  auto rest = receive(1, kCount - got.size());
  std::move(rest.begin(), rest.end(), std::back_inserter(got));
  ASSERT_EQ(got.size(), kCount);
  for (uint32_t i = 0; i < kCount; ++i)
    ASSERT_EQ(got[i].bytes, frame(0, i, 60 + (i * 37) % 1455)) << i;
  EXPECT_TRUE(stays_quiet(1)) << "a frame came twice";
}

TEST_P(DeviceContract, BothDirectionsAtOnce) {
  for (uint32_t i = 0; i < 200; ++i) {
    send_surely(0, frame(0, i));
    send_surely(1, frame(1, i + 1000, 1400));
    for (int side : {0, 1}) {
      const auto got = receive(side, 1);
      ASSERT_EQ(got.size(), 1U) << "side " << side << " frame " << i;
      ASSERT_EQ(got[0].bytes, side == 1 ? frame(0, i) : frame(1, i + 1000, 1400));
    }
  }
}

TEST_P(DeviceContract, LargestFrameArrives) {
  const size_t size = 14 + pair_->device(0).caps().mtu;
  Bytes big = frame(0, 1, size);
  const size_t part = 1400;
  std::vector<PacketRef> held;
  std::vector<PacketSlice> body;
  for (size_t at = kHeader; at < size; at += part) {
    held.push_back(body_of(pool(0), std::span(big).subspan(at, std::min(part, size - at))));
    ASSERT_TRUE(held.back());
    body.push_back({held.back().get(), held.back()->data_at, held.back()->length});
  }
  ASSERT_TRUE(queue(0).tx({std::span(big).first(kHeader), body}, Doorbell::kNow));
  held.clear();
  const auto got = receive(1, 1);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].bytes, big);
  reap_until_idle(0);
}

TEST_P(DeviceContract, BurstNeverExceedsItsLimit) {
  for (uint32_t i = 0; i < 10; ++i) send_surely(0, frame(0, i));
  std::vector<Received> got = receive(1, 1);
  EXPECT_EQ(receive_burst(1, got, 0), 0U);
  const auto end = std::chrono::steady_clock::now() + Milliseconds(5'000);
  while (got.size() < 10 && std::chrono::steady_clock::now() < end) {
    receive_burst(1, got, 3);  // checks the limit
    pair_->progress();
  }
  ASSERT_EQ(got.size(), 10U);
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(number_of(got[i].bytes, kHeader), i);
}

TEST_P(DeviceContract, BodySlicesAreGathered) {
  const std::vector<std::vector<size_t>> shapes = {{},
                                                   {1},
                                                   {700},
                                                   {1, 1},
                                                   {100, 33, 900},
                                                   {7, 1, 64, 255, 2, 19, 130, 3},
                                                   std::vector<size_t>(17, 31)};
  uint32_t number = 0;
  for (const auto& shape : shapes) {
    size_t total = 0;
    for (size_t s : shape) total += s;
    const Bytes whole = build_frame(flow(0), numbered_payload(++number, total));
    std::vector<PacketRef> held;
    std::vector<PacketSlice> body;
    size_t at = kHeader;
    for (size_t s : shape) {
      PacketRef p(pool(0).take());
      ASSERT_TRUE(p);
      p->data_at = static_cast<uint16_t>(PacketPool::kHeadroom + at % 5);
      p->length = static_cast<uint16_t>(s);
      std::memcpy(p->data(), whole.data() + at, s);
      body.push_back({p.get(), p->data_at, p->length});
      held.push_back(std::move(p));
      at += s;
    }
    ASSERT_TRUE(queue(0).tx({std::span(whole).first(kHeader), body}, Doorbell::kNow));
    held.clear();  // the device's references must keep what it still reads
    const auto got = receive(1, 1);
    ASSERT_EQ(got.size(), 1U) << shape.size() << " slices";
    EXPECT_EQ(got[0].bytes, whole) << shape.size() << " slices";
    queue(0).tx_reap();
  }
  reap_until_idle(0);
}

TEST_P(DeviceContract, TwoSlicesOfOneBuffer) {
  const Bytes whole = frame(0, 9, kHeader + 200);
  PacketRef p = body_of(pool(0), std::span(whole).subspan(kHeader));
  const auto at = p->data_at;
  const PacketSlice body[] = {{p.get(), at, 50}, {p.get(), static_cast<uint16_t>(at + 50), 150}};
  ASSERT_TRUE(queue(0).tx({std::span(whole).first(kHeader), body}, Doorbell::kNow));
  const auto got = receive(1, 1);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].bytes, whole);
  p.reset();
  reap_until_idle(0);
}

TEST_P(DeviceContract, VlanTagAndIpv6AreNotTouched) {
  FrameSpec s = flow(0);
  s.from.addr = pair_->v6(0);
  s.to.addr = pair_->v6(1);
  FlowKey k = local_key(1);
  k.v6 = true;
  k.local.addr = pair_->v6(1);
  auto rule = pair_->device(1).steer(k, FlowTag(0), queue(1));
  ASSERT_TRUE(rule);
  const Bytes six = build_frame(s, numbered_payload(1, 300));
  s = flow(0);
  s.vlan = 0x0005;
  const Bytes tagged = build_frame(s, numbered_payload(2, 300));
  ASSERT_TRUE(checksums_hold(six));
  ASSERT_TRUE(checksums_hold(tagged));
  send_surely(0, six);
  send_surely(0, tagged);
  const auto got = receive(1, 2);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].bytes, six);
  EXPECT_EQ(got[1].bytes, tagged);
}

TEST_P(DeviceContract, WiresThatNeedNoChecksumSaySo) {
  send_surely(0, frame(0, 1));
  const auto got = receive(1, 1);
  ASSERT_EQ(got.size(), 1U);
  const DeviceCaps& caps = pair_->device(1).caps();
  if (caps.rx_l4 == Checksum::kNotNeeded) {
    EXPECT_TRUE(has(got[0].flags, RxFlags::kL4Ok));
  }
  if (caps.rx_ip == Checksum::kNotNeeded) {
    EXPECT_TRUE(has(got[0].flags, RxFlags::kIpOk));
  }
  if (caps.rx_l4 == Checksum::kSoftware) {
    EXPECT_TRUE(checksums_hold(got[0].bytes));
  }
}

}  // namespace
}  // namespace vireo::test
