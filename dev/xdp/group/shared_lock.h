// A lock word in memory that processes share. The process that holds it may be killed at any
// instruction: then another takes the lock over and repairs what it guards. A stopped holder keeps
// it: who waits gives up. Owner: the shared memory; zero bytes are a free lock. Thread: any of any
// member; all threads of a member use its slot.
// A word has the slot of its holder and a number that every hold increases. So a hold is never
// mistaken for another one, and of several takers of a dead one's hold one succeeds.
// Before the slot of a dead member is given again, somebody must take each lock once: is_alive()
// would speak for the new member.
#pragma once

#include <sys/syscall.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#include "core/clock.h"
#include "core/sleep.h"
#include "dev/xdp/uapi.h"

namespace vireo::xdp {

/// What one who waits for a SharedLock has seen; kept from one attempt to the next.
struct SharedLockWait {
  uint64_t hold = 0;  ///< the hold that is in the way
  Instant since;      ///< when it was seen first
  Instant asked;      ///< when its holder was last known to be alive
};

class SharedLock {
 public:
  /// kFromDead: its holder died. The caller repairs what it guards; if it dies, too, the next one
  /// is told the same.
  enum class Took : uint8_t { kNo, kYes, kFromDead };

  SharedLock() = default;
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

  bool try_lock(unsigned slot) noexcept {
    uint64_t seen = word_.load(std::memory_order_relaxed);
    // acquire pairs with the release in unlock().
    return is_free(seen) &&
           word_.compare_exchange_strong(seen, next_hold(seen, slot), std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  /// Does not block. `is_alive(slot)` may cost a system call: it is called once in a millisecond
  /// of one hold at most.
  template <class IsAlive>
  Took try_lock(unsigned slot, SharedLockWait& wait, Instant now, IsAlive&& is_alive) noexcept {
    if (try_lock(slot)) return Took::kYes;
    uint64_t seen = word_.load(std::memory_order_relaxed);
    if (is_free(seen)) return Took::kNo;
    if (seen != wait.hold) {
      wait = {seen, now, now};
      return Took::kNo;
    }
    if (now - wait.asked < kAskEvery) return Took::kNo;
    wait.asked = now;
    if (is_alive(holder_of(seen))) return Took::kNo;
    // acquire: the dead one's writes are seen, as far as it came. They are in memory already.
    return word_.compare_exchange_strong(seen, next_hold(seen, slot), std::memory_order_acquire,
                                         std::memory_order_relaxed)
               ? Took::kFromDead
               : Took::kNo;
  }
  /// Waits while the lock changes hands. @return kNo if one hold lasts longer than `patience` since
  /// it was seen first, in this call or an earlier one with the same `wait`: its holder is stopped.
  template <class IsAlive>
  Took lock(unsigned slot, SharedLockWait& wait, Duration patience, IsAlive&& is_alive) noexcept {
    for (unsigned tries = 0; tries < kSpins; ++tries) {
      if (try_lock(slot)) return Took::kYes;
      cpu_relax();
    }
    for (unsigned tries = 0;; ++tries) {
      const Instant now = Clock::now_from_kernel();
      if (const Took took = try_lock(slot, wait, now, is_alive); took != Took::kNo) return took;
      if (is_held_as(wait.hold) && now - wait.since > patience) return Took::kNo;
      if (tries < kYields) {
        sys(SYS_sched_yield);
      } else {
        const timespec nap{0, 50'000};
        sys(SYS_nanosleep, reinterpret_cast<long>(&nap));
      }
    }
  }
  void unlock() noexcept {
    // Only the holder writes a held word. release pairs with the acquire of who takes it next.
    word_.store(word_.load(std::memory_order_relaxed) & ~kSlotMask, std::memory_order_release);
  }
  bool is_held_by(unsigned slot) const noexcept {
    const uint64_t seen = word_.load(std::memory_order_relaxed);
    return !is_free(seen) && holder_of(seen) == slot;
  }

 private:
  static constexpr Duration kAskEvery = Duration::ms(1);
  static constexpr unsigned kSpins = 64, kYields = 16;
  static constexpr unsigned kSlotBits = 16;
  static constexpr uint64_t kSlotMask = (uint64_t{1} << kSlotBits) - 1;  ///< slot + 1; 0: free

  static bool is_free(uint64_t word) { return (word & kSlotMask) == 0; }
  static unsigned holder_of(uint64_t word) { return static_cast<unsigned>(word & kSlotMask) - 1; }
  static uint64_t next_hold(uint64_t word, unsigned slot) {
    return ((word >> kSlotBits) + 1) << kSlotBits | (slot + 1);
  }
  bool is_held_as(uint64_t hold) const noexcept {
    return word_.load(std::memory_order_relaxed) == hold;
  }

  std::atomic<uint64_t> word_{0};
};
static_assert(sizeof(SharedLock) == 8 && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace vireo::xdp
