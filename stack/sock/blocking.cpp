// wait_until(): polls, then sleeps, until a call's condition holds.
#include "stack/sock/blocking.h"

#include <sched.h>

#include <algorithm>
#include <ctime>

#include "core/sleep.h"
#include "stack/sock/cancel.h"
#include "stack/sock/inspection.h"

namespace vireo {
namespace {

constexpr size_t kMaxWaitFds = 64;
/// Polls that any thread may spin without a place, a few round trips' worth.
constexpr int64_t kFreePolls = 256;
/// A poll takes microseconds, and other work under an engine's lock little more: a holder that has
/// not polled for this long has lost its processor, perhaps to this thread.
constexpr Duration kHolderAbsent = Duration::us(200);
/// A follower checks by itself this often, because the spinning thread may leave the library for
/// good. Until then the helper polls.
constexpr Duration kFollowerPatience = Duration::ms(100);

/// poll(2) of one descriptor, without waiting.
bool kernel_ready(int fd, short events) noexcept {
  pollfd p{fd, events, 0};
  return kernel::poll_now(&p, 1) > 0;
}

/// Time from `now` to `until`, not negative.
timespec sleep_time(Instant until, Instant now) noexcept {
  const int64_t ns = std::max<int64_t>(0, (until - now).ns());
  return {ns / 1'000'000'000, ns % 1'000'000'000};
}

/// One sleep. The engine's lock is held on entry and on return. @return false: there was work, the
/// thread did not sleep.
bool sleep_once(Engine& e, const WaitFor& what, const SignalMark& signals, Waiter& waiter,
                bool (*ready)(void*), void* argument) noexcept VIREO_NO_THREAD_ANALYSIS {
  File& f = *what.handle.file;
  f.ready.add(waiter.watcher);
  pollfd fds[kMaxWaitFds + 2];
  nfds_t n = 0;
  fds[n++] = {waiter.event.fd(), POLLIN, 0};
  if (what.kernel_events != 0) fds[n++] = {what.handle.fd, what.kernel_events, 0};
  const nfds_t first_device = n;
  for (const int fd : e.ports().wait_fds())
    if (n < std::size(fds)) fds[n++] = {fd, POLLIN, 0};
  // With the watcher in place and the queues armed no event is lost: earlier ones are seen here,
  // later ones wake this thread.
  Instant nap_until = Instant::never();
  if (!e.begin_sleep(&nap_until)) {
    f.ready.remove(waiter.watcher);
    return false;
  }
  if (ready(argument)) {
    e.end_sleep();
    f.ready.remove(waiter.watcher);
    return false;
  }
  e.unlock();
  if (!nap_until.is_never()) [[unlikely]]
    n = first_device;

  t_signals.sleeping_on = &waiter.event;  // from here a handler wakes this thread
  if (!signals.pending()) {
    const Instant until = std::min({what.deadline.at(), e.next_deadline(), nap_until});
    const timespec t = until.is_never() ? timespec{} : sleep_time(until, Clock::now());
    (void)cancelable(
        [&] { return libc().ppoll(fds, n, until.is_never() ? nullptr : &t, nullptr); });
  }
  t_signals.sleeping_on = nullptr;

  f.ready.remove(waiter.watcher);
  if (fds[0].revents != 0) waiter.event.drain();
  e.end_sleep();
  e.acquire();
  for (nfds_t i = first_device; i < n; ++i)
    if (fds[i].revents != 0) {
      e.ports().wake_ack_all();
      break;
    }
  return true;
}

/// One sleep of a thread without a place to spin: other threads poll, and wake it. The engine's
/// lock is held on entry and on return.
void follow_once(Engine& e, const WaitFor& what, const SignalMark& signals, Waiter& waiter,
                 bool (*ready)(void*), void* argument) noexcept VIREO_NO_THREAD_ANALYSIS {
  File& f = *what.handle.file;
  SpinPlaces& places = what.handle->stack->spin_places();
  f.ready.add(waiter.watcher);
  if (!ready(argument) && places.follow(waiter)) {
    pollfd fds[2] = {{waiter.event.fd(), POLLIN, 0}, {what.handle.fd, what.kernel_events, 0}};
    e.unlock();
    t_signals.sleeping_on = &waiter.event;  // from here a handler wakes this thread
    if (!signals.pending()) {
      const Instant now = Clock::now();
      const timespec t = sleep_time(std::min(what.deadline.at(), now + kFollowerPatience), now);
      (void)cancelable(
          [&] { return libc().ppoll(fds, what.kernel_events != 0 ? 2 : 1, &t, nullptr); });
    }
    t_signals.sleeping_on = nullptr;
    places.forget_follower(waiter);
    if (fds[0].revents != 0) waiter.event.drain();
    e.acquire();
  }
  f.ready.remove(waiter.watcher);
}

/// Whether input may go directly to the call's buffer. Not if another poll has queued some.
bool may_read_directly(const WaitFor& what) noexcept {
  if (what.direct == nullptr || what.handle->flow != &what.direct->flow) return false;
  const Flow& f = what.direct->flow;
  if (f.kind == FlowKind::kTcp) return static_cast<const TcpFlow&>(f).tcb.recv_queue.empty();
  const auto& u = static_cast<const UdpFlow&>(f);
  return u.queue.empty() && u.soft_error == 0;
}

/// One poll. @return whether there was work.
bool poll_once(Engine& e, const WaitFor& what, Instant now) noexcept VIREO_REQUIRES(e.lock()) {
  if (!may_read_directly(what)) return e.poll_to_return(now, PollOf::kWait);
  DirectRead& direct = *what.direct;
  const Engine::PolledFor polled =
      direct.flow.kind == FlowKind::kTcp
          ? e.poll_for(static_cast<TcpFlow&>(direct.flow), direct.to, now)
          : e.poll_for(static_cast<UdpFlow&>(direct.flow), direct.to, now);
  direct.taken = polled.bytes;
  return polled.is_worked;
}

}  // namespace

bool take_from_absent(Engine& e, Instant now) noexcept VIREO_NO_THREAD_ANALYSIS {
  if (now - e.last_poll() < kHolderAbsent) return false;
  e.acquire();
  return true;
}

Result<Woken> wait_until(Engine& e, const WaitFor& what, const SignalMark& signals,
                         bool (*ready)(void*), void* argument) noexcept VIREO_NO_THREAD_ANALYSIS {
  Stack& stack = *what.handle->stack;
  SpinPlaces& places = stack.spin_places();
  const int spins = stack.settings().rx_poll;
  const bool yields = stack.settings().rx_poll_yield;
  Waiter* waiter = nullptr;
  bool spins_in_place = false;
  const auto finish = [&](Result<Woken> result) {
    if (spins_in_place) places.leave();
    if (waiter != nullptr) stack.waiters().put(*waiter);
    return result;
  };
  int64_t polls = 0;
  IdlePolls idle(places);
  for (;;) {
    const Instant now = Clock::now();
    idle.begin(now);
    idle.end(poll_once(e, what, now), now);
    if ((what.direct != nullptr && what.direct->taken != 0) || ready(argument))
      return finish(Woken::kReady);
    if (signals.pending()) return finish(fail(EINTR, "signal"));
    if (what.deadline.passed(now)) {
      if (what.kernel_events != 0 && kernel_ready(what.handle.fd, what.kernel_events))
        return finish(Woken::kKernel);
      return finish(fail(EAGAIN, "timeout"));
    }
    if (inspection::is_due()) [[unlikely]] {
      e.unlock();
      const bool is_shown = inspection::show_all();
      e.acquire();
      if (is_shown) continue;
    }
    ++polls;
    const bool tried = polls > SpinPlaces::kMinPolls;
    const bool shared = tried && places.is_shared(now);
    const bool contended = shared && places.is_contended(now);
    const bool needs_place = contended || polls > kFreePolls;
    const bool spun_enough = spins >= 0 ? polls > spins || shared : tried && places.is_crowded(now);
    if (!spun_enough && !spins_in_place && needs_place) spins_in_place = places.try_enter();
    const bool placeless = !spun_enough && !spins_in_place && needs_place;
    // Others poll on behalf of followers, but with several engines perhaps not this one.
    const bool alone = placeless && stack.engine_count() > 1;
    const bool follow = placeless && !alone;
    const bool sleep = spun_enough || (spins_in_place && contended) || alone;
    const bool look =
        what.kernel_events != 0 &&
        (sleep || follow || (what.kernel_ratio > 0 && polls % what.kernel_ratio == 0));
    if (look && kernel_ready(what.handle.fd, what.kernel_events)) return finish(Woken::kKernel);
    if (sleep || follow) {
      if (spun_enough && std::exchange(spins_in_place, false)) places.leave();
      idle.pause();
      if (waiter == nullptr) {
        if (auto w = stack.waiters().take()) waiter = *w;
      }
      if (waiter != nullptr) {
        if (sleep)
          sleep_once(e, what, signals, *waiter, ready, argument);
        else
          follow_once(e, what, signals, *waiter, ready, argument);
        if (t_interrupts.is_cancelled)
          return finish(fail(EINTR, "cancelled"));  // input stays queued
        continue;
      }
    }
    e.unlock();
    if (polls % kPollsPerCancelLook == 0) [[unlikely]]
      look_for_cancel();
    if (sleep || follow)
      nap_without_event();
    else if (yields)
      ::sched_yield();
    else
      cpu_relax();
    // The lock's holder polls; what it delivers is seen once this thread has the lock.
    while (!e.try_acquire()) {
      idle.pause();
      cpu_relax();
      if (take_from_absent(e, Clock::now())) break;
      if (signals.pending()) {
        e.acquire();
        break;
      }
    }
  }
}

void FilePin::release() noexcept {
  if (file_ == nullptr) return;
  File& f = *std::exchange(file_, nullptr);
  release_pin(f);
}

}  // namespace vireo
