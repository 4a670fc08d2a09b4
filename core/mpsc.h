// Bounded ring from many threads to one, after D. Vyukov: each slot has a sequence number that says
// whose turn it is. Producers write their payload into the slot itself. A producer that was stopped
// between claim and publication hides what came after it, so a consumer that finds the ring empty
// may be called again: producers leave a note (core/lock.h) after push(), and the note of the slow
// one comes last. Owner: the consumer. Thread: push_with() any; pop_with() one at a time (holder of
// the engine's lock).
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace vireo {

template <class T>
class MpscRing {
 public:
  /// Holds at least `capacity` items: rounded up to a power of two. Allocates here only.
  explicit MpscRing(size_t capacity)
      : mask_(std::bit_ceil(capacity < 2 ? size_t{2} : capacity) - 1), cells_(new Cell[mask_ + 1]) {
    // relaxed: whoever gets the ring to another thread orders it.
    for (size_t i = 0; i <= mask_; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }
  MpscRing(const MpscRing&) = delete;
  MpscRing& operator=(const MpscRing&) = delete;

  /// Calls fill(T&) on a free slot, which holds what its last user left, and publishes it. @return
  /// false: full.
  template <class F>
  bool push_with(F&& fill) noexcept {
    uint64_t at = tail_.load(std::memory_order_relaxed);  // a guess; the CAS below decides
    for (;;) {
      Cell& c = cells_[at & mask_];
      // acquire pairs with the release in pop_with(): the slot was read before we write it.
      const uint64_t turn = c.turn.load(std::memory_order_acquire);
      const auto ahead = static_cast<int64_t>(turn - at);
      if (ahead < 0) return false;
      if (ahead > 0) {
        at = tail_.load(std::memory_order_relaxed);  // someone else took it; the CAS decides
        continue;
      }
      // relaxed: the claim carries no data, the turn does.
      if (!tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) continue;
      fill(c.item);
      // release pairs with the acquire in pop_with().
      c.turn.store(at + 1, std::memory_order_release);
      return true;
    }
  }
  bool push(T v) noexcept {
    return push_with([&](T& slot) { slot = std::move(v); });
  }

  /// Calls use(T&) on the oldest item, then frees its slot. @return false: empty, or the next one
  /// is being written.
  template <class F>
  bool pop_with(F&& use) noexcept {
    Cell& c = cells_[head_ & mask_];
    // acquire pairs with the release in push_with().
    if (c.turn.load(std::memory_order_acquire) != head_ + 1) return false;
    use(c.item);
    // release pairs with the acquire in push_with(), a lap later.
    c.turn.store(head_ + mask_ + 1, std::memory_order_release);
    ++head_;
    return true;
  }

  size_t capacity() const noexcept { return mask_ + 1; }

 private:
  struct alignas(64) Cell {
    std::atomic<uint64_t> turn{0};
    T item;
  };
  const size_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  alignas(64) std::atomic<uint64_t> tail_{0};  ///< producers
  alignas(64) uint64_t head_ = 0;              ///< consumer
};

}  // namespace vireo
