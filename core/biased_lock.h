// A lock without atomic operations for its most frequent user.
//
// An engine's lock is taken twice in each round trip, nearly always by the same thread. Two atomic
// operations each time are a large part of the cost of a small write. A thread that takes the lock
// tens of thousands of times in a row gets the bias: from then on it marks with plain stores to a
// separate word that it is inside. Another thread revokes the bias: it claims the lock's word,
// makes every thread of the process pass a barrier (membarrier(2)), so that the owner either has
// seen the claim or is seen inside, and waits until the owner is outside. That takes microseconds,
// tens of them on virtual machines. So a lock that threads of the program share soon becomes a
// plain one permanently. The helper thread, which takes it once a second, does not count as
// sharing.
//
// A lock is biased to only one thread in its life. Otherwise a thread that was preempted before it
// marked itself inside, while another got the bias, would overwrite the new owner's mark.
//
// Owner: the object that has it as a member. Thread: any.
// Source: membarrier(2), MEMBARRIER_CMD_PRIVATE_EXPEDITED. The idea: Kawachiya, Koseki, Onodera,
// Lock Reservation (OOPSLA 2002), and Dice, Moir, Scherer, Quickly Reacquirable Locks (2003).
#pragma once

#include <atomic>
#include <cstdint>

#include "core/annotations.h"

namespace vireo {

/// A mutex as Lock (core/lock.h): not fair; reset_after_fork() in the child. Not recursive, but the
/// owner can enter twice: code that can interrupt its own thread (a signal handler) must not take
/// it.
class VIREO_CAPABILITY("lock") BiasedLock {
 public:
  /// Holds in a row by one thread that give it the bias: more than a thread has that only opens
  /// connections for others to serve.
  static constexpr uint32_t kRow = 1 << 16;
  /// Holds in a row to get it back after a visit.
  static constexpr uint32_t kRowAgain = 1 << 12;

  BiasedLock() = default;
  BiasedLock(const BiasedLock&) = delete;
  BiasedLock& operator=(const BiasedLock&) = delete;

  /// Allows locks of this process to be biased from now on; until then they are plain. Best called
  /// while the process has one thread: later the kernel takes milliseconds. @return false: the
  /// kernel does not support it.
  static bool allow() noexcept;
  /// The calling thread is a visitor: it gets no bias, and its holds do not count as sharing.
  static void visit_only() noexcept;

  bool try_lock() noexcept VIREO_TRY_ACQUIRE(true) { return enter() || try_plain(); }
  void lock() noexcept VIREO_ACQUIRE() VIREO_NO_THREAD_ANALYSIS {
    if (!enter()) [[unlikely]]
      lock_plain();
  }
  void unlock() noexcept VIREO_RELEASE() VIREO_NO_THREAD_ANALYSIS {
    if (!leave()) [[unlikely]]
      unlock_plain();
  }
  /// lock() and unlock() for the biased thread. @return false: use the full function. For inline
  /// fast paths.
  bool enter() noexcept VIREO_TRY_ACQUIRE(true) {
    const uint32_t me = t_name;
    if (!is(word_, me)) [[unlikely]]
      return false;
    inside_.store(me, std::memory_order_relaxed);
    // Orders the compiler only; the thread that claims the word orders the processors.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (is(word_, me)) [[likely]]  // pairs with the release in unlock_plain() and give()
      return true;
    inside_.store(kFree, std::memory_order_release);
    return false;
  }
  bool leave() noexcept VIREO_NO_THREAD_ANALYSIS {
    if (!is(inside_, t_name)) [[unlikely]]
      return false;
    inside_.store(kFree, std::memory_order_release);  // pairs with the acquire in is_inside()
    return true;
  }
  void reset_after_fork() noexcept;
  bool is_biased() const noexcept { return word_.load(std::memory_order_relaxed) > kAwaited; }

 private:
  static constexpr uint32_t kFree = 0, kTaken = 1, kAwaited = 2;  ///< last: with possible waiters
  static constexpr uint32_t kNobody = ~uint32_t{0};  ///< name of a thread that never had a bias

  /// Compares `word` with `name`, with acquire. In one instruction: compilers load an atomic into a
  /// register first.
  static bool is(const std::atomic<uint32_t>& word, uint32_t name) noexcept {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    bool same;
    asm volatile("cmpl %2, %1" : "=@cce"(same) : "m"(word), "r"(name) : "memory");
    return same;
#else
    return word.load(std::memory_order_acquire) == name;
#endif
  }
  bool try_plain() noexcept;
  void lock_plain() noexcept VIREO_ACQUIRE() VIREO_NO_THREAD_ANALYSIS;
  bool take_free() noexcept;
  bool try_claim() noexcept;
  void unlock_plain() noexcept;
  void give() noexcept;
  bool is_inside(uint32_t owner) const noexcept {
    // acquire pairs with the release in unlock().
    return inside_.load(std::memory_order_acquire) == owner && owner != t_name;
  }
  void take_from(uint32_t owner) noexcept;

  /// Never reused, so that an ended thread is not taken for another.
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit uint32_t t_name = kNobody;
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit bool t_visits = false;

  std::atomic<uint32_t> word_{kFree};    ///< one of the above, or the biased thread's name
  std::atomic<uint32_t> inside_{kFree};  ///< the owner while inside; only it writes this
  // ---- guarded by the lock itself
  uint32_t last_ = 0;         ///< last holder, by a nearly unique number
  uint32_t row_ = 0;          ///< its holds in a row
  uint32_t need_ = kRow;      ///< row that gives the bias
  uint32_t owner_ = kNobody;  ///< the only thread that may be biased
};

}  // namespace vireo
