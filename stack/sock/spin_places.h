// Who may spin. A thread that polls for ever needs a processor of its own; beyond as many as the
// process has, spinning threads only take turns at being scheduled. So there are places: whoever
// spins for longer than a round trip takes one, and who finds none follows: it sleeps on its
// eventfd, is woken by those who poll when its socket is ready, and takes over when a place becomes
// free. And where others run on the processors too, a spinner only burns the time that the
// followers need to run once they are woken: preempted again and again while there are followers,
// it keeps its place but sleeps on the device. Owner: Stack. Thread: any. No system call, no atomic
// operation for waits that end soon.
#pragma once

#include <atomic>

#include "core/clock.h"
#include "core/lock.h"

namespace vireo {

struct Waiter;

class SpinPlaces {
 public:
  SpinPlaces();  ///< as many as the process may use processors now

  bool try_enter() noexcept;
  /// Gives the place back and wakes one follower.
  void leave() noexcept;
  /// Queues a follower. @return false: a place is free, do not sleep. Else forget_follower() after
  /// the sleep.
  bool follow(Waiter& w) noexcept;
  void forget_follower(Waiter& w) noexcept;
  /// A spinner lost its processor between two polls.
  void note_preempted(Instant now) noexcept;
  /// Who spins would better sleep: its processor is shared, and with threads that wait for it.
  bool is_contended(Instant now) const noexcept {
    return now.ns() < contended_until_.load(std::memory_order_relaxed) &&
           waiting_.load(std::memory_order_relaxed) != 0;
  }
  /// The child of a fork: those threads are not here.
  void reset_after_fork() noexcept VIREO_NO_THREAD_ANALYSIS;

 private:
  const int places_;
  std::atomic<int> spinners_{0};
  std::atomic<int> waiting_{0};
  // Relaxed, and a lost update is no harm: they only say when to look again.
  std::atomic<int64_t> counted_since_{0};
  std::atomic<int> preemptions_{0};
  std::atomic<int64_t> contended_until_{0};
  ControlLock lock_;  ///< leaf
  Waiter* first_ VIREO_GUARDED_BY(lock_) = nullptr;
};

}  // namespace vireo
