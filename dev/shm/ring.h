// The two ends of one ring of a shared wire: one sender, one receiver, no lock and no system call.
// Owner: ShmQueue. Thread: one at each end; the ends may be in different processes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dev/shm/wire.h"

namespace vireo {

/// Where a ring lies.
struct RingView {
  RingControl* control = nullptr;
  std::byte* slots = nullptr;
  uint64_t mask = 0;
  uint32_t stride = 0;
  uint32_t capacity() const { return stride - static_cast<uint32_t>(sizeof(WireSlot)); }
  WireSlot& slot(uint64_t number) const {
    return *reinterpret_cast<WireSlot*>(slots + (number & mask) * stride);
  }
};

/// View of ring 0 or 1 of a mapped wire.
inline RingView ring_of(std::byte* wire, unsigned which, uint32_t slots, uint32_t stride) {
  return {reinterpret_cast<RingControl*>(wire + kRingsAt) + which,
          wire + kSlotsAt + size_t{which} * slots * stride, slots - 1, stride};
}

class RingSender {
 public:
  RingSender() = default;
  explicit RingSender(const RingView& ring) : ring_(ring) {}

  /// Room for one frame, or nullptr if the ring is full. Nothing is promised until publish().
  WireSlot* reserve() noexcept {
    if (next_ - taken_ > ring_.mask) [[unlikely]] {
      taken_ = ring_.control->taken.load(
          std::memory_order_acquire);  // pairs with the store in RingReceiver::release
      if (next_ - taken_ > ring_.mask) return nullptr;
    }
    return &ring_.slot(next_);
  }
  /// Hands over the reserved slot, without looking whether the receiver sleeps.
  void publish() noexcept {
    ring_.slot(next_).sequence.store(next_ + 1,
                                     std::memory_order_release);  // pairs with RingReceiver::front
    ++next_;
  }
  /// As publish(). @return true: the receiver sleeps and must be woken, by this caller alone.
  bool publish_and_look() noexcept {
    WireSlot& s = ring_.slot(next_);
    ++next_;
    return store_and_look(s, next_);
  }
  /// For frames given to publish(): true as above.
  bool look() noexcept { return next_ != 0 && store_and_look(ring_.slot(next_ - 1), next_); }
  uint32_t capacity() const { return ring_.capacity(); }

 private:
  /// Sequentially consistent, with RingReceiver::arm: of "frame, then look at armed" here and
  /// "armed, then look for a frame" there, at least one sees the other.
  bool store_and_look(WireSlot& s, uint64_t sequence) noexcept {
    s.sequence.store(sequence, std::memory_order_seq_cst);
    if (ring_.control->armed.load(std::memory_order_seq_cst) == 0) [[likely]]
      return false;
    return ring_.control->armed.exchange(0, std::memory_order_acq_rel) !=
           0;  // only one rings for one arm()
  }
  RingView ring_;
  uint64_t next_ = 0;   ///< number of the next frame
  uint64_t taken_ = 0;  ///< the receiver's count, as last seen
};

class RingReceiver {
 public:
  RingReceiver() = default;
  explicit RingReceiver(const RingView& ring) : ring_(ring) {}

  /// The oldest frame not yet popped, or nullptr.
  WireSlot* front() noexcept {
    WireSlot& s = ring_.slot(next_);
    const bool ready =
        s.sequence.load(std::memory_order_acquire) == next_ + 1;  // pairs with RingSender::publish
    return ready ? &s : nullptr;
  }
  /// Done with front(); the sender learns of it by release().
  void pop() noexcept { ++next_; }
  void release() noexcept {
    ring_.control->taken.store(next_, std::memory_order_release);  // pairs with RingSender::reserve
  }
  void prefetch_next() const noexcept { __builtin_prefetch(&ring_.slot(next_ + 1)); }

  /// Asks for the doorbell. @return false: a frame is there, nothing was asked.
  bool arm() noexcept {
    ring_.control->armed.store(1,
                               std::memory_order_seq_cst);  // order: see RingSender::store_and_look
    if (ring_.slot(next_).sequence.load(std::memory_order_seq_cst) != next_ + 1) return true;
    disarm();
    return false;
  }
  void disarm() noexcept { ring_.control->armed.store(0, std::memory_order_relaxed); }
  uint32_t capacity() const { return ring_.capacity(); }

 private:
  RingView ring_;
  uint64_t next_ = 0;
};

}  // namespace vireo
