// The two ends of one ring of a shared wire: one sender, one receiver, no lock and no system call.
// Owner: ShmQueue. Thread: one at each end; the ends may be in different processes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/prefetch.h"
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
  /// As publish(). @return Waking: how the receiver, who sleeps, must be woken, by this caller
  /// alone; 0: it does not sleep.
  uint32_t publish_and_look() noexcept {
    WireSlot& s = ring_.slot(next_);
    ++next_;
    return store_and_look(s, next_);
  }
  /// For frames given to publish(): as above.
  uint32_t look() noexcept { return next_ != 0 ? store_and_look(ring_.slot(next_ - 1), next_) : 0; }
  /// Fetches, for writing, the lines that a frame as long as the one just sent will fill in the
  /// slot after the next: the receiver has them, and a store waits for each, in order. But for the
  /// first, where the receiver may be looking for it: that would come back once more. A short frame
  /// has too few to wait for.
  void claim_ahead(uint32_t length) noexcept {
    if (length <= kShort) return;
    std::byte* const slot = reinterpret_cast<std::byte*>(&ring_.slot(next_ + 1));
    for (uint32_t at = kLine; at < sizeof(WireSlot) + length; at += kLine)
      prefetch_for_writing(slot + at);
  }
  /// The bytes of the slot that reserve() would give, as far as is known without a look at the
  /// receiver's count; or nullptr.
  std::byte* next_place() noexcept {
    return next_ - taken_ > ring_.mask ? nullptr : ring_.slot(next_).bytes();
  }
  const std::atomic<uint32_t>& word() const noexcept { return ring_.control->armed; }
  uint32_t capacity() const { return ring_.capacity(); }

 private:
  /// Sequentially consistent, with RingReceiver::arm: of "frame, then look at armed" here and
  /// "armed, then look for a frame" there, at least one sees the other.
  uint32_t store_and_look(WireSlot& s, uint64_t sequence) noexcept {
    s.sequence.store(sequence, std::memory_order_seq_cst);
    if (ring_.control->armed.load(std::memory_order_seq_cst) == 0) [[likely]]
      return 0;
    return ring_.control->armed.exchange(0, std::memory_order_acq_rel);  // one wakes for one arm()
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
  /// Done with front(); the sender learns of it by release().
  void pop() noexcept { ++next_; }
  void release() noexcept {
    ring_.control->taken.store(next_, std::memory_order_release);  // pairs with RingSender::reserve
  }
  void prefetch_next() const noexcept { __builtin_prefetch(&ring_.slot(next_ + 1)); }

  /// Asks to be woken, and is not asked to take that back: another may sleep on the same bell.
  /// @return false: a frame is there already.
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
