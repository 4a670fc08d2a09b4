#include "stack/preload/signals.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/lock.h"
#include "stack/preload/actions.h"
#include "stack/preload/faults.h"
#include "stack/preload/real.h"
#include "stack/sock/stack.h"

namespace vireo::preload {
namespace {

/// A deferred call of a handler.
struct Deferred {
  int signo;
  siginfo_t info;
  ucontext_t context;
};

// Further signals are left pending in the kernel, blocked until the call ends.
constexpr uint32_t kQueue = 8;
thread_local Deferred t_queue[kQueue];
[[gnu::tls_model("initial-exec")]] thread_local constinit sigset_t t_left_to_kernel{};

/// The program's actions, written under the lock, read by handlers. A version counter (seqlock)
/// ensures that a handler reads the old or the new one, never a mix.
struct Action {
  std::atomic<uint32_t> version{0};  ///< odd while it changes
  struct sigaction user{};
};
constinit Action g_actions[NSIG];

}  // namespace

constinit Lock g_actions_lock;

struct sigaction load_action(int signo) noexcept {
  Action& a = g_actions[signo];
  struct sigaction copy;
  for (;;) {
    const uint32_t v =
        a.version.load(std::memory_order_acquire);  // pairs with the release in store_action()
    std::memcpy(&copy, &a.user, sizeof copy);
    std::atomic_thread_fence(std::memory_order_acquire);
    if ((v & 1) == 0 && a.version.load(std::memory_order_relaxed) == v) return copy;
  }
}

void store_action(int signo, const struct sigaction& user) noexcept {
  Action& a = g_actions[signo];
  const uint32_t v = a.version.load(std::memory_order_relaxed);
  a.version.store(v + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(&a.user, &user, sizeof user);
  a.version.store(v + 2, std::memory_order_release);  // pairs with the acquire in load_action()
}

namespace {

bool is_fault(int signo) {
  switch (signo) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS:
    case SIGABRT:
      return true;
    default:
      return false;
  }
}

void unblock_faults(sigset_t& mask) noexcept {
  sigdelset(&mask, SIGSEGV);
  sigdelset(&mask, SIGBUS);
}

void count(const struct sigaction& a) noexcept {
  t_state.seen = t_state.seen + 1;
  if ((a.sa_flags & SA_RESTART) == 0) t_state.no_restart = t_state.no_restart + 1;
}

/// The signal is delivered again once it is unblocked, by run_deferred().
void leave_to_kernel(int signo, siginfo_t* info, void* context) noexcept {
  sigaddset(&static_cast<ucontext_t*>(context)->uc_sigmask, signo);
  sigaddset(&t_left_to_kernel, signo);
  ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), signo, info);
}

}  // namespace

void on_signal(int signo, siginfo_t* info, void* context) {
  const int saved = errno;
  const struct sigaction a = load_action(signo);
  count(a);
  note_signal();
  const uint32_t n = t_signals.deferred;
  const bool must_wait = is_inside() && t_signals.in_kernel == 0;
  // As in the kernel, a standard signal is pending only once.
  const auto is_same = [&](const Deferred& d) { return d.signo == signo; };
  if (must_wait && signo < SIGRTMIN && std::any_of(t_queue, t_queue + n, is_same)) {
    errno = saved;
    return;
  }
  if (must_wait && n < kQueue) {
    Deferred& d = t_queue[n];
    d.signo = signo;
    d.info = *info;
    std::memcpy(&d.context, context, sizeof d.context);
    t_signals.deferred = n + 1;
  } else if (must_wait) {
    leave_to_kernel(signo, info, context);
  } else {
    // The program's handler may leave by longjmp: no code of ours that matters may follow.
    errno = saved;
    run_once(a, signo, info, context);
  }
  errno = saved;
}

void run_once(const struct sigaction& a, int signo, siginfo_t* info, void* context) noexcept {
  if ((static_cast<unsigned>(a.sa_flags) & SA_RESETHAND) != 0 && is_watched(signo)) {
    const LockGuard guard(g_actions_lock);
    store_action(signo, {});
  }
  // When the handler returns, the kernel restores the mask; this restores the apparent one.
  const uint8_t blocked = blocked_faults();
  run(a, signo, info, context);
  set_blocked_faults(blocked);
}

