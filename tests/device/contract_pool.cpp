// Running out of frames, on either side, is a pause and never a loss of frames of the pool.
#include "contract.h"

namespace vireo::test {
namespace {

std::vector<PacketRef> drain(PacketPool& pool) {
  std::vector<PacketRef> all;
  while (PacketBuf* p = pool.take()) all.emplace_back(p);
  return all;
}

TEST_P(DeviceContract, SendingFromAnEmptyPoolIsRefusedOrInlineAndRecovers) {
  std::vector<PacketRef> hoard = drain(pool(0));
  ASSERT_FALSE(hoard.empty());
  const Bytes bytes = frame(0, 1);
  // No body: the frame must come from the pool, unless the device has room of its own.
  const bool taken = queue(0).tx({bytes, {}}, Doorbell::kNow);
  EXPECT_EQ(receive(1, taken ? 1 : 0).size(), taken ? 1U : 0U);
  hoard.clear();
  ASSERT_TRUE(queue(0).tx({bytes, {}}, Doorbell::kNow));
  const auto got = receive(1, 1);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].bytes, bytes);
  reap_until_idle(0);
}

TEST_P(DeviceContract, ReceiverThatHoldsItsFramesRecovers) {
  std::vector<PacketRef> held;
  std::vector<Bytes> as_received;
  RxDesc descs[16];
  uint32_t number = 0;
  // Every frame is kept, so that refill runs dry at last.
  for (int quiet = 0; quiet < 3;) {
    for (int i = 0; i < 8; ++i, ++number)
      if (!send(0, frame(0, number))) queue(0).tx_reap();
    unsigned came = 0;
    for (int tries = 0; tries < 200 && came == 0; ++tries) {
      came = queue(1).rx_burst(descs);
      if (came == 0 && !pair_->progress()) break;
    }
    for (RxDesc& d : std::span(descs).first(came)) {
      const auto b = std::as_const(*d.packet).bytes();
      as_received.emplace_back(b.begin(), b.end());
      held.push_back(std::move(d.packet));
    }
    quiet = came == 0 ? quiet + 1 : 0;
    queue(1).rx_refill();
    queue(0).tx_reap();
    ASSERT_LE(held.size(), pool(1).size());
  }
  EXPECT_LT(pool(1).rx_count(), 16U) << "the pool was to run out";
  EXPECT_GE(pool(1).free_count(), pool(1).size() / 32) << "take_for_rx() leaves that to senders";
  for (size_t i = 0; i < held.size(); ++i) {
    const auto b = std::as_const(*held[i]).bytes();
    ASSERT_TRUE(std::ranges::equal(b, as_received[i])) << "a held frame was overwritten: " << i;
  }
  held.clear();
  queue(1).rx_refill();
  std::vector<Received> got;
  while (receive_burst(1, got) > 0 || !stays_quiet(1)) {
  }
  queue(0).tx_reap();
  for (uint32_t i = 0; i < 50; ++i) {
    send_surely(0, frame(0, 100'000 + i));
    const auto one = receive(1, 1);
    ASSERT_EQ(one.size(), 1U);
    ASSERT_EQ(one[0].bytes, frame(0, 100'000 + i));
  }
}

TEST_P(DeviceContract, HeldFramesKeepTheirBytesWhileOthersCome) {
  send_surely(0, frame(0, 1, 500));
  RxDesc first;
  const auto end = std::chrono::steady_clock::now() + Milliseconds(5'000);
  while (queue(1).rx_burst({&first, 1}) == 0 && std::chrono::steady_clock::now() < end)
    pair_->progress();
  ASSERT_TRUE(first.packet);
  for (uint32_t i = 0; i < 500; ++i) {
    send_surely(0, frame(0, i + 2, 900));
    ASSERT_EQ(receive(1, 1).size(), 1U);
  }
  EXPECT_TRUE(std::ranges::equal(std::as_const(*first.packet).bytes(), frame(0, 1, 500)));
}

TEST_P(DeviceContract, SteadyTrafficWithAPoolOfJustTheRing) {
  reopen({.pool_frames = 384, .tx_ring = 32, .rx_ring = 128});
  if (pair_ == nullptr) return;
  for (uint32_t i = 0; i < 5'000; ++i) {
    send_surely(0, frame(0, i));
    const auto got = receive(1, 1);
    ASSERT_EQ(got.size(), 1U) << i;
    ASSERT_EQ(number_of(got[0].bytes, kHeader), i);
  }
  reap_until_idle(0);
  EXPECT_EQ(pool(0).free_count(), idle_free_[0]);
}

}  // namespace
}  // namespace vireo::test
