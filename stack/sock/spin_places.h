// Which threads may spin. A thread that polls for ever needs a processor; if more threads spin than
// the process has processors, they only take turns at being scheduled. So there are places, as many
// as processors. A thread that spins for longer than a round trip takes a place. A thread that
// finds none is a follower: it sleeps on its eventfd, those who poll wake it when its socket is
// ready, and it takes the place that becomes free.
//
// Other programs need the processors, too: a spinner takes time from them, perhaps from the peer. A
// spinner that is preempted again and again sleeps on the device. It does so always if it may spin
// for a bounded time only. With VMA_RX_POLL=-1 it does so while there are followers, which need the
// processor once they are woken (it keeps its place), or once it has lost a tenth of the time: from
// then on a scheduler's turn, milliseconds, lies between a packet and the spinner, and a sleeper is
// woken at once.
// Owner: Stack. Thread: any. No system call, no atomic operation for waits that end soon.
#pragma once

#include <atomic>

#include "core/clock.h"
#include "core/lock.h"

namespace vireo {

struct Waiter;

/// Whether time that spinners lost amounts to something. Thread: any; relaxed, for a lost update is
/// no harm: they only say when to look again.
class LostTime {
 public:
  struct Bounds {
    Duration lost;          ///< within a second: no accident
    Duration lost_again;    ///< the same where it was so a moment ago
    Duration most_at_once;  ///< of one absence, which says no more however long
  };
  explicit constexpr LostTime(Bounds bounds) : bounds_(bounds) {}
  /// @return it is believed from now on
  bool note(Instant now, Duration lost) noexcept;
  bool is_believed(Instant now) const noexcept {
    return now.ns() < until_.load(std::memory_order_relaxed);
  }

 private:
  const Bounds bounds_;
  std::atomic<int64_t> counted_since_{0};
  std::atomic<int64_t> lost_ns_{0};
  std::atomic<int64_t> until_{0};
  std::atomic<int64_t> for_ns_{0};  ///< how long is believed what was seen last
};

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
  /// So many polls are worth it even where the processor is shared.
  static constexpr int64_t kMinPolls = 4;

  /// A thread that polled lost its processor for `lost` between two polls.
  void note_preempted(Instant now, Duration lost) noexcept;
  /// It was no accident: who may sleep shall.
  bool is_shared(Instant now) const noexcept { return shared_.is_believed(now); }
  /// So much is lost that who was told to spin for ever is served better by sleeping.
  bool is_crowded(Instant now) const noexcept { return crowded_.is_believed(now); }
  /// And threads of the process wait for the processor: who spins shall sleep, too.
  bool is_contended(Instant now) const noexcept {
    return is_shared(now) && waiting_.load(std::memory_order_relaxed) != 0;
  }
  /// The child of a fork: those threads are not here.
  void reset_after_fork() noexcept VIREO_NO_THREAD_ANALYSIS;

 private:
  const int places_;
  std::atomic<int> spinners_{0};
  std::atomic<int> waiting_{0};
  LostTime shared_{{Duration::ms(5), Duration::ms(1), Duration::ms(2)}};
  LostTime crowded_{{Duration::ms(100), Duration::ms(20), Duration::ms(10)}};
  std::atomic<bool> said_{false};
  Lock lock_;  ///< leaf
  Waiter* first_ VIREO_GUARDED_BY(lock_) = nullptr;
};

/// One wait's polls, as far as they tell of a lost processor: time between two that found nothing.
/// On the stack of the thread that waits.
class IdlePolls {
 public:
  explicit IdlePolls(SpinPlaces& places) : places_(places) {}
  void begin(Instant now) noexcept {
    if (now - idle_at_ >= kPreempted) [[unlikely]]
      places_.note_preempted(now, now - idle_at_);
  }
  /// @param busy it took something in, which may take long
  void end(bool busy, Instant now) noexcept { idle_at_ = busy ? Instant::never() : now; }
  /// It sleeps, or waits for another thread: that time is not lost.
  void pause() noexcept { idle_at_ = Instant::never(); }

 private:
  /// Some hundred nanoseconds lie between two polls, unless another thread ran.
  static constexpr Duration kPreempted = Duration::us(50);

  SpinPlaces& places_;
  Instant idle_at_ = Instant::never();
};

}  // namespace vireo
