#include "core/lock.h"

#include "core/sleep.h"

namespace vireo {
namespace {
/// About two microseconds: an engine is held for one burst at a time.
constexpr int kSpins = 64;
}  // namespace

void Lock::lock_slow() noexcept {
  for (int i = 0; i < kSpins; ++i) {
    cpu_relax();
    if (try_lock()) return;
  }
  // acquire pairs with the release in unlock(). 2, not 1: there may be other sleepers.
  while (word_.exchange(2, std::memory_order_acquire) != 0) futex_wait(word_, 2);
}

void Lock::wake_one() noexcept { futex_wake(word_, 1); }

}  // namespace vireo
