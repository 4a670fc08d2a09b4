// SIGSEGV and SIGBUS come to us first from the first socket on: a fault of a probe of ours is
// EFAULT (core/user_memory.h), and every other is the program's, by its handler or to its end, as
// if we were not there. A thread that blocks them would die of such a fault, so they are blocked in
// appearance only.
// Owner: process; what a thread blocks is its own. Thread: any, and signal handlers.
// Source: sigaction(2), pthread_sigmask(3); Linux kernel/signal.c force_sig_info_to_task().
#pragma once

#include <signal.h>

#include <cstdint>

namespace vireo::preload {

/// From here on. The calling thread blocks neither.
void watch_faults() noexcept;
/// `signo` is one of the two, and they come to us.
bool is_watched(int signo) noexcept;
/// What the kernel is to have for what the program wants of a watched one.
struct sigaction fault_action(const struct sigaction& user) noexcept;
void on_fault(int signo, siginfo_t* info, void* context);

/// Those that the calling thread blocks in appearance, as bits; for who runs a handler.
uint8_t blocked_faults() noexcept;
void set_blocked_faults(uint8_t which) noexcept;

/// pthread_sigmask(3) as the program sees it. @return 0 or an errno.
int set_mask(int how, const sigset_t* set, sigset_t* old) noexcept;

}  // namespace vireo::preload
