// Immutable values that many holders share. A holder changes its value by replacing it. Equal
// values are stored once, if found among the few used most recently (duplicates do no harm). The
// latest value without holders is kept: a program that opens and closes one connection after
// another finds it again. Owner: the table owns the values, a holder has a reference. Thread: any;
// the lock is a leaf.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>
#include <utility>

#include "core/lock.h"

namespace vireo {

/// Values of T, identified by their base Key.
template <class T, class Key = T>
class SharedValues {
 public:
  constexpr SharedValues() = default;
  SharedValues(const SharedValues&) = delete;
  SharedValues& operator=(const SharedValues&) = delete;

  /// Returns a value equal to `key`, with a reference for the caller; nullptr: out of memory. A new
  /// one is constructed from `key` and `more`.
  template <class... More>
  const T* find_or_make(const Key& key, const More&... more) noexcept {
    const LockGuard guard(lock_);
    unsigned looks = 0;
    for (Block* b = first_; b != nullptr && looks < kLooks; b = b->next, ++looks) {
      if (static_cast<const Key&>(*b) != key) continue;
      b->refs.fetch_add(1, std::memory_order_relaxed);
      if (b == unused_) unused_ = nullptr;
      if (b != first_) {
        unlink(*b);
        push_front(*b);
      }
      return b;
    }
    auto* b = new (std::nothrow) Block(*this, key, more...);
    if (b != nullptr) push_front(*b);
    return b;
  }
  /// Adds a reference to a value from find_or_make().
  static void hold(const T* value) noexcept {
    block_of(value).refs.fetch_add(1, std::memory_order_relaxed);  // the caller has one
  }
  static void drop(const T* value) noexcept {
    Block& b = block_of(value);
    b.home.drop(b);
  }
  /// Call at the end of the owner's life, when no value has a holder.
  void clear() noexcept {
    const LockGuard guard(lock_);
    end_unused();
  }
  Lock& lock() noexcept { return lock_; }  ///< for fork(): it must be free in the child

 private:
  static constexpr unsigned kLooks = 8;

  struct Block : T {
    template <class... Made>
    explicit Block(SharedValues& table, const Made&... of) : T(of...), home(table) {}
    SharedValues& home;
    std::atomic<uint32_t> refs{1};  ///< becomes 0, and leaves 0, under the table's lock only
    Block* next = nullptr;
    Block* previous = nullptr;
  };

  static Block& block_of(const T* value) noexcept {
    return *const_cast<Block*>(static_cast<const Block*>(value));
  }
  void drop(Block& b) noexcept {
    const LockGuard guard(lock_);
    if (b.refs.fetch_sub(1, std::memory_order_relaxed) != 1) return;  // ordered by the lock
    end_unused();
    unused_ = &b;
  }
  void end_unused() noexcept VIREO_REQUIRES(lock_) {
    if (unused_ == nullptr) return;
    unlink(*unused_);
    delete std::exchange(unused_, nullptr);
  }
  void push_front(Block& b) noexcept VIREO_REQUIRES(lock_) {
    b.previous = nullptr;
    b.next = first_;
    if (first_ != nullptr) first_->previous = &b;
    first_ = &b;
  }
  void unlink(Block& b) noexcept VIREO_REQUIRES(lock_) {
    (b.previous == nullptr ? first_ : b.previous->next) = b.next;
    if (b.next != nullptr) b.next->previous = b.previous;
  }

  Lock lock_;
  Block* first_ VIREO_GUARDED_BY(lock_) = nullptr;   ///< the most recently found
  Block* unused_ VIREO_GUARDED_BY(lock_) = nullptr;  ///< in the list, too
};

}  // namespace vireo
