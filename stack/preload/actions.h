// The program's signal actions, as it has them from sigaction(2): what the kernel has is ours.
// Owner: process. Thread: any, and signal handlers; changed under the lock.
#pragma once

#include <signal.h>

#include "core/lock.h"

namespace vireo::preload {

extern constinit Lock g_actions_lock;

/// A handler sees the old one or the new one whole.
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

/// run(), once if SA_RESETHAND asks for that and the kernel cannot see to it.
void run_once(const struct sigaction& a, int signo, siginfo_t* info, void* context) noexcept;

/// What the kernel calls for a signal that the program handles: at once, or put off.
void on_signal(int signo, siginfo_t* info, void* context);

}  // namespace vireo::preload
