// Signals, children that have our memory, and the end of the process. fork(2) is followed by
// pthread_atfork (process_stack.cpp).
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstdarg>

#include "stack/preload/process_stack.h"
#include "stack/preload/real.h"
#include "stack/preload/signals.h"
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

/// No program code runs after this: what is owed to peers goes out first.
void drain() {
  // From a handler in the middle of a call of ours: its locks would wait for themselves.
  if (is_inside()) return;
  if (Stack* s = process_stack(); s != nullptr && s->is_owner()) {
    Inside inside;
    s->drain_at_exit();
    s->write_stats_at_exit();
  }
}

}  // namespace

extern "C" {

/// @return libc's vfork, which is to be called now.
[[gnu::used, gnu::visibility("hidden")]] pid_t (*vireo_before_vfork() noexcept)() {
  Owner::before_vfork();
  return real().vfork;
}

// Returns twice, in the child first, which may overwrite whatever lies in its caller's frame and
// below: nothing of ours may lie there. So libc's gets our place.
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
  return real().clone(f, stack, flags, argument, parent_tid, tls, child_tid);
}

VIREO_EXPORT int sigaction(int signo, const struct sigaction* action,
                           struct sigaction* old) noexcept {
  return set_action(signo, action, old);
}

VIREO_EXPORT sighandler_t signal(int signo, sighandler_t handler) noexcept {
  return install(signo, handler, SA_RESTART);
}
VIREO_EXPORT sighandler_t bsd_signal(int signo, sighandler_t handler) noexcept {
  return install(signo, handler, SA_RESTART);
}
VIREO_EXPORT sighandler_t __sysv_signal(int signo, sighandler_t handler) noexcept {
  return install(signo, handler, static_cast<int>(SA_RESETHAND | SA_NODEFER));
}

VIREO_EXPORT int siginterrupt(int signo, int interrupts) noexcept {
  return set_interrupt(signo, interrupts != 0);
}

VIREO_EXPORT void _exit(int status) {
  drain();
  real().exit_now(status);
  __builtin_unreachable();
}

VIREO_EXPORT void _Exit(int status) noexcept {
  drain();
  real().exit_now(status);
  __builtin_unreachable();
}

}  // extern "C"
