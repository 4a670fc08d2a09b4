// When an engine next has work without a new frame, and who sleeps until then: threads of the
// program on the devices, the helper on its bell.
//
// The engine writes under its lock; sleepers and the helper read without it. Sequentially
// consistent accesses ensure that no wake-up is lost: whoever sets a deadline or counts a flow then
// reads the helper's sleep; the helper reads both after announcing its sleep. Owner: Hub. Thread:
// any where stated, else the holder of the engine's lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/clock.h"
#include "core/sleep.h"

namespace vireo {

class Wakeups {
 public:
  // ---- the deadline
  /// Earliest time at which a turn has work without a new frame. Any thread.
  Instant deadline() const noexcept {
    return Instant::from_ns(deadline_.load(std::memory_order_relaxed));
  }
  bool is_due(Instant now) const noexcept {
    return now.ns() >= deadline_.load(std::memory_order_relaxed);
  }
  /// Relaxed: a reader of the old value is woken by the event that set the new one, or looks again
  /// within its grace.
  void set_deadline(Instant d) noexcept {
    if (d.ns() == deadline_.load(std::memory_order_relaxed)) return;
    deadline_.store(d.ns(), std::memory_order_relaxed);
    wake_helper_before(d);
  }
  /// The deadline is now; the helper is not woken for it.
  void set_due(Instant now) noexcept { deadline_.store(now.ns(), std::memory_order_relaxed); }

  // ---- turns
  /// Time of the program's last poll. Any thread.
  Instant last_poll() const noexcept {
    return Instant::from_ns(last_poll_.load(std::memory_order_relaxed));
  }
  /// Relaxed: with a stale value the helper only looks once more.
  void note_poll(Instant now) noexcept { last_poll_.store(now.ns(), std::memory_order_relaxed); }

  // ---- flows
  /// Any thread.
  uint32_t flows() const noexcept { return flows_.load(std::memory_order_relaxed); }
  void count_flow() noexcept {
    if (flows_.fetch_add(1, std::memory_order_seq_cst) == 0) wake_helper_before(Instant());
  }
  void uncount_flow() noexcept { flows_.fetch_sub(1, std::memory_order_relaxed); }

  // ---- sleepers of the program
  /// Any thread.
  uint32_t sleepers() const noexcept { return sleepers_.load(std::memory_order_relaxed); }
  void count_sleeper() noexcept { sleepers_.fetch_add(1, std::memory_order_relaxed); }
  /// @return true: no thread sleeps any more. Any thread.
  bool uncount_sleeper() noexcept { return sleepers_.fetch_sub(1, std::memory_order_seq_cst) == 1; }

  // ---- the helper
  /// The helper's bell: set before its thread runs.
  void set_helper_bell(EventFd* bell) noexcept { helper_bell_ = bell; }
  /// The helper will sleep until `until` (Instant(): it is awake); an earlier deadline wakes it.
  /// After this call it must read flows(), sleepers() and deadline() again.
  void set_helper_sleep(Instant until) noexcept {
    helper_sleeps_until_.store(until.ns(), std::memory_order_seq_cst);
  }
  /// Any thread.
  void wake_helper_before(Instant d) noexcept {
    // Pairs with set_helper_sleep(): either the helper sees the new deadline or flow, or this
    // thread sees its sleep.
    if (d.ns() >= helper_sleeps_until_.load(std::memory_order_seq_cst)) [[likely]]
      return;
    if (helper_sleeps_until_.exchange(0, std::memory_order_seq_cst) != 0) helper_bell_->signal();
  }
  void ring_helper() noexcept {
    if (helper_bell_ != nullptr) helper_bell_->signal();
  }

 private:
  alignas(64) std::atomic<int64_t> deadline_{Instant::never().ns()};
  std::atomic<int64_t> last_poll_{0};
  std::atomic<uint32_t> flows_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<int64_t> helper_sleeps_until_{0};  ///< 0: awake
  EventFd* helper_bell_ = nullptr;
};

}  // namespace vireo
