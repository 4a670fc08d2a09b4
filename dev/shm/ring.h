// The two ends of a ring of a shared wire: one sender, one receiver, no lock, no system call.
// Owner: ShmQueue. Thread: one at each end; the ends may be in different processes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/prefetch.h"
#include "dev/shm/wire.h"

namespace vireo {

/// Location and layout of a ring.
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

  /// The slot for the next frame, or nullptr if the ring is full. The receiver sees nothing before
  /// publish().
  WireSlot* reserve() noexcept {
    if (next_ - taken_ > ring_.mask) [[unlikely]] {
      taken_ = ring_.control->taken.load(
          std::memory_order_acquire);  // pairs with the store in RingReceiver::release
      if (next_ - taken_ > ring_.mask) return nullptr;
    }
    return &ring_.slot(next_);
  }
  /// Publishes the reserved slot without a check whether the receiver sleeps.
  void publish() noexcept {
    ring_.slot(next_).sequence.store(next_ + 1,
                                     std::memory_order_release);  // pairs with RingReceiver::front
    ++next_;
  }
  /// Like publish(). @return Waking: how this caller, and no other, must wake the sleeping
  /// receiver; 0: it does not sleep.
  uint32_t publish_and_look() noexcept {
    WireSlot& s = ring_.slot(next_);
    ++next_;
    return store_and_look(s, next_);
  }
  /// The check of publish_and_look() for frames given to publish().
  uint32_t look() noexcept { return next_ != 0 ? store_and_look(ring_.slot(next_ - 1), next_) : 0; }
  /// Prefetches for writing the cache lines of the slot after the next, for a frame as long as the
  /// last one: the receiver's core owns them, and in-order stores would wait for each. Not the
  /// first line: the receiver may be polling it and would take it back. A short frame has too few
  /// lines to matter.
  void claim_ahead(uint32_t length) noexcept {
    if (length <= kShort) return;
    std::byte* const slot = reinterpret_cast<std::byte*>(&ring_.slot(next_ + 1));
    for (uint32_t at = kLine; at < sizeof(WireSlot) + length; at += kLine)
      prefetch_for_writing(slot + at);
  }
  /// The bytes of the slot that reserve() would return, judged by the receiver's count as last
  /// seen; or nullptr.
  std::byte* next_place() noexcept {
    return next_ - taken_ > ring_.mask ? nullptr : ring_.slot(next_).bytes();
  }
  const std::atomic<uint32_t>& word() const noexcept { return ring_.control->armed; }
  uint32_t capacity() const { return ring_.capacity(); }

 private:
  /// Sequentially consistent, like RingReceiver::arm: one side stores the frame, then reads
  /// `armed`; the other stores `armed`, then looks for a frame. At least one sees the other's
  /// store.
  uint32_t store_and_look(WireSlot& s, uint64_t sequence) noexcept {
    s.sequence.store(sequence, std::memory_order_seq_cst);
    if (ring_.control->armed.load(std::memory_order_seq_cst) == 0) [[likely]]
      return 0;
    return ring_.control->armed.exchange(0, std::memory_order_acq_rel);  // one wake-up per arm()
  }
  static constexpr uint32_t kLine = 64, kShort = 256;

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
  /// Consumes front(); release() tells the sender.
  void pop() noexcept { ++next_; }
  void release() noexcept {
    ring_.control->taken.store(next_, std::memory_order_release);  // pairs with RingSender::reserve
  }
  void prefetch_next() const noexcept { __builtin_prefetch(&ring_.slot(next_ + 1)); }

  /// Requests a wake-up. The request is never withdrawn, because another thread may sleep on the
  /// same bell. @return false: a frame is already there.
  bool arm(Waking how = kByBell) noexcept {
    ring_.control->armed.fetch_or(how,
                                  std::memory_order_seq_cst);  // order: RingSender::store_and_look
    return ring_.slot(next_).sequence.load(std::memory_order_seq_cst) != next_ + 1;
  }
  const std::atomic<uint32_t>& word() const noexcept { return ring_.control->armed; }
  uint32_t capacity() const { return ring_.capacity(); }

 private:
  RingView ring_;
  uint64_t next_ = 0;
};

}  // namespace vireo
