// libc's own functions, as pointers. The socket layer must not call the names that the preload
// layer interposes: the call would come back to Vireo. Preload fills the table by dlsym(RTLD_NEXT),
// tests with the plain functions.
// Owner: process. Thread: written once before any call, then constant.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/result.h"

// clang-format off
/// One entry per function. The table, and the code that fills it, are generated from this list.
#define VIREO_LIBC_CALLS(X)                                                                        \
  X(socket)                                                                                        \
  X(bind) X(listen) X(accept) X(accept4) X(connect) X(shutdown) X(close) X(dup) X(dup2) X(dup3)    \
      X(fcntl) X(ioctl) X(setsockopt) X(getsockopt) X(getsockname) X(getpeername) X(read) X(readv) \
          X(recv) X(recvfrom) X(recvmsg) X(recvmmsg) X(write) X(writev) X(send) X(sendto)          \
              X(sendmsg) X(sendmmsg) X(sendfile) X(pread) X(poll) X(ppoll) X(select) X(pselect)    \
                  X(epoll_create) X(epoll_create1) X(epoll_ctl) X(epoll_wait) X(epoll_pwait)
// clang-format on

namespace vireo {

struct Libc {
#define X(name) decltype(&::name) name = nullptr;
  VIREO_LIBC_CALLS(X)
#undef X
};

/// The process's table.
inline constinit Libc g_libc{};
inline const Libc& libc() { return g_libc; }

/// Converts -1 and errno of a libc call to an Err.
template <class T>
Result<T> from_libc(T returned, const char* where) {
  if (returned < 0) return fail_errno(where);
  return returned;
}

/// Non-blocking system calls without libc: they are no cancellation points (pthreads(7)), so locks
/// may be held. They return -1 and set errno, as libc's do.
namespace kernel {
inline int close(int fd) noexcept { return static_cast<int>(::syscall(SYS_close, fd)); }
inline int connect(int fd, const sockaddr* a, socklen_t n) noexcept {
  return static_cast<int>(::syscall(SYS_connect, fd, a, n));
}
inline ssize_t recvmsg(int fd, msghdr* m, int flags) noexcept {
  return ::syscall(SYS_recvmsg, fd, m, flags);
}
inline ssize_t sendmsg(int fd, const msghdr* m, int flags) noexcept {
  return ::syscall(SYS_sendmsg, fd, m, flags);
}
inline int recvmmsg(int fd, mmsghdr* all, unsigned n, int flags, timespec* timeout) noexcept {
  return static_cast<int>(::syscall(SYS_recvmmsg, fd, all, n, flags, timeout));
}
inline int sendmmsg(int fd, mmsghdr* all, unsigned n, int flags) noexcept {
  return static_cast<int>(::syscall(SYS_sendmmsg, fd, all, n, flags));
}
inline ssize_t recv(int fd, void* to, size_t n, int flags) noexcept {
  return ::syscall(SYS_recvfrom, fd, to, n, flags, nullptr, nullptr);
}
inline ssize_t send(int fd, const void* from, size_t n, int flags) noexcept {
  return ::syscall(SYS_sendto, fd, from, n, flags, nullptr, 0);
}
/// poll(2) and epoll_wait(2) with a timeout of zero.
inline int poll_now(pollfd* fds, nfds_t n) noexcept {
  const timespec none{};
  return static_cast<int>(::syscall(SYS_ppoll, fds, n, &none, nullptr, 0));
}
inline int epoll_now(int fd, epoll_event* out, int n) noexcept {
  return static_cast<int>(::syscall(SYS_epoll_pwait, fd, out, n, 0, nullptr, 0));
}
}  // namespace kernel

}  // namespace vireo
