// The C boundary: from a Result to -1 and errno, with signals as signal(7) says. The only writer of
// errno. Owner: none. Thread: any.
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
  kNever,      ///< poll, select, epoll_wait, and sleeps: EINTR whatever SA_RESTART says
  kReceiving,  ///< made again after handlers with SA_RESTART, unless SO_RCVTIMEO is set
  kSending,    ///< the same with SO_SNDTIMEO
};

/// The socket of ours behind `fd`, empty for what libc shall answer itself, epolls among it.
inline Handle find_socket(int fd) noexcept {
  const Handle h = fd_table().find(fd);
  return h && h->kind.load(std::memory_order_relaxed) == FileKind::kEpoll ? Handle{} : h;
}

/// The process is ending in another thread, which has closed this one's sockets: to the program it
/// must look as if exit had come first.
[[noreturn, gnu::cold]] inline void park() noexcept {
  for (;;) pause();
}

/// A call failed. @return true: it is to be made again; false: errno says why.
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
/// errno set. Success leaves errno as it was.
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
