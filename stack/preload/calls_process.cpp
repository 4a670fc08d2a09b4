// Signals and the end of the process. fork(2) is followed by pthread_atfork (process_stack.cpp).
#include <signal.h>
#include <unistd.h>

#include "stack/preload/process_stack.h"
#include "stack/preload/real.h"
#include "stack/preload/signals.h"

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
