// The program's signal actions as sigaction(2) reports them; the kernel has Vireo's handlers
// instead.
// Owner: process. Thread: any, and signal handlers; changed under the lock.
#pragma once

#include <signal.h>

#include "core/lock.h"

namespace vireo::preload {

extern constinit Lock g_actions_lock;

/// A handler that interrupts a change reads the old or the new action, never a mix.
struct sigaction load_action(int signo) noexcept;
void store_action(int signo, const struct sigaction& user) noexcept VIREO_REQUIRES(g_actions_lock);

/// sa_handler and sa_sigaction are one word: SIG_DFL and SIG_IGN mean the same with SA_SIGINFO.
inline bool has_handler(const struct sigaction& a) {
  return a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN;
}

inline void run(const struct sigaction& a, int signo, siginfo_t* info, void* context) noexcept {
  if (!has_handler(a)) return;
  if ((a.sa_flags & SA_SIGINFO) != 0)
    a.sa_sigaction(signo, info, context);
  else
    a.sa_handler(signo);
}

/// run(), but only once if SA_RESETHAND is set and the kernel cannot enforce it.
void run_once(const struct sigaction& a, int signo, siginfo_t* info, void* context) noexcept;

/// The kernel's handler for a signal that the program handles: runs the program's now or defers it.
void on_signal(int signo, siginfo_t* info, void* context);

}  // namespace vireo::preload
