// Cancellation of a wait: it ends early, and the thread ends where nothing is held.
#include "stack/sock/cancel.h"

#include <pthread.h>

#include <cerrno>

#include "stack/sock/stack.h"

namespace vireo {

// What pthread_cleanup_push(3) makes of C: the unwinder comes back here instead of going on through
// our callers. From then on the thread is one that runs its cleanup handlers, and cannot be
// cancelled again.
long run_cancelable(long (*wait)(void*), void* argument) noexcept {
  __pthread_unwind_buf_t back;
  if (__sigsetjmp_cancel(back.__cancel_jmp_buf, 0) != 0) [[unlikely]] {
    __pthread_unregister_cancel(&back);
    t_cancelled = true;
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
  t_cancelled = false;  // the program's cleanup handlers may call us
  pthread_exit(PTHREAD_CANCELED);
}

}  // namespace vireo
