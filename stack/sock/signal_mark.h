// Detects whether a signal handler ran during a call: a call that polls must return EINTR, as one
// that sleeps in the kernel does.
// Owner: each thread has its own. Thread: its own; note_signal() is async-signal-safe.
#pragma once

#include <cstdint>

#include "core/sleep.h"

namespace vireo {

/// Counts this thread's signals. Preload's handler calls note_signal() before it runs or defers the
/// program's.
struct SignalState {
  volatile uint32_t count = 0;
  const EventFd* volatile sleeping_on = nullptr;  ///< this thread is about to sleep on it: wake it
  volatile uint32_t in_kernel =
      0;  ///< in a blocking system call with no lock held: handlers may run at once
  volatile uint32_t deferred = 0;  ///< handlers postponed to the end of the call (preload)
};
[[gnu::tls_model("initial-exec")]] inline thread_local constinit SignalState t_signals;

inline void note_signal() noexcept {
  t_signals.count = t_signals.count + 1;
  const EventFd* e = t_signals.sleeping_on;
  if (e != nullptr) const_cast<EventFd*>(e)->signal();  // write(2) is async-signal-safe
}

/// Made at the start of a call; pending(): has a handler run since, or been postponed?
class SignalMark {
 public:
  SignalMark() noexcept : at_(t_signals.count) {}
  bool pending() const noexcept { return t_signals.count != at_ || t_signals.deferred != 0; }

 private:
  uint32_t at_;
};

/// Scope of a libc call that may block in the kernel: handlers run at once there, so that
/// SA_RESTART takes effect. No lock may be held.
class KernelWait {
 public:
  KernelWait() noexcept { t_signals.in_kernel = t_signals.in_kernel + 1; }
  KernelWait(const KernelWait&) = delete;
  KernelWait& operator=(const KernelWait&) = delete;
  ~KernelWait() { t_signals.in_kernel = t_signals.in_kernel - 1; }
};

}  // namespace vireo
