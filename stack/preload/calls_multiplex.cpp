// poll, select and epoll: served by Vireo if one descriptor of the call is Vireo's.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <csignal>
#include <cstdlib>
#include <optional>

#include "stack/preload/call.h"
#include "stack/preload/process_stack.h"
#include "stack/sock/holders.h"
#include "stack/sock/multiplex.h"

using namespace vireo;           // NOLINT: the C names below live in no namespace
using namespace vireo::preload;  // NOLINT

namespace {

/// A timeout in milliseconds; negative waits for ever.
class Timeout {
 public:
  explicit Timeout(int ms) {
    if (ms >= 0) value_ = timespec{ms / 1000, (ms % 1000) * 1'000'000L};
  }
  explicit Timeout(const timeval* tv) {
    if (tv != nullptr)
      value_ = timespec{tv->tv_sec + tv->tv_usec / 1'000'000, (tv->tv_usec % 1'000'000) * 1'000};
  }
  const timespec* get() const { return value_ ? &*value_ : nullptr; }

 private:
  std::optional<timespec> value_;
};

int do_poll(pollfd* fds, nfds_t n, const timespec* timeout, const sigset_t* mask) {
  return call(Restart::kNever, {}, [&] { return sock::poll({fds, n}, timeout, mask); });
}

bool is_ours(pollfd* fds, nfds_t n) {
  return process_stack() != nullptr && sock::concerns_us({fds, n});
}

bool may_be_ours(int n, fd_set* read, fd_set* write, fd_set* except) {
  return process_stack() != nullptr && sock::concerns_us(n, read, write, except);
}

/// Sets EFAULT for a timeout or mask that is given but not readable.
template <class T>
bool is_given_badly(const T* p) {
  if (p == nullptr || is_readable(p)) [[likely]]
    return false;
  errno = EFAULT;
  return true;
}
bool is_given_badly(const sigset_t* mask) {
  if (mask == nullptr || is_readable(mask, NSIG / 8)) [[likely]]  // the size that the kernel reads
    return false;
  errno = EFAULT;
  return true;
}

}  // namespace

extern "C" {

VIREO_EXPORT int poll(pollfd* fds, nfds_t n, int timeout_ms) {
  if (!is_ours(fds, n)) return preload::libc().poll(fds, n, timeout_ms);
  return do_poll(fds, n, Timeout(timeout_ms).get(), nullptr);
}

VIREO_EXPORT int __poll_chk(pollfd* fds, nfds_t n, int timeout_ms, size_t bytes) {
  if (bytes / sizeof(*fds) < n) std::abort();
  return poll(fds, n, timeout_ms);
}

VIREO_EXPORT int ppoll(pollfd* fds, nfds_t n, const timespec* timeout, const sigset_t* mask) {
  if (!is_ours(fds, n)) return preload::libc().ppoll(fds, n, timeout, mask);
  if (is_given_badly(timeout) || is_given_badly(mask)) return -1;
  return do_poll(fds, n, timeout, mask);
}

VIREO_EXPORT int __ppoll_chk(pollfd* fds, nfds_t n, const timespec* timeout, const sigset_t* mask,
                             size_t bytes) {
  if (bytes / sizeof(*fds) < n) std::abort();
  return ppoll(fds, n, timeout, mask);
}

VIREO_EXPORT int select(int n, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  if (!may_be_ours(n, read, write, except))
    return preload::libc().select(n, read, write, except, timeout);
  if (is_given_badly(timeout)) return -1;
  if (timeout != nullptr && (timeout->tv_sec < 0 || timeout->tv_usec < 0)) {
    errno = EINVAL;
    return -1;
  }
  // Linux stores the remaining time in `timeout`.
  const Instant start = Clock::now_from_kernel();
  const int r = call(Restart::kNever, {}, [&] {
    return sock::select(n, read, write, except, Timeout(timeout).get(), nullptr);
  });
  if (timeout != nullptr && is_writable(timeout)) {
    const Duration asked = Duration::s(timeout->tv_sec) + Duration::us(timeout->tv_usec);
    const Duration left = std::max(asked - (Clock::now_from_kernel() - start), Duration());
    *timeout = {left.s(), left.us() % 1'000'000};
  }
  return r;
}

VIREO_EXPORT int pselect(int n, fd_set* read, fd_set* write, fd_set* except,
                         const timespec* timeout, const sigset_t* mask) {
  if (!may_be_ours(n, read, write, except))
    return preload::libc().pselect(n, read, write, except, timeout, mask);
  if (is_given_badly(timeout) || is_given_badly(mask)) return -1;
  return call(Restart::kNever, {},
              [&] { return sock::select(n, read, write, except, timeout, mask); });
}

VIREO_EXPORT int epoll_create1(int flags) noexcept {
  Stack* s = get_stack();
  if (s == nullptr) return preload::libc().epoll_create1(flags);
  return call(Restart::kNever, {}, [&] { return sock::epoll_create(*s, flags); });
}

VIREO_EXPORT int epoll_create(int size) noexcept {
  if (size <= 0) {
    errno = EINVAL;
    return -1;
  }
  return epoll_create1(0);
}

VIREO_EXPORT int epoll_ctl(int epoll, int op, int fd, epoll_event* event) noexcept {
  const Handle h = fd_table().find(epoll);
  if (!h) {
    sock::note_elsewhere(fd);
    return preload::libc().epoll_ctl(epoll, op, fd, event);
  }
  return call(Restart::kNever, h, [&] { return sock::epoll_ctl(h, op, fd, event); });
}

VIREO_EXPORT int epoll_pwait2(int epoll, epoll_event* events, int max, const timespec* timeout,
                              const sigset_t* mask) {
  const Handle h = fd_table().find(epoll);
  if (!h) {
    if (real().epoll_pwait2 != nullptr)
      return real().epoll_pwait2(epoll, events, max, timeout, mask);
    errno = ENOSYS;
    return -1;
  }
  if (max <= 0) {
    errno = EINVAL;
    return -1;
  }
  if (is_given_badly(timeout) || is_given_badly(mask)) return -1;
  return call(Restart::kNever, h, [&] {
    return sock::epoll_wait(h, {events, static_cast<size_t>(max)}, timeout, mask);
  });
}

VIREO_EXPORT int epoll_pwait(int epoll, epoll_event* events, int max, int timeout_ms,
                             const sigset_t* mask) {
  if (!fd_table().find(epoll))
    return preload::libc().epoll_pwait(epoll, events, max, timeout_ms, mask);
  return epoll_pwait2(epoll, events, max, Timeout(timeout_ms).get(), mask);
}

VIREO_EXPORT int epoll_wait(int epoll, epoll_event* events, int max, int timeout_ms) {
  if (!fd_table().find(epoll)) return preload::libc().epoll_wait(epoll, events, max, timeout_ms);
  return epoll_pwait2(epoll, events, max, Timeout(timeout_ms).get(), nullptr);
}

}  // extern "C"
