// The program's signal handlers and our calls. A handler that runs while its thread is inside the
// library could call back into it with locks held; so sigaction is interposed, and a handler that
// arrives inside is put off to the end of the call. The call learns of it at once (note_signal) and
// returns EINTR, as the kernel's would.
//
// Owner: process (the table of actions), thread (what is put off). Thread: any, and signal
// handlers. Source: signal(7), sigaction(2); faults (SIGSEGV and the like) are never put off.
#pragma once

#include <signal.h>

#include <cstdint>

#include "stack/sock/stack.h"

namespace vireo::preload {

/// Of one thread; its handlers write too.
struct ThreadSignals {
  /// Calls of ours that the thread is inside of, and kAsync.
  volatile uint32_t depth = 0;
  volatile uint32_t no_restart = 0;  ///< handlers without SA_RESTART so far
  volatile uint32_t seen = 0;        ///< handlers so far
};
[[gnu::tls_model("initial-exec")]] inline thread_local constinit ThreadSignals t_state;

/// Runs the handlers that were put off.
[[gnu::cold]] void run_deferred() noexcept;

/// In ThreadSignals::depth: the thread may be cancelled at any instruction of its own
/// (pthread_setcanceltype(3)). Not at one of ours, which holds locks: in here it is cancelled as
/// others are (sock/cancel.h). The sign, which going in and out knows without asking.
inline constexpr uint32_t kAsync = 1U << 31;
[[gnu::cold]] void go_in_async(uint32_t depth) noexcept;
[[gnu::cold]] void go_out_async(uint32_t depth) noexcept;

/// The thread goes into the library, and comes out of it: of the outermost call, handlers that were
/// put off run.
inline void go_in() noexcept {
  const uint32_t depth = t_state.depth + 1;
  t_state.depth = depth;  // first: from here on handlers are put off
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

/// Marks that the thread is inside the library; on the way out of the outermost one, handlers that
/// were put off run.
class Inside {
 public:
  Inside() noexcept : no_restart_before_(t_state.no_restart) { go_in(); }
  ~Inside() {
    if (!left_) leave();
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  /// Leaves now and runs what was put off. @return true: some handler ran or had run since entry,
  /// and all of them have SA_RESTART, so that an interrupted call is to be made again.
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
/// pthread_setcanceltype(3). @return 0, or what libc's says of a type that is none.
int set_cancel_type(int type, int* old) noexcept;
/// This thread is in a call of ours, perhaps with locks held: a handler asks, before it ends the
/// process.
bool is_inside() noexcept;
/// The child of a fork: whoever held the table's lock is not here, and what was put off amid the
/// fork is the parent's.
void reset_signals_after_fork() noexcept;
/// siginterrupt(3)'s flag. Future and present action of `signo` restart calls, or do not.
int set_interrupt(int signo, bool interrupts) noexcept;

}  // namespace vireo::preload
