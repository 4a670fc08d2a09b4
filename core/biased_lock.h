// A lock that costs its most frequent user no atomic operation.
//
// An engine's lock is taken twice in each round trip, nearly always by the same thread. Two atomic
// operations each time are a good part of what a small write costs. A thread that takes the lock
// tens of thousands of times in a row gets the bias: from then on it marks by plain stores to a
// word of its own that it is inside. Another thread that comes revokes the bias: it claims the
// lock's word, makes every thread of the process pass a barrier (membarrier(2)), so that the owner
// either has seen the claim or has been seen inside, and waits until the owner is outside. That
// costs microseconds, tens of them on virtual machines. So a lock that threads of the program share
// soon becomes a plain one for good. The helper thread, which comes once a second, does not count
// as sharing.
//
// A lock is biased to one thread in its life. Otherwise a thread that was about to mark that it is
// inside, and was preempted while another got the bias, would write its mark in the name of the new
// owner.
//
// Owner: the object that has it as a member. Thread: any.
// Source: membarrier(2), MEMBARRIER_CMD_PRIVATE_EXPEDITED. The idea: Kawachiya, Koseki, Onodera,
// Lock Reservation (OOPSLA 2002), and Dice, Moir, Scherer, Quickly Reacquirable Locks (2003).
#pragma once

#include <atomic>
#include <cstdint>

#include "core/annotations.h"

namespace vireo {

/// A mutex as Lock (core/lock.h): not fair; reset_after_fork() in the child. Not recursive, but its
/// owner is let in twice: whoever may be interrupted by itself must not hold it.
class VIREO_CAPABILITY("lock") BiasedLock {
 public:
  /// So many holds in a row by one thread, and it is the thread's: more than who only makes the
  /// connections that others serve has of it.
  static constexpr uint32_t kRow = 1 << 16;
  /// To have it back after a visit.
  static constexpr uint32_t kRowAgain = 1 << 12;

  BiasedLock() = default;
  BiasedLock(const BiasedLock&) = delete;
  BiasedLock& operator=(const BiasedLock&) = delete;

  /// Lets locks of this process be biased from now on; until then they are plain. Best while it has
  /// one thread: later the kernel takes milliseconds for it. @return false: the kernel cannot.
  static bool allow() noexcept;
  /// The calling thread only looks in: it gets no bias, and to have been there is not held against
  /// who has it.
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
  /// lock() and unlock() of the thread that it is biased to. @return false: go the full way. For
  /// who counts instructions, and has the full way elsewhere.
  bool enter() noexcept VIREO_TRY_ACQUIRE(true) {
    const uint32_t me = t_name;
    if (!is(word_, me)) [[unlikely]]
      return false;
    inside_.store(me, std::memory_order_relaxed);
    // The compiler keeps the order; the processor need not: who claims the word sees to that.
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
  static constexpr uint32_t kFree = 0, kTaken = 1, kAwaited = 2;  ///< the last: and perhaps awaited
  static constexpr uint32_t kNobody = ~uint32_t{0};  ///< of a thread that never had a bias

  /// Does it hold the name? Acquires. By one instruction: compilers load what is atomic into a
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

  /// Never used twice: a thread that has ended cannot be taken for another.
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit uint32_t t_name = kNobody;
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit bool t_visits = false;

  std::atomic<uint32_t> word_{kFree};    ///< one of those above, else whose it is
  std::atomic<uint32_t> inside_{kFree};  ///< the owner while it is; written by it alone, for good
  // ---- guarded by the lock itself
  uint32_t last_ = 0;         ///< who held it last, as good as certain
  uint32_t row_ = 0;          ///< how often in a row
  uint32_t need_ = kRow;      ///< to be given away
  uint32_t owner_ = kNobody;  ///< who had it: no other gets it
};

}  // namespace vireo
