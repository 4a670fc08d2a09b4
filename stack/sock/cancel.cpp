// Cancellation of a wait: the wait ends early, and the thread ends later, when it holds nothing.
#include "stack/sock/cancel.h"

#include <pthread.h>

#include <cerrno>

#include "stack/sock/stack.h"

namespace vireo {

// The C expansion of pthread_cleanup_push(3): the unwinder returns here instead of unwinding our
// callers. From then on the thread counts as one that runs its cleanup handlers, and cannot be
// cancelled again.
long run_cancelable(long (*wait)(void*), void* argument) noexcept {
  __pthread_unwind_buf_t back;
  if (__sigsetjmp_cancel(back.__cancel_jmp_buf, 0) != 0) [[unlikely]] {
    __pthread_unregister_cancel(&back);
    t_interrupts.is_cancelled = true;
    t_signals.count = t_signals.count + 1;
    errno = EINTR;
    return -1;
  }
  __pthread_register_cancel(&back);
  const long result = wait(argument);
  __pthread_unregister_cancel(&back);
  return result;
}

void look_for_cancel() noexcept {
  (void)cancelable([] {
    pthread_testcancel();
    return 0;
  });
}

void end_cancelled() noexcept {
  t_interrupts.is_cancelled = false;  // the program's cleanup handlers may make calls
  pthread_exit(PTHREAD_CANCELED);
}

}  // namespace vireo
