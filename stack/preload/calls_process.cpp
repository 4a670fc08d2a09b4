// Signals, children that share or copy this memory, and the end of the process. fork(2) is handled
// by pthread_atfork (process_stack.cpp).
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "core/own_thread.h"
#include "stack/preload/faults.h"
#include "stack/preload/process_stack.h"
#include "stack/preload/real.h"
#include "stack/preload/signals.h"
#include "stack/sock/calls.h"
#include "stack/sock/holders.h"
#include "stack/sock/owner.h"

using namespace vireo;           // NOLINT: the C names below live in no namespace
using namespace vireo::preload;  // NOLINT

namespace {

sighandler_t install(int signo, sighandler_t handler, int flags) {
  struct sigaction now{};
  struct sigaction before{};
  now.sa_handler = handler;
  now.sa_flags = flags;
  if (set_action(signo, &now, &before) != 0) return SIG_ERR;
  return before.sa_handler;
}

/// Threads of this process; the first counts until the process ends. 0: unknown.
int count_threads() noexcept {
  int n = 0;
  if (DIR* const tasks = ::opendir("/proc/self/task"); tasks != nullptr) {
    while (const dirent* d = ::readdir(tasks)) n += d->d_name[0] != '.' ? 1 : 0;
    ::closedir(tasks);
  }
  return n;
}

/// The first thread has ended, but not the process.
bool is_first_gone() noexcept {
  char text[256];
  const int fd = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd >= 0 ? ::read(fd, text, sizeof text - 1) : -1;
  if (fd >= 0) ::close(fd);
  if (n <= 0) return false;
  const std::string_view all(text, static_cast<size_t>(n));
  const size_t name_ends = all.rfind(") ");  // proc_pid_stat(5): pid (name) state
  return name_ends != std::string_view::npos && all.substr(name_ends + 2, 1) == "Z";
}

/// Calls exit(0) when the program's last thread has ended, as libc would: libc counts Vireo's
/// threads as the program's. Checks twice, because a thread may be about to start.
void* end_with_the_last(void*) {
  constexpr timespec kBetweenLooks{0, 50'000'000};
  for (int alone = 0; alone < 2;) {
    ::nanosleep(&kBetweenLooks, nullptr);
    const int all = is_first_gone() ? count_threads() : 0;
    alone = all != 0 && all <= 1 + own_threads() ? alone + 1 : 0;
  }
  ::exit(0);
}

void watch_the_last() noexcept {
  static std::atomic<pid_t> watched{0};  // a pid, because a forked child needs a watcher of its own
  const pid_t self = ::getpid();
  pthread_t watcher;
  if (watched.exchange(self) != self && start_own_thread(watcher, end_with_the_last, nullptr) == 0)
    ::pthread_detach(watcher);
}

/// The calling thread is about to end.
void leave_thread() noexcept {
  if (::gettid() == ::getpid() && own_threads() != 0) watch_the_last();
}

}  // namespace

namespace vireo::preload {

void note_new_stack() noexcept {
  if (::gettid() != ::getpid() && is_first_gone()) watch_the_last();
}

}  // namespace vireo::preload

