// The wait loop of poll, select and epoll_wait: polls the engines concerned, checks the kernel's
// side now and then, spins as VMA_SELECT_POLL says, then sleeps until a device, the kernel, another
// thread's poll or a signal wakes it. The `Call` defines what is waited for.
// Owner: the calling thread's stack. Thread: each its own.
#pragma once

#include <poll.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <ctime>

#include "core/clock.h"
#include "core/result.h"
#include "stack/sock/calls.h"
#include "stack/sock/cancel.h"
#include "stack/sock/inspection.h"
#include "stack/sock/stack.h"

namespace vireo::sock {

/// The engines of a set of descriptors. A process has as many as it has rings; a test has some per
/// host.
struct EngineSet {
  static constexpr unsigned kMax = Rings::kMax;
  Engine* at[kMax];  ///< the first `n`
  unsigned n = 0;

  void add(Engine* e) noexcept {
    if (e == nullptr || n == kMax || std::find(at, at + n, e) != at + n) return;
    at[n++] = e;
  }
  Engine* const* begin() const noexcept { return at; }
  Engine* const* end() const noexcept { return at + n; }
};

/// Holds the lock of one engine at a time, while readiness is asked of many Files.
class EngineHold {
 public:
  EngineHold() = default;
  EngineHold(const EngineHold&) = delete;
  EngineHold& operator=(const EngineHold&) = delete;
  ~EngineHold() { take(nullptr); }
  void take(Engine* e) noexcept VIREO_NO_THREAD_ANALYSIS {
    if (e == held_) return;
    if (held_ != nullptr) held_->unlock();
    held_ = e;
    if (e != nullptr) e->acquire();
  }

 private:
  Engine* held_ = nullptr;
};

/// Tells the doorbell policies how many events a wait returns; 0: it begins.
inline void tell(const EngineSet& engines, int events) noexcept {
  for (Engine* e : engines) e->doorbells().tell(static_cast<unsigned>(events));
}

/// Polls once each engine that no other thread polls. @return false: none found work.
inline bool poll_all(const EngineSet& engines, Instant now) noexcept {
  bool busy = false;
  for (Engine* e : engines) busy |= poll_engine_to_return(*e, now);
  return busy;
}

/// readiness() of a File under its engine's lock, taken by `hold`; 0 if the File is closed.
ReadyBits ready_under(EngineHold& hold, const Handle& h, ReadyBits asked) noexcept;

/// The pollfds of one sleep: the kernel's side of the call, with room behind it for Vireo's own.
struct SleepList {
  static constexpr nfds_t kExtra =
      1 + 4 * EngineSet::kMax;  ///< the thread's eventfd, the devices' descriptors
  pollfd* at = nullptr;
  nfds_t n = 0;  ///< entries of the kernel's side; `at` has room for n + kExtra
};

/// The deadline for the caller's timeout. Errors: EINVAL.
Result<Instant> deadline_of(const timespec* timeout, Instant now) noexcept;

/// The caller's signal mask, from apply() to the end of the call.
class MaskScope {
 public:
  explicit MaskScope(const sigset_t* mask) noexcept : mask_(mask) {}
  MaskScope(const MaskScope&) = delete;
  MaskScope& operator=(const MaskScope&) = delete;
  ~MaskScope() {
    if (applied_) ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  void apply() noexcept {
    if (mask_ == nullptr || applied_) return;
    applied_ = ::pthread_sigmask(SIG_SETMASK, mask_, &before_) == 0;
  }

 private:
  const sigset_t* mask_;
  sigset_t before_;
  bool applied_ = false;
};

/// A waiter for the sleeps of one call, taken at the first sleep.
class WaiterLoan {
 public:
  explicit WaiterLoan(Stack& s) noexcept : stack_(s) {}
  WaiterLoan(const WaiterLoan&) = delete;
  WaiterLoan& operator=(const WaiterLoan&) = delete;
  ~WaiterLoan() {
    if (waiter_ != nullptr) stack_.waiters().put(*waiter_);
  }
  /// Null: no descriptor is free.
  EventFd* event() noexcept {
    if (waiter_ == nullptr) {
      if (auto w = stack_.waiters().take()) waiter_ = *w;
    }
    return waiter_ == nullptr ? nullptr : &waiter_->event;
  }

