// From the first socket on, Vireo handles SIGSEGV and SIGBUS: a fault in one of its memory probes
// is EFAULT (core/user_memory.h); any other goes to the program's handler or ends the process, as
// without Vireo. A fault while the signal is blocked would kill the process, so a thread that
// blocks the two only appears to.
// Owner: process; the apparent mask is per thread. Thread: any, and signal handlers.
// Source: sigaction(2), pthread_sigmask(3); Linux kernel/signal.c force_sig_info_to_task().
#pragma once

#include <signal.h>

#include <cstdint>

namespace vireo::preload {

/// Installs the handlers and unblocks both signals in the calling thread.
void watch_faults() noexcept;
/// `signo` is one of the two, and the handlers are installed.
bool is_watched(int signo) noexcept;
/// The action to give the kernel when the program asks for `user` on a watched signal.
struct sigaction fault_action(const struct sigaction& user) noexcept;
void on_fault(int signo, siginfo_t* info, void* context);

/// The watched signals that the calling thread appears to block, as bits; saved around a handler.
uint8_t blocked_faults() noexcept;
void set_blocked_faults(uint8_t which) noexcept;

/// pthread_sigmask(3) as the program sees it. @return 0 or an errno.
int set_mask(int how, const sigset_t* set, sigset_t* old) noexcept;

}  // namespace vireo::preload
