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
/// An owner that has not left by then has lost its processor.
constexpr int kSpinsForOwner = 1024;
constexpr Duration kNapForOwner = Duration::us(50);
constexpr Duration kRefused = Duration::ms(1);
/// How much longer the row must be each time that threads of the program turn out to share the
/// lock: the third time it is never.
constexpr unsigned kShiftIfShared = 8;

std::atomic<bool> g_is_allowed{false};
std::atomic<uint32_t> g_last_name{2};  // the words below are no names

int64_t membarrier(int command) noexcept {
  const int saved = errno;
  const int64_t r = ::syscall(SYS_membarrier, command, 0, 0);
  errno = saved;
  return r;
}

/// What this thread has written, others see in what they read from now on, and it what they wrote.
/// Registered for, as a bias proves; but a sandbox may have closed in since. Then: far longer than
/// a processor keeps a store to itself, and never again.
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
  owner_ = kNobody;  // no other thread is here that might yet come in by it
}

/// The way of a plain lock, for whoever has no bias.
inline bool BiasedLock::take_free() noexcept {
  // A look first (a guess): whoever tries again and again leaves the line with its holder.
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

/// It was not free: perhaps its owner is elsewhere.
bool BiasedLock::try_claim() noexcept {
  uint32_t w = word_.load(std::memory_order_relaxed);
  if (w <= kAwaited) return false;
  // Likewise: who tries again and again does not take it from an owner at work.
  if (inside_.load(std::memory_order_relaxed) == w) return false;
  // acquire pairs with the release in give().
  if (!word_.compare_exchange_strong(w, kTaken, std::memory_order_acquire,
                                     std::memory_order_relaxed))
    return false;
  // It came in just before? Who tries does not wait for it: it gets its bias back, unless someone
  // sleeps on the word by now.
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
    // acquire as above. kAwaited, not kTaken: others may sleep behind us.
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
  // release pairs with the acquire of who takes it.
  if (word_.exchange(kFree, std::memory_order_release) == kAwaited) [[unlikely]]
    futex_wake(word_, 1);
}

/// To the caller, which holds it.
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
  // release publishes inside_ to who claims it. Not if someone waits: it would have to be woken.
  if (!word_.compare_exchange_strong(taken, t_name, std::memory_order_release,
                                     std::memory_order_relaxed))
    inside_.store(kFree, std::memory_order_relaxed);
}

/// The word is claimed, and its owner comes in no more; once it is outside, this is a plain lock
/// that the caller holds.
void BiasedLock::take_from(uint32_t owner) noexcept {
  for (int i = 0; is_inside(owner); ++i) {
    if (i < kSpinsForOwner)
      cpu_relax();
    else
      futex_wait(inside_, owner, kNapForOwner);  // it wakes nobody: for so long at most
  }
  row_ = 0;
  if (!t_visits && owner != t_name)
    need_ = need_ > kNobody >> kShiftIfShared ? kNobody : need_ << kShiftIfShared;
}

}  // namespace vireo
