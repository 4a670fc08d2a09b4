// Shared parts of poll, select and epoll_wait: deadlines, sleep, readiness under an engine's lock.
#include "stack/sock/multiplex_wait.h"

#include <algorithm>

#include "stack/sock/cancel.h"

namespace vireo::sock {

ReadyBits ready_under(EngineHold& hold, const Handle& h, ReadyBits asked) noexcept {
  Engine* e = h->engine.load(std::memory_order_acquire);
  if (e == nullptr)  // served by the kernel, or void in the child of a fork
    return h->mode.load(std::memory_order_acquire) == Mode::kVoid ? readiness(*h.file) : 0;
  hold.take(e);
  return h.is_alive() ? readiness(*h.file, asked) : 0;
}

Result<Instant> deadline_of(const timespec* timeout, Instant now) noexcept {
  if (timeout == nullptr) return Instant::never();
  if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1'000'000'000)
    return fail(EINVAL, "timeout");
  constexpr int64_t kYears = int64_t{100} * 365 * 86'400;  // above this, nanoseconds overflow
  if (timeout->tv_sec >= kYears) return Instant::never();
  return now + Duration::s(timeout->tv_sec) + Duration::ns(timeout->tv_nsec);
}

bool sleep_on(const EngineSet& engines, SleepList& list, EventFd& event, Instant deadline,
              const SignalMark& signals) noexcept VIREO_NO_THREAD_ANALYSIS {
  nfds_t n = list.n;
  const nfds_t room = list.n + SleepList::kExtra;
  pollfd& own = list.at[n++];
  own = {event.fd(), POLLIN, 0};
  const nfds_t first_device = n;
  Instant until = deadline;
  unsigned asleep = 0;  // engines in which begin_sleep() succeeded
  for (Engine* e : engines) {
    e->acquire();
    // With the call and the queues armed no event is lost: earlier ones are seen here, later ones
    // wake this thread.
    Instant nap_until = Instant::never();
    const bool ok = e->begin_sleep(&nap_until);
    if (ok) {
      ++asleep;
      if (nap_until.is_never())
        for (const int fd : e->ports().wait_fds())
          if (n < room) list.at[n++] = {fd, POLLIN, 0};
    }
    e->unlock();
    if (!ok) break;
    until = std::min({until, e->next_deadline(), nap_until});
  }
  const bool sleeps = asleep == engines.n;
  if (sleeps) {
    t_signals.sleeping_on = &event;  // from here a handler wakes this thread
    if (!signals.pending()) {
      const int64_t ns = until.is_never() ? 0 : std::max<int64_t>(0, (until - Clock::now()).ns());
      const timespec t{ns / 1'000'000'000, ns % 1'000'000'000};
      // ppoll does not write these if it fails (EINTR).
      for (nfds_t i = 0; i < n; ++i) list.at[i].revents = 0;
      (void)cancelable(
          [&] { return libc().ppoll(list.at, n, until.is_never() ? nullptr : &t, nullptr); });
    }
    t_signals.sleeping_on = nullptr;
    if (own.revents != 0) event.drain();
  }
  for (unsigned i = 0; i < asleep; ++i) engines.at[i]->end_sleep();
  bool device = false;
  for (nfds_t i = first_device; sleeps && i < n; ++i) device |= list.at[i].revents != 0;
  if (device)
    for (Engine* e : engines) {
      e->acquire();
      e->ports().wake_ack_all();
      e->unlock();
    }
  return sleeps;
}

}  // namespace vireo::sock
