// Sleeping: no arrival is missed between the last look and the sleep.
#include <poll.h>

#include <atomic>
#include <thread>

#include "contract.h"

namespace vireo::test {
namespace {

using SteadyClock = std::chrono::steady_clock;

bool readable(int fd, int timeout_ms) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN) != 0;
}

/// Arms until there is nothing to do, taking what is there. Fails after too many tries.
void arm_idle(Queue& q, std::vector<Received>& got,
              const std::function<unsigned(std::vector<Received>&)>& burst) {
  for (int i = 0; i < 1000; ++i) {
    const auto armed = q.arm();
    ASSERT_TRUE(armed);
    if (*armed) return;
    burst(got);
  }
  FAIL() << "arm() says for ever that there is work";
}

TEST_P(DeviceContract, ArmRefusesWhileWorkWaits) {
  send_surely(0, frame(0, 1));
  const auto end = SteadyClock::now() + Milliseconds(5'000);
  bool refused = false;
  while (!refused && SteadyClock::now() < end) {
    const auto armed = queue(1).arm();
    ASSERT_TRUE(armed);
    refused = !*armed;
    if (*armed && !pair_->progress()) break;
  }
  // A device that lets the descriptor tell of waiting work instead is as good: no sleep is missed.
  if (!refused && queue(1).wait_fd() >= 0) refused = readable(queue(1).wait_fd(), 1000);
  EXPECT_TRUE(refused);
  queue(1).wake_ack();
  EXPECT_EQ(receive(1, 1).size(), 1U);
}

TEST_P(DeviceContract, ArmedIdleQueueIsQuietThenWakes) {
  if (queue(1).wait_fd() < 0) GTEST_SKIP() << "cannot sleep";
  const int fd = queue(1).wait_fd();
  for (uint32_t i = 0; i < 20; ++i) {
    std::vector<Received> got;
    arm_idle(queue(1), got, [&](auto& out) { return receive_burst(1, out); });
    ASSERT_TRUE(got.empty());
    EXPECT_FALSE(readable(fd, 0)) << "readable with nothing to read";
    send_surely(0, frame(0, i));
    ASSERT_TRUE(readable(fd, 5'000)) << "round " << i;
    queue(1).wake_ack();
    got = receive(1, 1);
    ASSERT_EQ(got.size(), 1U);
    EXPECT_EQ(number_of(got[0].bytes, kHeader), i);
    EXPECT_EQ(queue(1).wait_fd(), fd) << "wait_fd() is constant";
  }
}

TEST_P(DeviceContract, ArmTwiceAndDisarmByPollingAreHarmless) {
  if (queue(1).wait_fd() < 0) GTEST_SKIP() << "cannot sleep";
  ASSERT_TRUE(queue(1).arm());
  ASSERT_TRUE(queue(1).arm());
  for (uint32_t i = 0; i < 100; ++i) {  // polled without ever sleeping
    send_surely(0, frame(0, i));
    ASSERT_EQ(receive(1, 1).size(), 1U);
  }
  queue(1).wake_ack();
  std::vector<Received> got;
  arm_idle(queue(1), got, [&](auto& out) { return receive_burst(1, out); });
  send_surely(0, frame(0, 200));
  EXPECT_TRUE(readable(queue(1).wait_fd(), 5'000));
}

// Who was not woken itself, as an engine's helper beside a thread that polls, has nothing to
// acknowledge: it would wake again and again.
TEST_P(DeviceContract, ArmingEndsOldWakeUps) {
  if (queue(1).wait_fd() < 0) GTEST_SKIP() << "cannot sleep";
  const int fd = queue(1).wait_fd();
  const auto arm = [&] {
    std::vector<Received> got;
    arm_idle(queue(1), got, [&](auto& out) { return receive_burst(1, out); });
    EXPECT_TRUE(got.empty());
  };
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_NO_FATAL_FAILURE(arm()) << "round " << i;
    send_surely(0, frame(0, i));
    ASSERT_TRUE(readable(fd, 5'000)) << "round " << i;
    ASSERT_EQ(receive(1, 1).size(), 1U);
    ASSERT_NO_FATAL_FAILURE(arm()) << "round " << i;
    EXPECT_FALSE(readable(fd, 0)) << "round " << i;
  }
}

// One thread sleeps, and what arrives first another takes that polls, or that armed and was told
// not to sleep: the next must wake the first.
TEST_P(DeviceContract, WhoPollsTakesNoWakeUpAway) {
  if (queue(1).wait_fd() < 0) GTEST_SKIP() << "cannot sleep";
  const int fd = queue(1).wait_fd();
  for (uint32_t i = 0; i < 20; ++i) {
    std::vector<Received> got;
    if (i % 2 == 0) arm_idle(queue(1), got, [&](auto& out) { return receive_burst(1, out); });
    send_surely(0, frame(0, 2 * i));
    if (i % 2 != 0) {
      ASSERT_TRUE(queue(1).arm());
    }
    ASSERT_EQ(receive(1, 1).size(), 1U);
    if (readable(fd, 0)) continue;  // it tells of the first still: as good
    send_surely(0, frame(0, 2 * i + 1));
    EXPECT_TRUE(readable(fd, 5'000)) << "round " << i;
    ASSERT_EQ(receive(1, 1).size(), 1U);
  }
}

// The same where it was woken, takes less than there is, and arms again for who sleeps on.
TEST_P(DeviceContract, WhatIsLeftTakesNoWakeUpAway) {
  if (queue(1).wait_fd() < 0) GTEST_SKIP() << "cannot sleep";
  const int fd = queue(1).wait_fd();
  constexpr uint32_t kFrames = 24;
  for (uint32_t i = 0; i < 20; ++i) {
    std::vector<Received> got;
    arm_idle(queue(1), got, [&](auto& out) { return receive_burst(1, out); });
    // By one doorbell: some devices tell of those that come together by one completion.
    for (uint32_t k = 0; k + 1 < kFrames; ++k)
      if (!send(0, frame(0, k), Doorbell::kLater)) send_surely(0, frame(0, k));
    send_surely(0, frame(0, kFrames - 1));
    ASSERT_TRUE(readable(fd, 5'000)) << "round " << i;
    while (got.size() < 1 + i) {
      if (receive_burst(1, got, 1) == 0) pair_->progress();
      queue(1).wake_ack();
      ASSERT_TRUE(queue(1).arm());
    }
    ASSERT_EQ(receive(1, kFrames - got.size()).size(), kFrames - got.size());
    if (readable(fd, 0)) continue;  // it tells of those still: as good
    send_surely(0, frame(0, kFrames));
    ASSERT_TRUE(readable(fd, 5'000)) << "round " << i;
    ASSERT_EQ(receive(1, 1).size(), 1U);
  }
}

// The sender sends one frame and waits for it to be taken, at moments spread over the receiver's
// way to sleep: a wake-up lost once stops both for good.
TEST_P(DeviceContract, NoWakeUpIsLost) {
  if (queue(1).wait_fd() < 0) GTEST_SKIP() << "cannot sleep";
  constexpr uint32_t kFrames = 3000;
  std::vector<Bytes> frames;
  for (uint32_t i = 0; i < kFrames; ++i) frames.push_back(frame(0, i));
  std::atomic<uint32_t> taken{0};
  std::atomic<bool> failed{false};
  uint32_t sleeps = 0;

  std::thread receiver([&] {
    Queue& q = queue(1);
    RxDesc descs[16];
    while (taken < kFrames) {
      const unsigned n = q.rx_burst(descs);
      for (RxDesc& d : std::span(descs).first(n)) {
        const bool right = std::ranges::equal(std::as_const(*d.packet).bytes(), frames[taken]);
        if (!right) failed = true;
        d.packet.reset();
        ++taken;
      }
      if (failed) return;
      if (n > 0) {
        q.rx_refill();
        continue;
      }
      const auto armed = q.arm();
      if (!armed) {
        failed = true;
        return;
      }
      if (!*armed) continue;
      ++sleeps;
      if (!readable(q.wait_fd(), 5'000)) {
        failed = true;
        return;
      }
      q.wake_ack();
    }
  });

  uint32_t lcg = 1;
  for (uint32_t i = 0; i < kFrames && !failed; ++i) {
    while (!send(0, frames[i]) && !failed) queue(0).tx_reap();
    while (taken <= i && !failed) queue(0).tx_reap();
    lcg = lcg * 1664525 + 1013904223;
    for (uint32_t spin = 0; spin < lcg >> 20; ++spin) asm volatile("pause");
  }
  receiver.join();
  EXPECT_FALSE(failed) << "stopped after " << taken << " frames";
  EXPECT_EQ(taken, kFrames);
  EXPECT_GT(sleeps, 0U);
}

TEST_P(DeviceContract, LostDeviceIsNoticed) {
  EXPECT_TRUE(queue(0).alive());
  EXPECT_TRUE(queue(1).alive());
  if (!pair_->unplug(1)) GTEST_SKIP() << "cannot be unplugged";
  const auto end = SteadyClock::now() + Milliseconds(5'000);
  while (queue(1).alive() && SteadyClock::now() < end) pair_->progress();
  EXPECT_FALSE(queue(1).alive());
  const auto armed = queue(1).arm();
  ASSERT_FALSE(armed);
  EXPECT_EQ(armed.error().code, ENODEV);
  (void)send(1, frame(1, 1));  // no crash; what it took comes back on closing
}

}  // namespace
}  // namespace vireo::test
