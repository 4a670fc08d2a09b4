// The locks, and the order in which they are taken.
//
//   1 fork / process life   2 fd allocation   3 device registry and open   4 port registry
//   5 a File's control lock (options, epoll sets)   6 EngineLocks, lower EngineId first   7 leaf
//   ControlLocks (log, stats)
// A thread that holds one takes only locks of a higher number. Nothing blocks under an EngineLock
// but a leaf.
//
// EngineLock is one word: who finds it taken leaves a note in the same atomic step, and the holder
// runs the notes before it lets go. So nobody queues behind the engine, and no note is ever left
// with the lock free.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "core/annotations.h"
#include "core/types.h"

namespace vireo {

/// What the holder of an EngineLock is asked to do before it lets go.
enum class Work : uint32_t {
  kNone = 0,
  kInbox = 1U << 8,        ///< the inbox has notes with a payload
  kTimers = 1U << 9,       ///< a deadline passed
  kClose = 1U << 10,       ///< a socket was closed
  kNetChanged = 1U << 11,  ///< routes, links or neighbours changed
  kRefill = 1U << 12,      ///< frames came back from readers
};
template <>
inline constexpr bool kIsFlags<Work> = true;

/// Guards one engine and all it owns. Not recursive. Unfair: whoever comes first when it is free.
class VIREO_CAPABILITY("engine lock") EngineLock {
 public:
  EngineLock() = default;
  EngineLock(const EngineLock&) = delete;
  EngineLock& operator=(const EngineLock&) = delete;

