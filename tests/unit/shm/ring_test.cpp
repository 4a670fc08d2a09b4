// One ring, its two ends in two threads on the same memory.
#include "dev/shm/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

namespace vireo {
namespace {

constexpr uint32_t kSlots = 8;

class Ring {
 public:
  Ring() : memory_(wire_bytes(kSlots, slot_stride(1500)) + 128) {
    void* p = memory_.data();
    size_t room = memory_.size();
    base_ = static_cast<std::byte*>(std::align(128, memory_.size() - 128, p, room));
  }
  RingView view() { return ring_of(base_, 1, kSlots, slot_stride(1500)); }

 private:
  std::vector<std::byte> memory_;
  std::byte* base_;
};

bool put(RingSender& s, uint64_t number, bool* wake = nullptr) {
  WireSlot* slot = s.reserve();
  if (slot == nullptr) return false;
  std::memcpy(slot->bytes(), &number, sizeof number);
  std::memcpy(slot->bytes() + 600, &number, sizeof number);
  slot->length = 608;
  if (wake != nullptr) {
    *wake = s.publish_and_look();
  } else {
    s.publish();
  }
  return true;
}

uint64_t number_in(WireSlot& slot) {
  uint64_t first, last;
  std::memcpy(&first, slot.bytes(), sizeof first);
  std::memcpy(&last, slot.bytes() + 600, sizeof last);
  EXPECT_EQ(first, last);
  return first;
}

TEST(ShmWire, ASlotOfTheSmallestMtuHoldsAnyHead) {
  constexpr uint32_t kMaxOfHead = 14 + 8 + 60 + 60;  // Ethernet, two tags, IPv4, TCP
  for (uint32_t mtu : {68U, 100U, 256U, 1500U, 9000U})
    EXPECT_GE(slot_stride(mtu) - sizeof(WireSlot), std::max(kMaxOfHead, mtu + 22)) << mtu;
}

TEST(ShmRing, FullMeansFullAndReleaseMakesRoom) {
  Ring ring;
  RingSender sender(ring.view());
  RingReceiver receiver(ring.view());
  EXPECT_EQ(receiver.front(), nullptr);
  for (uint64_t lap = 0; lap < 5; ++lap) {
    for (uint64_t i = 0; i < kSlots; ++i) ASSERT_TRUE(put(sender, lap * kSlots + i));
    EXPECT_FALSE(put(sender, 0));
    for (uint64_t i = 0; i < kSlots; ++i) {
      ASSERT_NE(receiver.front(), nullptr);
      EXPECT_EQ(number_in(*receiver.front()), lap * kSlots + i);
      receiver.pop();
      if (i == 2) {
        EXPECT_FALSE(put(sender, 0)) << "taken but not yet released";
      }
    }
    EXPECT_EQ(receiver.front(), nullptr);
    receiver.release();
  }
}

TEST(ShmRing, ArmSeesWhatIsThereAndLookSeesTheArm) {
  Ring ring;
  RingSender sender(ring.view());
  RingReceiver receiver(ring.view());
  EXPECT_TRUE(receiver.arm());
  bool wake = false;
  ASSERT_TRUE(put(sender, 1, &wake));
  EXPECT_TRUE(wake);
  ASSERT_TRUE(put(sender, 2, &wake));
  EXPECT_FALSE(wake) << "rung once for one arm";
  EXPECT_FALSE(receiver.arm());
  receiver.pop();
  receiver.pop();
  receiver.release();
  EXPECT_TRUE(receiver.arm());
  ASSERT_TRUE(put(sender, 3));
  EXPECT_TRUE(sender.look());
  EXPECT_FALSE(sender.look());
}

TEST(ShmRing, TwoThreadsStreamInOrder) {
  constexpr uint64_t kFrames = 200'000;
  Ring ring;
  std::thread receiver([&] {
    RingReceiver r(ring.view());
    for (uint64_t i = 0; i < kFrames;) {
      WireSlot* slot = r.front();
      if (slot == nullptr) {
        std::this_thread::yield();
        continue;
      }
      ASSERT_EQ(number_in(*slot), i);
      r.pop();
      r.release();
      ++i;
    }
  });
  RingSender s(ring.view());
  for (uint64_t i = 0; i < kFrames;) {
    if (put(s, i)) {
      ++i;
    } else {
      std::this_thread::yield();
    }
  }
  receiver.join();
}

// A lost wake-up leaves the receiver asleep: the wait then times out.
TEST(ShmRing, TwoThreadsSleepAndWake) {
  constexpr uint64_t kFrames = 30'000;
  Ring ring;
  std::counting_semaphore<> bell(0);
  std::atomic<uint64_t> taken{0};
  std::atomic<bool> lost{false};
  std::thread receiver([&] {
    RingReceiver r(ring.view());
    while (taken < kFrames && !lost) {
      if (WireSlot* slot = r.front()) {
        if (number_in(*slot) != taken) lost = true;
        r.pop();
        r.release();
        ++taken;
      } else if (r.arm() && !bell.try_acquire_for(std::chrono::seconds(5))) {
        lost = true;
      }
    }
  });
  RingSender s(ring.view());
  for (uint64_t i = 0; i < kFrames && !lost; ++i) {
    bool wake = false;
    if (i % 3 == 0) {
      while (!put(s, i)) std::this_thread::yield();
      wake = s.look();
    } else {
      while (!put(s, i, &wake)) std::this_thread::yield();
    }
    if (wake) bell.release();
    while (i % 2 == 0 && taken <= i && !lost) std::this_thread::yield();
  }
  receiver.join();
  EXPECT_FALSE(lost);
  EXPECT_EQ(taken, kFrames);
}

}  // namespace
}  // namespace vireo