extern "C" {

/// @return libc's vfork, for the caller to jump to.
[[gnu::used, gnu::visibility("hidden")]] pid_t (*vireo_before_vfork() noexcept)() {
  hand_over_to_child();
  if (Stack* const s = own_stack(); s != nullptr && s->engine_if_any() != nullptr) {
    Inside inside;
    s->family().heirs.vfork_prepare(*s);
    forget_replaced();
  }
  Owner::before_vfork();
  return real().vfork;
}

// vfork returns twice, first in the child, which may overwrite the frame of its caller and
// everything below it. So this wrapper leaves no frame: it jumps to libc's vfork.
#if defined(__x86_64__)
asm(R"(
  .text
  .globl vfork, __vfork
  .type vfork, @function
  .type __vfork, @function
vfork:
__vfork:
  .cfi_startproc
  endbr64
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  call vireo_before_vfork
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  jmp *%rax
  .cfi_endproc
  .size vfork, .-vfork
  .size __vfork, .-__vfork
)");
#elif defined(__aarch64__)
asm(R"(
  .text
  .globl vfork, __vfork
  .type vfork, %function
  .type __vfork, %function
vfork:
__vfork:
  .cfi_startproc
  hint 34  // bti c
  stp x29, x30, [sp, #-16]!
  .cfi_adjust_cfa_offset 16
  bl vireo_before_vfork
  ldp x29, x30, [sp], #16
  .cfi_adjust_cfa_offset -16
  mov x16, x0
  br x16
  .cfi_endproc
  .size vfork, .-vfork
  .size __vfork, .-__vfork
)");
#else
#error "vfork(2) is not written for this processor"
#endif

VIREO_EXPORT int clone(int (*f)(void*), void* stack, int flags, void* argument, ...) noexcept {
  va_list v;
  va_start(v, argument);
  void* const parent_tid = va_arg(v, void*);
  void* const tls = va_arg(v, void*);
  void* const child_tid = va_arg(v, void*);
  va_end(v);
  Owner::before_clone(static_cast<unsigned>(flags));
  const bool is_told = must_tell_fork(static_cast<unsigned>(flags));
  if (!is_told && (flags & CLONE_THREAD) == 0) note_unknown_child();
  if (!is_told) return real().clone(f, stack, flags, argument, parent_tid, tls, child_tid);
  // The child has a copy of this frame.
  struct Child {
    int (*f)(void*);
    void* argument;
  } child{f, argument};
  before_fork();
  const int pid = real().clone(
      [](void* p) {
        after_fork_in_child();
        const auto* its = static_cast<Child*>(p);
        return its->f(its->argument);
      },
      stack, flags, &child, parent_tid, tls, child_tid);
  const int saved = errno;
  after_fork_in_parent();
  errno = saved;
  return pid;
}

/// It runs no fork handlers.
VIREO_EXPORT pid_t _Fork() noexcept {
  note_unknown_child();
  if (real().fork_only != nullptr) return real().fork_only();
  errno = ENOSYS;
  return -1;
}

/// libc's own call of posix_spawn(3) is not seen.
VIREO_EXPORT int system(const char* command) {
  if (Stack* const s = own_stack(); s != nullptr && command != nullptr) sock::note_spawn(*s);
  return real().system(command);
}
VIREO_EXPORT FILE* popen(const char* command, const char* how) {
  if (Stack* const s = own_stack(); s != nullptr) sock::note_spawn(*s);
  return real().popen(command, how);
}

/// The parent ends inside libc.
VIREO_EXPORT int daemon(int keep_folder, int keep_streams) noexcept {
  if (Stack* const s = own_stack(); s != nullptr && s->engine_if_any() != nullptr) {
    Inside inside;
    sock::hand_over_all(*s);
    s->write_stats_at_exit();
  }
  const int r = real().daemon(keep_folder, keep_streams);
  if (Stack* const s = own_stack(); s != nullptr) s->counters().forget_file();
  return r;
}

VIREO_EXPORT int sigaction(int signo, const struct sigaction* action,
                           struct sigaction* old) noexcept {
  return set_action(signo, action, old);
}

VIREO_EXPORT void pthread_exit(void* result) {
  leave_thread();
  real().pthread_exit(result);
  __builtin_unreachable();
}
VIREO_EXPORT void thrd_exit(int result) {
  leave_thread();
  real().thrd_exit(result);
  __builtin_unreachable();
}

VIREO_EXPORT int pthread_setcanceltype(int type, int* old) { return set_cancel_type(type, old); }

VIREO_EXPORT sighandler_t signal(int signo, sighandler_t handler) noexcept {
  return install(signo, handler, SA_RESTART);
}
VIREO_EXPORT sighandler_t bsd_signal(int signo, sighandler_t handler) noexcept {
  return install(signo, handler, SA_RESTART);
}
VIREO_EXPORT sighandler_t __sysv_signal(int signo, sighandler_t handler) noexcept {
  return install(signo, handler, static_cast<int>(SA_RESETHAND | SA_NODEFER));
}

VIREO_EXPORT sighandler_t ssignal(int signo, sighandler_t handler) noexcept {
  return install(signo, handler, SA_RESTART);
}
VIREO_EXPORT sighandler_t sysv_signal(int signo, sighandler_t handler) noexcept {
  return install(signo, handler, static_cast<int>(SA_RESETHAND | SA_NODEFER));
}
VIREO_EXPORT int sigignore(int signo) noexcept {
  return install(signo, SIG_IGN, 0) == SIG_ERR ? -1 : 0;
}

/// sigset(3): SIG_HOLD blocks the signal; it is also the result if the signal was blocked.
VIREO_EXPORT sighandler_t sigset(int signo, sighandler_t handler) noexcept {
  sigset_t one;
  sigset_t before;
  sigemptyset(&one);
  if (sigaddset(&one, signo) != 0) return SIG_ERR;
  const bool holds = handler == SIG_HOLD;
  struct sigaction was{};
  if (holds && set_action(signo, nullptr, &was) != 0) return SIG_ERR;
  if (!holds) {
    was.sa_handler = install(signo, handler, 0);
    if (was.sa_handler == SIG_ERR) return SIG_ERR;
  }
  if (set_mask(holds ? SIG_BLOCK : SIG_UNBLOCK, &one, &before) != 0) return SIG_ERR;
  return sigismember(&before, signo) == 1 ? SIG_HOLD : was.sa_handler;
}

VIREO_EXPORT int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return set_mask(how, set, old);
}
VIREO_EXPORT int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  const int error = set_mask(how, set, old);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

VIREO_EXPORT int siginterrupt(int signo, int interrupts) noexcept {
  return set_interrupt(signo, interrupts != 0);
}

VIREO_EXPORT void _exit(int status) {
  leave_process();
  real().exit_now(status);
  __builtin_unreachable();
}

VIREO_EXPORT void _Exit(int status) noexcept {
  leave_process();
  real().exit_now(status);
  __builtin_unreachable();
}

}  // extern "C"