  /// Takes the lock if it is free.
  bool try_lock() noexcept VIREO_TRY_ACQUIRE(true) {
    uint64_t w = word_.load(std::memory_order_relaxed);  // a guess; the CAS below decides
    // acquire pairs with the release in unlock(): we see all the last holder did.
    return (w & kLocked) == 0 &&
           word_.compare_exchange_strong(w, w | kLocked, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }

  /// Takes the lock (true), or leaves `work` for its holder (false). What the work is about must
  /// have been written before. If true, the caller does the work itself.
  bool lock_or_note(Work work) noexcept VIREO_TRY_ACQUIRE(true) {
    uint64_t w = word_.load(std::memory_order_relaxed);  // a guess; the CAS below decides
    for (;;) {
      const bool taken = (w & kLocked) != 0;
      // The CAS is made even if the bits are set already: only as a part of the word's order of
      // modifications is our write of the inbox certain to be seen by the holder that clears them.
      // acq_rel: acquire (taken) pairs with the release in unlock(), release (noted) with the
      // acquire in take_work().
      if (word_.compare_exchange_weak(w, taken ? w | static_cast<uint64_t>(work) : w | kLocked,
                                      std::memory_order_acq_rel, std::memory_order_relaxed))
        return !taken;
    }
  }

  /// Takes the lock: spins a little, then sleeps until it is free. Not for pollers, who try.
  void lock() noexcept VIREO_ACQUIRE() VIREO_NO_THREAD_ANALYSIS {
    uint64_t free = 0;  // nothing but LOCKED outlives unlock(): no look before
    // acquire pairs with the release in unlock().
    if (!word_.compare_exchange_strong(free, kLocked, std::memory_order_acquire,
                                       std::memory_order_relaxed)) [[unlikely]]
      lock_slow();
  }

  /// Takes the notes left so far, which the caller must then run. For a holder that keeps the lock
  /// for long.
  Work take_work() noexcept VIREO_REQUIRES(this) {
    // acquire pairs with the release in lock_or_note(): the inbox is as its writer left it.
    return static_cast<Work>(word_.fetch_and(~kWorkMask, std::memory_order_acquire) & kWorkMask);
  }

  /// Lets go if nobody left a note or sleeps. @return false: nothing was done, unlock() does it.
  bool try_unlock() noexcept VIREO_NO_THREAD_ANALYSIS {
    uint64_t w = kLocked;
    // release and relaxed as in unlock().
    return word_.compare_exchange_strong(w, 0, std::memory_order_release,
                                         std::memory_order_relaxed);
  }
  /// Runs all notes by `run_work(Work)`, under the lock, until there is none, then lets go.
  template <class F>
  void unlock(F&& run_work) noexcept VIREO_RELEASE() VIREO_NO_THREAD_ANALYSIS {
    uint64_t w = kLocked;
    // release pairs with the acquire of the next holder; relaxed on failure: take_work() does the
    // acquire.
    while (!word_.compare_exchange_strong(w, 0, std::memory_order_release,
                                          std::memory_order_relaxed)) [[unlikely]] {
      if ((w & kWorkMask) != 0) {
        run_work(take_work());
        w = kLocked;
        continue;
      }
      // Nothing but SLEEPER beside LOCKED: let go of both at once and wake one; it sets SLEEPER
      // again for the others. release pairs as above.
      if (word_.compare_exchange_strong(w, 0, std::memory_order_release,
                                        std::memory_order_relaxed)) {
        wake_one();
        return;
      }
      w = kLocked;
    }
  }

  /// For assertions and statistics only: old as soon as it is known.
  bool is_locked() const noexcept { return (word_.load(std::memory_order_relaxed) & kLocked) != 0; }
  /// True if notes wait: a cheap look for a holder between bursts. Relaxed: take_work() does the
  /// acquire.
  bool has_work() const noexcept {
    return (word_.load(std::memory_order_relaxed) & kWorkMask) != 0;
  }
  /// The child of a fork: whoever held it does not exist here. Only while the process has one
  /// thread.
  void reset_after_fork() noexcept { word_.store(0, std::memory_order_seq_cst); }

 private:
  // All in the low half: a futex is 32 bits.
  static constexpr uint64_t kLocked = 1;
  static constexpr uint64_t kSleeper = 2;
  static constexpr uint64_t kWorkMask = 0xffffff00;

  void lock_slow() noexcept VIREO_ACQUIRE() VIREO_NO_THREAD_ANALYSIS;
  void wake_one() noexcept;

  std::atomic<uint64_t> word_{0};
};

/// A mutex for control paths (setup, fd table, registries): annotated, fork-resettable, no libc
/// inside.
class VIREO_CAPABILITY("control lock") ControlLock {
 public:
  ControlLock() = default;
  ControlLock(const ControlLock&) = delete;
  ControlLock& operator=(const ControlLock&) = delete;

  bool try_lock() noexcept VIREO_TRY_ACQUIRE(true) {
    uint32_t free = 0;
    // acquire pairs with the release in unlock().
    return word_.compare_exchange_strong(free, 1, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  void lock() noexcept VIREO_ACQUIRE() {
    if (!try_lock()) lock_slow();
  }
  void unlock() noexcept VIREO_RELEASE() {
    // release pairs with the acquire in try_lock() and lock_slow().
    if (word_.exchange(0, std::memory_order_release) == 2) wake_one();
  }
  void reset_after_fork() noexcept { word_.store(0, std::memory_order_seq_cst); }

 private:
  void lock_slow() noexcept VIREO_ACQUIRE() VIREO_NO_THREAD_ANALYSIS;
  void wake_one() noexcept;

  std::atomic<uint32_t> word_{0};  ///< 0 free, 1 taken, 2 taken and perhaps awaited
};

/// Holds a ControlLock for a scope.
class VIREO_SCOPED_CAPABILITY ControlGuard {
 public:
  explicit ControlGuard(ControlLock& l) noexcept VIREO_ACQUIRE(l) : lock_(l) { lock_.lock(); }
  ControlGuard(const ControlGuard&) = delete;
  ControlGuard& operator=(const ControlGuard&) = delete;
  ~ControlGuard() VIREO_RELEASE() { lock_.unlock(); }

 private:
  ControlLock& lock_;
};

}  // namespace vireo
