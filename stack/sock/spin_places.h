// Which threads may spin. A thread that polls for ever needs a processor; if more threads spin than
// the process has processors, they only take turns. So there are as many places as processors. A
// thread that spins for longer than a round trip takes a place. A thread that finds none is a
// follower: it sleeps on its eventfd, polling threads wake it when its socket is ready, and it
// takes the next place that becomes free.
//
// Other programs, perhaps the peer, need the processors, too. A spinner that is preempted
// repeatedly sleeps on the device. It always does so if it may spin for a bounded time only. With
// VMA_RX_POLL=-1 it does so while there are followers, which need the processor once they are woken
// (it keeps its place), or once it has lost a tenth of the time: from then on a scheduler's time
// slice, milliseconds, lies between a packet and the spinner, whereas a sleeper is woken at once.
// Owner: Stack. Thread: any. No system call and no atomic operation for waits that end soon.
#pragma once

#include <atomic>

#include "core/clock.h"
#include "core/lock.h"

namespace vireo {

struct Waiter;

/// Whether the time that spinners lost is significant. Thread: any; relaxed, because a lost update
/// is harmless: the values only decide when to check again.
class LostTime {
 public:
  struct Bounds {
    Duration lost;          ///< limit within a second
    Duration lost_again;    ///< limit if it was exceeded shortly before
    Duration most_at_once;  ///< cap on one absence, however long it was
  };
  explicit constexpr LostTime(Bounds bounds) : bounds_(bounds) {}
  /// @return true: significant from now on
  bool note(Instant now, Duration lost) noexcept;
  bool is_believed(Instant now) const noexcept {
    return now.ns() < until_.load(std::memory_order_relaxed);
  }

 private:
  const Bounds bounds_;
  std::atomic<int64_t> counted_since_{0};
  std::atomic<int64_t> lost_ns_{0};
  std::atomic<int64_t> until_{0};
  std::atomic<int64_t> for_ns_{0};  ///< how long the latest finding stays valid
};

class SpinPlaces {
 public:
  SpinPlaces();  ///< as many places as processors that the process may use now

  bool try_enter() noexcept;
  /// Gives the place back and wakes one follower.
  void leave() noexcept;
  /// Queues a follower. @return false: a place is free, do not sleep. Else forget_follower() after
  /// the sleep.
  bool follow(Waiter& w) noexcept;
  void forget_follower(Waiter& w) noexcept;
  /// Polls that are always done, even if the processor is shared.
  static constexpr int64_t kMinPolls = 4;

  /// A polling thread lost its processor for `lost` between two polls.
  void note_preempted(Instant now, Duration lost) noexcept;
  /// Preemption is no accident: a thread that may sleep shall.
  bool is_shared(Instant now) const noexcept { return shared_.is_believed(now); }
  /// So much time is lost that even a thread told to spin for ever does better to sleep.
  bool is_crowded(Instant now) const noexcept { return crowded_.is_believed(now); }
  /// In addition, threads of this process wait for the processor: spinners shall sleep, too.
  bool is_contended(Instant now) const noexcept {
    return is_shared(now) && waiting_.load(std::memory_order_relaxed) != 0;
  }
  /// In the child of a fork, which has none of those threads.
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

/// The polls of one wait: detects a lost processor by the time between two polls that found
/// nothing. On the stack of the waiting thread.
class IdlePolls {
 public:
  explicit IdlePolls(SpinPlaces& places) : places_(places) {}
  void begin(Instant now) noexcept {
    if (now - idle_at_ >= kPreempted) [[unlikely]]
      places_.note_preempted(now, now - idle_at_);
  }
  /// @param busy it processed input, which may take long
  void end(bool busy, Instant now) noexcept { idle_at_ = busy ? Instant::never() : now; }
  /// The thread sleeps or waits for another thread: that time is not lost.
  void pause() noexcept { idle_at_ = Instant::never(); }

 private:
  /// Some hundred nanoseconds lie between two polls, unless another thread ran.
  static constexpr Duration kPreempted = Duration::us(50);

  SpinPlaces& places_;
  Instant idle_at_ = Instant::never();
};

}  // namespace vireo
