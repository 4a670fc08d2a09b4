#include "core/lock.h"

#include "core/sleep.h"

namespace vireo {
namespace {
/// About two microseconds: an engine is held for one burst at a time.
constexpr int kSpins = 64;
}  // namespace

void EngineLock::lock_slow() noexcept {
  for (int i = 0; i < kSpins; ++i) {
    cpu_relax();
    if (try_lock()) return;
  }
  uint64_t w = word_.load(std::memory_order_relaxed);  // a guess; a CAS below decides
  for (;;) {
    if ((w & kLocked) == 0) {
      // SLEEPER stays set: others may sleep, and the wake-up that we took was theirs too.
      // acquire pairs with the release in unlock().
      if (word_.compare_exchange_weak(w, w | kLocked | kSleeper, std::memory_order_acquire,
                                      std::memory_order_relaxed))
        return;
      continue;
    }
    // relaxed: SLEEPER carries no data; futex_wait compares the word again under the kernel's lock.
    if ((w & kSleeper) == 0 &&
        !word_.compare_exchange_weak(w, w | kSleeper, std::memory_order_relaxed))
      continue;
    futex_wait_low(word_, static_cast<uint32_t>(w | kSleeper));
    w = word_.load(std::memory_order_relaxed);
  }
}

void EngineLock::wake_one() noexcept { futex_wake_low(word_, 1); }

void ControlLock::lock_slow() noexcept {
  for (int i = 0; i < kSpins; ++i) {
    cpu_relax();
    if (try_lock()) return;
  }
  // acquire pairs with the release in unlock(). 2, not 1: others may sleep behind us.
  while (word_.exchange(2, std::memory_order_acquire) != 0) futex_wait(word_, 2);
}

void ControlLock::wake_one() noexcept { futex_wake(word_, 1); }

}  // namespace vireo
