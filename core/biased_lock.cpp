#include "core/biased_lock.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/sleep.h"

namespace vireo {
namespace {

/// About two microseconds: an engine is held for one burst at a time.
constexpr int kSpins = 64;
/// An owner that has not left by then was preempted.
constexpr int kSpinsForOwner = 1024;
constexpr Duration kNapForOwner = Duration::us(50);
constexpr Duration kRefused = Duration::ms(1);
/// log2 of how much longer the row must be each time that threads of the program turn out to share
/// the lock: the third time it can never be reached.
constexpr unsigned kShiftIfShared = 8;

std::atomic<bool> g_is_allowed{false};
std::atomic<uint32_t> g_last_name{2};  // lower values are not names

int64_t membarrier(int command) noexcept {
  const int saved = errno;
  const int64_t r = ::syscall(SYS_membarrier, command, 0, 0);
  errno = saved;
  return r;
}

/// Makes this thread's stores visible to later loads of the other threads, and theirs to this one.
/// The process is registered for it, as a bias exists; but a sandbox may have forbidden it since.
/// Then this waits far longer than a processor holds back a store, and no lock is biased any more.
void make_seen() noexcept {
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) [[likely]]
    return;
  g_is_allowed.store(false, std::memory_order_relaxed);
  const std::atomic<uint32_t> nothing{0};
  while (futex_wait(nothing, 0, kRefused) != Wake::kTimeout) {
  }
}

}  // namespace

bool BiasedLock::allow() noexcept {
  const bool ok = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  g_is_allowed.store(ok, std::memory_order_relaxed);
  return ok;
}

void BiasedLock::visit_only() noexcept { t_visits = true; }

void BiasedLock::reset_after_fork() noexcept {
  inside_.store(kFree, std::memory_order_relaxed);
  word_.store(kFree, std::memory_order_seq_cst);
  row_ = 0;
  need_ = kRow;
  owner_ = kNobody;  // no other thread exists that might still use it
}

/// A plain lock's way, for threads without the bias.
inline bool BiasedLock::take_free() noexcept {
  // Load first (a heuristic): repeated attempts leave the cache line with its holder.
  uint32_t w = word_.load(std::memory_order_relaxed);
  if (w != kFree) return false;
  // acquire pairs with the release in unlock_plain().
  if (!word_.compare_exchange_strong(w, kTaken, std::memory_order_acquire,
                                     std::memory_order_relaxed))
    return false;
  const auto me = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(&t_name) >> 4);
  if (last_ != me) {
    last_ = me;
    row_ = 0;
  } else if (++row_ >= need_) [[unlikely]] {
    give();
  }
  return true;
}

/// The lock was not free: perhaps it is biased and its owner outside.
bool BiasedLock::try_claim() noexcept {
  uint32_t w = word_.load(std::memory_order_relaxed);
  if (w <= kAwaited) return false;
  // Likewise: repeated attempts do not revoke the bias of an active owner.
  if (inside_.load(std::memory_order_relaxed) == w) return false;
  // acquire pairs with the release in give().
  if (!word_.compare_exchange_strong(w, kTaken, std::memory_order_acquire,
                                     std::memory_order_relaxed))
    return false;
  // The owner may have entered just before. try_lock() does not wait for it: the owner gets its
  // bias back, unless a thread sleeps on the word by now.
  uint32_t taken = kTaken;
  make_seen();
  if (is_inside(w) &&
      word_.compare_exchange_strong(taken, w, std::memory_order_release, std::memory_order_relaxed))
    return false;
  take_from(w);
  return true;
}

bool BiasedLock::try_plain() noexcept { return take_free() || try_claim(); }

void BiasedLock::lock_plain() noexcept {
  if (take_free()) [[likely]]
    return;
  for (int i = 0; i < kSpins; ++i) {
    if (try_lock()) return;
    cpu_relax();
  }
  for (;;) {
    // acquire as above. kAwaited, not kTaken: there may be other sleepers.
    const uint32_t was = word_.exchange(kAwaited, std::memory_order_acquire);
    if (was == kFree) return;
    if (was > kAwaited) {
      make_seen();
      return take_from(was);
    }
    futex_wait(word_, kAwaited);
  }
}

void BiasedLock::unlock_plain() noexcept {
  // release pairs with the acquire of the thread that takes it.
  if (word_.exchange(kFree, std::memory_order_release) == kAwaited) [[unlikely]]
    futex_wake(word_, 1);
}

/// Gives the bias to the caller, which holds the lock.
void BiasedLock::give() noexcept {
  row_ = 0;
  if (t_visits || need_ == kNobody || !g_is_allowed.load(std::memory_order_relaxed)) return;
  if (t_name == kNobody) {
    uint32_t last = g_last_name.load(std::memory_order_relaxed);
    do
      if (last == kNobody - 1) return;
    while (!g_last_name.compare_exchange_weak(last, last + 1, std::memory_order_relaxed));
    t_name = last + 1;
  }
  if (owner_ == kNobody) {
    owner_ = t_name;
    need_ = kRowAgain;
  }
  if (owner_ != t_name) return;
  inside_.store(t_name, std::memory_order_relaxed);
  uint32_t taken = kTaken;
  // release publishes inside_ to the claiming thread. Not if a thread waits: it would have to be
  // woken.
  if (!word_.compare_exchange_strong(taken, t_name, std::memory_order_release,
                                     std::memory_order_relaxed))
    inside_.store(kFree, std::memory_order_relaxed);
}

/// The word is claimed and the owner cannot enter; once the owner is outside, the caller holds a
/// plain lock.
void BiasedLock::take_from(uint32_t owner) noexcept {
  for (int i = 0; is_inside(owner); ++i) {
    if (i < kSpinsForOwner)
      cpu_relax();
    else
      futex_wait(inside_, owner, kNapForOwner);  // the owner wakes no one: nap briefly
  }
  row_ = 0;
  if (!t_visits && owner != t_name)
    need_ = need_ > kNobody >> kShiftIfShared ? kNobody : need_ << kShiftIfShared;
}

}  // namespace vireo
