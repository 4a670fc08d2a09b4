// The locks, and the order in which they are taken.
//
//   1 fork / process life   2 fd allocation   3 device registry and open   4 port registry
//   5 a File's control lock (options, epoll sets)   6 an engine's, lower EngineId first
//   7 leaves (log, stats)
// An engine's, and that of an epoll's ready list, are BiasedLocks (core/biased_lock.h).
// A thread that holds one takes only locks of a higher number. While an
// engine's is held, only a leaf may block.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/annotations.h"
#include "core/types.h"

namespace vireo {

/// A mutex: annotated, without libc; reset_after_fork() in the child, while that has one thread.
/// Spins briefly, then sleeps until it is free (pollers use try_lock()). Not recursive, not fair.
class VIREO_CAPABILITY("lock") Lock {
 public:
  Lock() = default;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  bool try_lock() noexcept VIREO_TRY_ACQUIRE(true) {
    // Load first (a heuristic): repeated attempts leave the cache line with its holder.
    return word_.load(std::memory_order_relaxed) == 0 && take();
  }
  void lock() noexcept VIREO_ACQUIRE() VIREO_NO_THREAD_ANALYSIS {
    if (!take()) [[unlikely]]
      lock_slow();
  }
  void unlock() noexcept VIREO_RELEASE() {
    // release pairs with the acquire in take() and lock_slow().
    if (word_.exchange(0, std::memory_order_release) == 2) [[unlikely]]
      wake_one();
  }
  void reset_after_fork() noexcept { word_.store(0, std::memory_order_seq_cst); }

 private:
  bool take() noexcept {
    uint32_t free = 0;
    // acquire pairs with the release in unlock().
    return word_.compare_exchange_strong(free, 1, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  void lock_slow() noexcept VIREO_ACQUIRE() VIREO_NO_THREAD_ANALYSIS;
  void wake_one() noexcept;

  std::atomic<uint32_t> word_{0};  ///< 0 free, 1 taken, 2 taken with possible waiters
};

/// Holds a Lock, or a BiasedLock, for a scope.
template <class L>
class VIREO_SCOPED_CAPABILITY LockGuard {
 public:
  explicit LockGuard(L& l) noexcept VIREO_ACQUIRE(l) : lock_(l) { lock_.lock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;
  ~LockGuard() VIREO_RELEASE() { lock_.unlock(); }

 private:
  L& lock_;
};

}  // namespace vireo