void run_deferred() noexcept {
  const int saved = errno;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // All blocked while the queue is read; each handler then runs with the mask that the kernel would
  // have set.
  real().pthread_sigmask(SIG_SETMASK, &all, &before);
  while (t_signals.deferred != 0) {
    Deferred d;
    std::memcpy(&d, &t_queue[0], sizeof d);
    const uint32_t left = t_signals.deferred - 1;
    std::memmove(&t_queue[0], &t_queue[1], left * sizeof(Deferred));
    t_signals.deferred = left;
    const struct sigaction a = load_action(d.signo);
    sigset_t mask = before;
    for (int s = 1; s < NSIG; ++s)
      if (sigismember(&a.sa_mask, s) == 1) sigaddset(&mask, s);
    if ((a.sa_flags & SA_NODEFER) == 0) sigaddset(&mask, d.signo);
    unblock_faults(mask);
    real().pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    run_once(a, d.signo, &d.info, &d.context);
    real().pthread_sigmask(SIG_SETMASK, &all, nullptr);
  }
  for (int s = 1; s < NSIG; ++s)
    if (sigismember(&t_left_to_kernel, s) == 1) sigdelset(&before, s);
  sigemptyset(&t_left_to_kernel);
  real().pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = saved;
}

int set_action(int signo, const struct sigaction* action, struct sigaction* old) noexcept {
  const bool watched = is_watched(signo);
  if (signo <= 0 || signo >= NSIG || (is_fault(signo) && !watched))
    return real().sigaction(signo, action, old);
  // A handler may call this (sigaction is async-signal-safe): none runs while the table changes.
  sigset_t all;
  sigset_t mask;
  sigfillset(&all);
  real().pthread_sigmask(SIG_SETMASK, &all, &mask);
  g_actions_lock.lock();
  const struct sigaction kept = load_action(signo);
  struct sigaction to_kernel{};
  if (action != nullptr) {
    to_kernel = watched ? fault_action(*action) : *action;
    if (watched || has_handler(*action)) store_action(signo, *action);
    if (!watched && has_handler(*action)) {
      to_kernel.sa_sigaction = on_signal;
      to_kernel.sa_flags |= SA_SIGINFO;
    }
    // A probe of the program's memory may fault in a handler, too.
    if (is_watched(SIGSEGV)) unblock_faults(to_kernel.sa_mask);
  }
  struct sigaction before{};
  const int result = real().sigaction(signo, action != nullptr ? &to_kernel : nullptr, &before);
  const int error = errno;
  if (result != 0 && action != nullptr) store_action(signo, kept);
  const bool was_ours = (before.sa_flags & SA_SIGINFO) != 0 &&
                        (before.sa_sigaction == on_signal || before.sa_sigaction == on_fault);
  g_actions_lock.unlock();
  real().pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  if (result != 0) {
    errno = error;
    return -1;
  }
  if (old != nullptr) *old = was_ours ? kept : before;
  return 0;
}

bool is_inside() noexcept { return (t_state.depth & ~kAsync) != 0; }

void go_in_async(uint32_t depth) noexcept {
  if (depth == (kAsync | 1)) real().pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, nullptr);
}

void go_out_async(uint32_t depth) noexcept {
  if (depth != kAsync) return;
  if (t_signals.deferred != 0) run_deferred();
  // Unless a handler has changed the type. A thread cancelled meanwhile ends here, where it holds
  // no lock.
  if (t_state.depth != kAsync) return;
  real().pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
}

int set_cancel_type(int type, int* old) noexcept {
  const uint32_t was = t_state.depth;
  const bool to_async = type == PTHREAD_CANCEL_ASYNCHRONOUS;
  // Set before libc's type becomes asynchronous, and cleared after it no longer is.
  if (to_async) t_state.depth = was | kAsync;
  // The old type comes from the flag: inside a call of Vireo's libc has a different one.
  if (const int error = real().pthread_setcanceltype(
          is_inside() && to_async ? PTHREAD_CANCEL_DEFERRED : type, nullptr);
      error != 0) {
    t_state.depth = was;
    return error;
  }
  if (old != nullptr)
    *old = (was & kAsync) != 0 ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED;
  if (!to_async) t_state.depth = was & ~kAsync;
  return 0;
}

void reset_signals_after_fork() noexcept {
  g_actions_lock.reset_after_fork();
  t_signals.deferred = 0;
  real().pthread_sigmask(SIG_UNBLOCK, &t_left_to_kernel, nullptr);
  sigemptyset(&t_left_to_kernel);
}

int set_interrupt(int signo, bool interrupts) noexcept {
  struct sigaction a;
  if (set_action(signo, nullptr, &a) != 0) return -1;
  if (interrupts)
    a.sa_flags &= ~SA_RESTART;
  else
    a.sa_flags |= SA_RESTART;
  return set_action(signo, &a, nullptr);
}

}  // namespace vireo::preload