 private:
  Stack& stack_;
  Waiter* waiter_ = nullptr;
};

/// The common part of a sleep. The call has filled `list`, and every readiness change now signals
/// `event`. @return false: there was work, the thread did not sleep.
bool sleep_on(const EngineSet& engines, SleepList& list, EventFd& event, Instant deadline,
              const SignalMark& signals) noexcept;

/// Checking the kernel's side costs as much as several polls of Vireo's, so this is the shortest
/// interval between checks, whatever VMA_SELECT_POLL_OS_RATIO and VMA_SELECT_SKIP_OS say. The
/// latency profiles set 1, and what arrives by the kernel has taken longer than this interval
/// anyway.
inline constexpr Duration kBetweenLooks = Duration::us(10);

/// Polls between two looks where the setting is 0, never.
inline constexpr uint32_t kWatchedRatio = 100;

/// How much one look for ready descriptors covers.
enum class Look : uint8_t {
  kOurs,    ///< Vireo's side; if it has events, the kernel's as VMA_SELECT_SKIP_OS says
  kTimely,  ///< Vireo's side; if it has events, the kernel's if kBetweenLooks have passed
  kBoth,
};

/// Waits until `call` has events, the deadline passes (0) or a signal arrives (EINTR). A Call has:
///   EngineSet engines                    refreshed by harvest()
///   bool poll(now, size_t& taken)        polls each engine that no other thread polls; false: none
///                                        found work. May take events at once: `taken`
///   bool pending()                       Vireo's side may have events; no lock
///   Result<int> harvest(look, now)       takes what is ready
///   int at_end()                         what to return at the deadline
///   bool listens()                       for connections: some listener is Vireo's
///   void begin_wait()                    before the first spin
///   SleepList& sleep_list()              the kernel's side
///   bool arm(EventFd&), void disarm()    around a sleep; false: something is pending
///   bool woken_by_kernel()               after a sleep: the list has an event of the kernel's
template <class Call>
Result<int> wait_multiplexed(Stack& stack, Call& call, const timespec* timeout,
                             const sigset_t* mask) noexcept {
  const SignalMark signals;
  const Settings& s = stack.settings();
  Instant now = Clock::now();
  const auto deadline = deadline_of(timeout, now);
  if (!deadline) return std::unexpected(deadline.error());
  const bool never_sleeps = s.select_poll < Duration();
  const Instant spin_until = never_sleeps ? Instant::never() : now + s.select_poll;
  auto ratio = static_cast<uint32_t>(s.select_poll_os_ratio);
  Instant next_look = now + kBetweenLooks;
  tell(call.engines, 0);
  MaskScope masked(mask);
  WaiterLoan waiter(stack);
  bool has_slept = false;
  bool kernel_woke = false;
  SpinPlaces& places = stack.spin_places();
  IdlePolls idle(places);
  Worker& worker = stack.family().worker;
  struct Return {  // also by a signal
    Worker* const worker;
    const Instant& now;
    ~Return() {
      if (worker != nullptr) [[unlikely]]
        worker->returns(now);
    }
  };
  const Return end{worker.has_joined() && call.listens() ? &worker : nullptr, now};
  const auto report = [&](int events) {
    // Who may lose its processor amid its answers must not leave some unsent meanwhile; and who has
    // time to sleep need not save doorbells.
    tell(call.engines, has_slept || places.is_shared(now) ? 1 : events);
    return events;
  };
  for (uint32_t polls = 1;; ++polls, now = Clock::now()) {
    idle.begin(now);
    if (t_interrupts.any()) [[unlikely]] {
      if (t_interrupts.is_cancelled) return fail(EINTR, "cancelled");  // ready events stay pending
      inspection::show_all();
    }
    size_t taken = 0;
    idle.end(call.poll(now, taken), now);
    if (taken != 0) [[unlikely]]
      return report(static_cast<int>(taken));
    const bool expired = now >= *deadline;
    const bool shared = polls > SpinPlaces::kMinPolls &&
                        (never_sleeps ? places.is_crowded(now) : places.is_shared(now));
    const bool may_spin = call.engines.n != 0 && now < spin_until && !shared;
    Look look = expired ? Look::kTimely : Look::kOurs;
    if (call.engines.n == 0 || kernel_woke) {
      look = Look::kBoth;
    } else if (ratio != 0 && polls % ratio == 0 && now >= next_look) {
      look = Look::kBoth;
      next_look = now + kBetweenLooks;
    }
    if (look == Look::kBoth || call.pending()) {
      const auto n = call.harvest(look, now);
      if (!n) return n;
      if (*n != 0) return report(*n);
    }
    kernel_woke = false;
    if (expired) {
      // A return without events always follows a check of the kernel: it may be the only call.
      if (look != Look::kBoth) {
        const auto n = call.harvest(Look::kBoth, now);
        if (!n) return n;
        if (*n != 0) return report(*n);
      }
      return call.at_end();
    }
    if (polls == 1) {
      masked.apply();
      call.begin_wait();
      // The kernel may deliver to carried sockets, which must not depend on a setting.
      if (ratio == 0 && stack.host_sockets().ports.is_active()) [[unlikely]]
        ratio = kWatchedRatio;
      if (end.worker != nullptr) [[unlikely]]
        worker.waits(now);
    }
    if (signals.pending()) return fail(EINTR, "signal");
    EventFd* event = may_spin ? nullptr : waiter.event();
    if (event == nullptr) {
      if (polls % kPollsPerCancelLook == 0) [[unlikely]]
        look_for_cancel();
      if (!may_spin)
        nap_without_event();
      else if (s.rx_poll_yield)
        ::sched_yield();
      else
        cpu_relax();
      continue;
    }
    idle.pause();
    SleepList& list = call.sleep_list();
    if (!call.arm(*event)) continue;
    const bool slept = sleep_on(call.engines, list, *event, *deadline, signals);
    call.disarm();
    has_slept |= slept;
    kernel_woke = slept && call.woken_by_kernel();
  }
}

}  // namespace vireo::sock
