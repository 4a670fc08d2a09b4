// Bounded ring from one thread to another. Each side caches the other's position, so that an
// exchange that keeps up moves two cache lines per lap, not per item. Owner: whoever connects the
// two. Thread: push() one producer; pop(), front() one consumer.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace vireo {

template <class T>
class SpscRing {
 public:
  /// Holds at least `capacity` items: rounded up to a power of two. Allocates here only.
  explicit SpscRing(size_t capacity)
      : mask_(std::bit_ceil(capacity < 2 ? size_t{2} : capacity) - 1), items_(new T[mask_ + 1]) {}
  SpscRing(const SpscRing&) = delete;
  SpscRing& operator=(const SpscRing&) = delete;

  /// Producer. @return false: full, `v` is untouched.
  bool push(T&& v) noexcept {
    const uint64_t t = tail_.load(std::memory_order_relaxed);  // ours
    if (t - seen_head_ > mask_) {
      // acquire pairs with the release in pop(): the slot is read before we write it again.
      seen_head_ = head_.load(std::memory_order_acquire);
      if (t - seen_head_ > mask_) return false;
    }
    items_[t & mask_] = std::move(v);
    // release pairs with the acquire in front(): the item is there before the position says so.
    tail_.store(t + 1, std::memory_order_release);
    return true;
  }
  bool push(const T& v) noexcept { return push(T(v)); }

  /// Consumer. The oldest item, or nullptr; valid until pop().
  T* front() noexcept {
    const uint64_t h = head_.load(std::memory_order_relaxed);  // ours
    if (h == seen_tail_) {
      // acquire pairs with the release in push().
      seen_tail_ = tail_.load(std::memory_order_acquire);
      if (h == seen_tail_) return nullptr;
    }
    return &items_[h & mask_];
  }
  /// Consumer. Drops the item of front(), which must have been there.
  void pop() noexcept {
    // release pairs with the acquire in push(). The load is relaxed: ours.
    head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  /// Consumer. @return false: empty.
  bool pop(T& out) noexcept {
    T* p = front();
    if (p == nullptr) return false;
    out = std::move(*p);
    pop();
    return true;
  }

  /// Any thread: old as soon as it is known. acquire pairs with both releases.
  size_t size() const noexcept {
    const uint64_t h = head_.load(std::memory_order_acquire);
    return static_cast<size_t>(tail_.load(std::memory_order_acquire) - h);
  }
  bool empty() const noexcept { return size() == 0; }
  size_t capacity() const noexcept { return mask_ + 1; }

 private:
  const size_t mask_;
  const std::unique_ptr<T[]> items_;
  alignas(64) std::atomic<uint64_t> tail_{0};  ///< producer's line
  uint64_t seen_head_ = 0;
  alignas(64) std::atomic<uint64_t> head_{0};  ///< consumer's line
  uint64_t seen_tail_ = 0;
};

}  // namespace vireo
