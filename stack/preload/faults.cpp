#include "stack/preload/faults.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "core/user_memory.h"
#include "stack/preload/actions.h"
#include "stack/preload/real.h"

namespace vireo::preload {
namespace {

constexpr int kFaults[] = {SIGSEGV, SIGBUS};

constinit std::atomic<bool> g_watching{false};

/// The signals that the thread appears to block, in the order of kFaults.
[[gnu::tls_model("initial-exec")]] thread_local constinit volatile bool t_blocks[2] = {};

volatile bool& blocks(int signo) noexcept { return t_blocks[signo == kFaults[0] ? 0 : 1]; }

/// The signal was sent, not caused by an instruction of this thread.
bool is_sent(int signo, const siginfo_t& info) noexcept {
  return info.si_code <= 0 || (signo == SIGBUS && info.si_code == BUS_MCEERR_AO);
}

void set_default(int signo) noexcept {
  struct sigaction plain{};
  plain.sa_handler = SIG_DFL;
  real().sigaction(signo, &plain, nullptr);
}

/// Leaves it pending until the thread unblocks it: blocks it in the kernel, too. Sent to this
/// thread, even if meant for the process: Vireo's threads, which do not block it, must not take it.
void leave_pending(int signo, siginfo_t& info, ucontext_t& context) noexcept {
  blocks(signo) = false;
  sigaddset(&context.uc_sigmask, signo);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signo);
  real().pthread_sigmask(SIG_BLOCK, &one, nullptr);
  if (::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), signo, &info) != 0)
    ::syscall(SYS_tgkill, ::getpid(), ::gettid(), signo);
}

}  // namespace

void on_fault(int signo, siginfo_t* info, void* context) {
  const bool sent = is_sent(signo, *info);
  if (!sent && resume_after_probe(context)) return;
  const int saved = errno;
  const struct sigaction a = load_action(signo);
  if (sent && blocks(signo)) {
    leave_pending(signo, *info, *static_cast<ucontext_t*>(context));
  } else if (has_handler(a) && !blocks(signo)) {
    errno = saved;
    if (sent) return on_signal(signo, info, context);
    run_once(a, signo, info, context);  // may leave by longjmp: no code of ours may follow
    return;
  } else if (!sent || a.sa_handler != SIG_IGN) {
    // Ends the process by the kernel: the instruction faults again, or the signal is sent again.
    set_default(signo);
    if (sent) ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), signo, info);
  }
  errno = saved;
}

uint8_t blocked_faults() noexcept {
  return static_cast<uint8_t>((t_blocks[0] ? 1 : 0) | (t_blocks[1] ? 2 : 0));
}
void set_blocked_faults(uint8_t which) noexcept {
  t_blocks[0] = (which & 1) != 0;
  t_blocks[1] = (which & 2) != 0;
}

bool is_watched(int signo) noexcept {
  return (signo == SIGSEGV || signo == SIGBUS) && g_watching.load(std::memory_order_acquire);
}

struct sigaction fault_action(const struct sigaction& user) noexcept {
  struct sigaction a = user;
  a.sa_sigaction = on_fault;
  // If the program has no handler, this one uses the alternate stack, which is meant for fatal
  // faults. SA_RESETHAND is implemented here: the kernel must not remove this handler.
  if (!has_handler(user)) {
    a.sa_flags = SA_ONSTACK | SA_RESTART;
    sigemptyset(&a.sa_mask);
  }
  a.sa_flags = (a.sa_flags | SA_SIGINFO) & ~static_cast<int>(SA_RESETHAND);
  return a;
}

void watch_faults() noexcept {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  real().pthread_sigmask(SIG_SETMASK, &all, &before);
  {
    const LockGuard guard(g_actions_lock);
    for (const int signo : kFaults) {
      struct sigaction now{};
      if (real().sigaction(signo, nullptr, &now) != 0) continue;
      store_action(signo, now);
      const struct sigaction ours = fault_action(now);
      real().sigaction(signo, &ours, nullptr);
    }
    g_watching.store(true, std::memory_order_release);
  }
  real().pthread_sigmask(SIG_SETMASK, &before, nullptr);
  (void)set_mask(SIG_SETMASK, &before, nullptr);
}

int set_mask(int how, const sigset_t* set, sigset_t* old) noexcept {
  if (!g_watching.load(std::memory_order_acquire)) return real().pthread_sigmask(how, set, old);
  // Signals that the kernel really blocks (in a handler, or left pending) stay with the kernel.
  sigset_t now;
  real().pthread_sigmask(SIG_BLOCK, nullptr, &now);
  const bool noted[] = {t_blocks[0], t_blocks[1]};
  bool is_real[2];
  bool wanted[2] = {};
  sigset_t ours;
  if (set != nullptr) ours = *set;
  for (size_t i = 0; i < 2; ++i) {
    is_real[i] = sigismember(&now, kFaults[i]) == 1;
    if (set == nullptr) continue;
    wanted[i] = sigismember(set, kFaults[i]) == 1;
    if (wanted[i] && how != SIG_UNBLOCK && !is_real[i]) sigdelset(&ours, kFaults[i]);
  }
  if (const int error = real().pthread_sigmask(how, set != nullptr ? &ours : nullptr, old);
      error != 0)
    return error;
  for (size_t i = 0; i < 2; ++i) {
    const bool is_about = set != nullptr && (how == SIG_SETMASK || wanted[i]);
    const bool blocks_it = how != SIG_UNBLOCK && wanted[i];
    if (is_about && !(blocks_it && is_real[i])) t_blocks[i] = blocks_it;
    if (old != nullptr && noted[i]) sigaddset(old, kFaults[i]);
  }
  return 0;
}

}  // namespace vireo::preload
