// Places, followers, and how a spinner detects preemption.
#include "stack/sock/spin_places.h"

#include <sched.h>

#include <algorithm>

#include "core/log.h"
#include "stack/sock/stack.h"

namespace vireo {
namespace {

constexpr Duration kWithin = Duration::s(1);
constexpr Duration kMoment = Duration::s(2);
/// Pause in long spinning before the next trial; doubled each time nothing has changed.
constexpr Duration kFirstPause = Duration::s(2);
constexpr Duration kMaxPause = Duration::s(8);

int processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace

SpinPlaces::SpinPlaces() : places_(processors()) {}

bool SpinPlaces::try_enter() noexcept {
  if (spinners_.fetch_add(1, std::memory_order_seq_cst) < places_) return true;
  spinners_.fetch_sub(1, std::memory_order_seq_cst);
  return false;
}

void SpinPlaces::leave() noexcept {
  // seq_cst pairs with follow(): either this sees the follower, or it sees that the place is free.
  spinners_.fetch_sub(1, std::memory_order_seq_cst);
  if (waiting_.load(std::memory_order_seq_cst) == 0) return;
  const LockGuard guard(lock_);
  if (first_ != nullptr) first_->event.signal();
}

bool SpinPlaces::follow(Waiter& w) noexcept {
  {
    const LockGuard guard(lock_);
    w.next = first_;
    first_ = &w;
  }
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  if (spinners_.load(std::memory_order_seq_cst) >= places_) return true;
  forget_follower(w);
  return false;
}

void SpinPlaces::forget_follower(Waiter& w) noexcept {
  waiting_.fetch_sub(1, std::memory_order_seq_cst);
  const LockGuard guard(lock_);
  for (Waiter** at = &first_; *at != nullptr; at = &(*at)->next)
    if (*at == &w) {
      *at = w.next;
      return;
    }
}

bool LostTime::note(Instant now, Duration lost) noexcept {
  if (is_believed(now)) return false;
  if (now - Instant::from_ns(counted_since_.load(std::memory_order_relaxed)) > kWithin) {
    counted_since_.store(now.ns(), std::memory_order_relaxed);
    lost_ns_.store(0, std::memory_order_relaxed);
  }
  lost = std::min(lost, bounds_.most_at_once);
  const auto in_all =
      Duration::ns(lost_ns_.fetch_add(lost.ns(), std::memory_order_relaxed) + lost.ns());
  const auto until = Instant::from_ns(until_.load(std::memory_order_relaxed));
  const bool again = now - until < kMoment;
  if (in_all < (again ? bounds_.lost_again : bounds_.lost)) return false;
  const auto last = Duration::ns(for_ns_.load(std::memory_order_relaxed));
  const Duration next = again ? std::min(last + last, kMaxPause) : kFirstPause;
  for_ns_.store(next.ns(), std::memory_order_relaxed);
  until_.store((now + next).ns(), std::memory_order_relaxed);
  return true;
}

void SpinPlaces::note_preempted(Instant now, Duration lost) noexcept {
  shared_.note(now, lost);
  if (crowded_.note(now, lost) && !said_.exchange(true, std::memory_order_relaxed))
    log<LogLevel::kInfo>(
        "others use the processor: waits that were to poll for ever sleep until it is free again; "
        "give the program a processor of its own, or the others less");
}

void SpinPlaces::reset_after_fork() noexcept {
  spinners_.store(0, std::memory_order_relaxed);
  waiting_.store(0, std::memory_order_relaxed);
  lock_.reset_after_fork();
  first_ = nullptr;
}

}  // namespace vireo
