// The C boundary: converts a Result to a value or -1 and errno, and treats signals as signal(7)
// says. Only this layer writes errno. Owner: none. Thread: any.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <type_traits>

#include "stack/preload/real.h"
#include "stack/preload/signals.h"
#include "stack/sock/calls.h"
#include "stack/sock/cancel.h"

namespace vireo::preload {

enum class Restart : uint8_t {
  kNever,      ///< poll, select, epoll_wait, and sleeps: EINTR even with SA_RESTART
  kReceiving,  ///< restarted after handlers with SA_RESTART, unless SO_RCVTIMEO is set
  kSending,    ///< the same with SO_SNDTIMEO
};

/// The socket of `fd`; empty if libc is to serve the call, also for epolls.
inline Handle find_socket(int fd) noexcept {
  const Handle h = fd_table().find(fd);
  return h && h->kind.load(std::memory_order_relaxed) == FileKind::kEpoll ? Handle{} : h;
}

/// Another thread is ending the process and has closed this thread's sockets: stops here, as if
/// exit had come first.
[[noreturn, gnu::cold]] inline void park() noexcept {
  for (;;) pause();
}

/// Handles a failed call. @return true: repeat it; false: errno is set.
[[gnu::cold, gnu::noinline]] inline bool failed(const Err& why, Restart restart, Handle h,
                                                bool may_restart) noexcept {
  if (why.code == EINTR && may_restart && restart != Restart::kNever &&
      !sock::has_timeout(h, restart == Restart::kSending))
    return true;
  if (const Stack* s = process_stack(); s != nullptr && s->ends_elsewhere()) park();
  if (raises_sigpipe(why)) raise(SIGPIPE);
  errno = why.code;
  return false;
}

/// Runs `f` (-> Result<T>) inside the library. @return its value (0 for Result<void>), or -1 with
/// errno set. Success leaves errno unchanged.
template <class F>
[[gnu::always_inline]] inline auto call(Restart restart, Handle h, F&& f) noexcept {
  using T = typename decltype(f())::value_type;
  using Return = std::conditional_t<std::is_void_v<T>, int, T>;
  const int saved = errno;
  for (;;) {
    Inside inside;
    auto r = f();
    const bool may_restart = inside.leave();
    finish_cancel();
    if (r) [[likely]] {
      errno = saved;
      if constexpr (std::is_void_v<T>)
        return Return{0};
      else
        return *r;
    }
    if (!failed(r.error(), restart, h, may_restart)) return Return{-1};
  }
}

}  // namespace vireo::preload
