// The program's signal handlers and Vireo's calls. A handler that runs while its thread is inside
// the library could call back into it with locks held. So sigaction is interposed, and a handler
// for a signal that arrives inside is deferred to the end of the call. The call notices the signal
// at once (note_signal) and returns EINTR, as the kernel's would.
//
// Owner: process (the table of actions), thread (deferred handlers). Thread: any, and signal
// handlers. Source: signal(7), sigaction(2); faults (SIGSEGV and the like) are never deferred.
#pragma once

#include <signal.h>

#include <cstdint>

#include "stack/sock/stack.h"

namespace vireo::preload {

/// Per thread; written by its signal handlers, too.
struct ThreadSignals {
  /// Nesting depth of calls into the library, and kAsync.
  volatile uint32_t depth = 0;
  volatile uint32_t no_restart = 0;  ///< handlers without SA_RESTART so far
  volatile uint32_t seen = 0;        ///< handlers so far
};
[[gnu::tls_model("initial-exec")]] inline thread_local constinit ThreadSignals t_state;

/// Runs the deferred handlers.
[[gnu::cold]] void run_deferred() noexcept;

/// A flag in ThreadSignals::depth: the thread has asynchronous cancellation
/// (pthread_setcanceltype(3)). The library holds locks, so inside it the thread is cancelled as
/// others are (sock/cancel.h). It is the sign bit, so that go_in() and go_out() test for it
/// cheaply.
inline constexpr uint32_t kAsync = 1U << 31;
[[gnu::cold]] void go_in_async(uint32_t depth) noexcept;
[[gnu::cold]] void go_out_async(uint32_t depth) noexcept;

/// The thread enters the library, and leaves it: on leaving the outermost call, deferred handlers
/// run.
inline void go_in() noexcept {
  const uint32_t depth = t_state.depth + 1;
  t_state.depth = depth;  // first: from here on handlers are deferred
  if (static_cast<int32_t>(depth) < 0) [[unlikely]]
    go_in_async(depth);
}
inline void go_out() noexcept {
  const uint32_t depth = t_state.depth - 1;
  t_state.depth = depth;
  if (static_cast<int32_t>(depth) < 0) [[unlikely]]
    return go_out_async(depth);
  if (t_signals.deferred != 0 && depth == 0) [[unlikely]]
    run_deferred();
}

/// Marks that the thread is inside the library; on leaving the outermost call, deferred handlers
/// run.
class Inside {
 public:
  Inside() noexcept : no_restart_before_(t_state.no_restart) { go_in(); }
  ~Inside() {
    if (!left_) leave();
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  /// Leaves now and runs deferred handlers. @return true: every handler that has run since entry
  /// has SA_RESTART, so an interrupted call is to be restarted.
  bool leave() noexcept {
    left_ = true;
    go_out();
    return t_state.no_restart == no_restart_before_;
  }

 private:
  bool left_ = false;
  uint32_t no_restart_before_;
};

/// sigaction(2) as the program sees it. @return 0 or -1 with errno.
int set_action(int signo, const struct sigaction* action, struct sigaction* old) noexcept;
/// pthread_setcanceltype(3). @return 0, or libc's error for an invalid type.
int set_cancel_type(int type, int* old) noexcept;
/// Whether this thread is inside the library, perhaps with locks held: for a handler that ends the
/// process.
bool is_inside() noexcept;
/// In the child of a fork: the lock's holder does not exist here, and signals deferred during the
/// fork are the parent's.
void reset_signals_after_fork() noexcept;
/// siginterrupt(3): whether the present and future actions of `signo` restart calls.
int set_interrupt(int signo, bool interrupts) noexcept;

}  // namespace vireo::preload
