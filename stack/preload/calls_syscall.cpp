// syscall(2) of libc: who makes a process or a ring by it, becomes another user or goes elsewhere,
// is seen as by libc's function of that name (calls_process.cpp, calls_uring.cpp,
// calls_identity.cpp), and so is a call on a socket or an epoll of ours (libuv closes by it). The
// instruction itself (liburing.a, Go) goes by unseen. What the library itself asks by syscall()
// goes to the kernel: the linker gives it __wrap_syscall.
#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <optional>

#include "core/own_fds.h"
#include "stack/preload/note_ring.h"
#include "stack/preload/process_stack.h"
#include "stack/preload/real.h"
#include "stack/preload/signals.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/net_namespace.h"
#include "stack/sock/owner.h"
#include "stack/sock/spare_shadows.h"

using namespace vireo;           // NOLINT: the C names below live in no namespace
using namespace vireo::preload;  // NOLINT

namespace {

/// The kernel's call as libc makes it, and without libc: an allocator may be where this comes from.
long call_kernel(long number, long a, long b, long c, long d, long e, long f) noexcept {
  long r = number;
#if defined(__x86_64__)
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "+a"(r)
               : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  r = x0;
#else
#error "syscall(2) is not written for this processor"
#endif
  constexpr long kMostErrors = 4095;
  if (r < 0 && r >= -kMostErrors) {
    errno = static_cast<int>(-r);
    return -1;
  }
  return r;
}

bool is_ours(long fd) noexcept { return static_cast<bool>(fd_table().find(static_cast<int>(fd))); }

/// A call that names one of ours, by libc's function of that name. Empty: the kernel's, and libc is
/// not asked for anything: an allocator may call from within dlsym(3).
std::optional<long> serve(long number, const long (&a)[6]) noexcept {
  const auto fd = static_cast<int>(a[0]);
  const auto count = static_cast<size_t>(a[2]);
  const auto flags = static_cast<int>(a[3]);
  const auto to = [](long word) { return reinterpret_cast<void*>(word); };
  const auto name = [](long word) { return reinterpret_cast<sockaddr*>(word); };
  const auto length = [](long word) { return reinterpret_cast<socklen_t*>(word); };
  switch (number) {  // those that name no descriptor first, or more than one
    case SYS_close:  // of the library's own none is to be closed
      if (!is_ours(fd) && !is_own_fd(fd)) return {};
      return ::close(fd);
    case SYS_close_range:
      if (process_stack() == nullptr || real().close_range == nullptr) return {};
      return ::close_range(static_cast<unsigned>(a[0]), static_cast<unsigned>(a[1]),
                           static_cast<int>(a[2]));
    case SYS_dup3:
      if (!is_ours(a[0]) && !is_ours(a[1])) return {};
      return ::dup3(fd, static_cast<int>(a[1]), static_cast<int>(a[2]));
#ifdef SYS_dup2
    case SYS_dup2:
      if (!is_ours(a[0]) && !is_ours(a[1])) return {};
      return ::dup2(fd, static_cast<int>(a[1]));
#endif
    case SYS_sendfile:
      if (!is_ours(a[0]) && !is_ours(a[1])) return {};
      return ::sendfile(fd, static_cast<int>(a[1]), static_cast<off_t*>(to(a[2])),
                        static_cast<size_t>(a[3]));
    case SYS_splice:
      if (!is_ours(a[0]) && !is_ours(a[2])) return {};
      return ::splice(fd, static_cast<off64_t*>(to(a[1])), static_cast<int>(a[2]),
                      static_cast<off64_t*>(to(a[3])), static_cast<size_t>(a[4]),
                      static_cast<unsigned>(a[5]));
    default:
      if (!is_ours(a[0])) return {};
  }
  switch (number) {
    case SYS_dup:
      return ::dup(fd);
    case SYS_fcntl:
      return ::fcntl(fd, static_cast<int>(a[1]), a[2]);
    case SYS_ioctl:
      return ::ioctl(fd, static_cast<unsigned long>(a[1]), a[2]);
    case SYS_bind:
      return ::bind(fd, name(a[1]), static_cast<socklen_t>(a[2]));
    case SYS_listen:
      return ::listen(fd, static_cast<int>(a[1]));
    case SYS_accept:
      return ::accept(fd, name(a[1]), length(a[2]));
    case SYS_accept4:
      return ::accept4(fd, name(a[1]), length(a[2]), flags);
    case SYS_connect:
      return ::connect(fd, name(a[1]), static_cast<socklen_t>(a[2]));
    case SYS_shutdown:
      return ::shutdown(fd, static_cast<int>(a[1]));
    case SYS_getsockname:
      return ::getsockname(fd, name(a[1]), length(a[2]));
    case SYS_getpeername:
      return ::getpeername(fd, name(a[1]), length(a[2]));
    case SYS_getsockopt:
      return ::getsockopt(fd, static_cast<int>(a[1]), static_cast<int>(a[2]), to(a[3]),
                          length(a[4]));
    case SYS_setsockopt:
      return ::setsockopt(fd, static_cast<int>(a[1]), static_cast<int>(a[2]), to(a[3]),
                          static_cast<socklen_t>(a[4]));
    case SYS_read:
      return ::read(fd, to(a[1]), count);
    case SYS_write:
      return ::write(fd, to(a[1]), count);
    case SYS_readv:
      return ::readv(fd, static_cast<iovec*>(to(a[1])), static_cast<int>(a[2]));
    case SYS_writev:
      return ::writev(fd, static_cast<iovec*>(to(a[1])), static_cast<int>(a[2]));
    case SYS_recvfrom:
      return ::recvfrom(fd, to(a[1]), count, flags, name(a[4]), length(a[5]));
    case SYS_sendto:
      return ::sendto(fd, to(a[1]), count, flags, name(a[4]), static_cast<socklen_t>(a[5]));
    case SYS_recvmsg:
      return ::recvmsg(fd, static_cast<msghdr*>(to(a[1])), static_cast<int>(a[2]));
    case SYS_sendmsg:
      return ::sendmsg(fd, static_cast<msghdr*>(to(a[1])), static_cast<int>(a[2]));
    case SYS_recvmmsg:
      return ::recvmmsg(fd, static_cast<mmsghdr*>(to(a[1])), static_cast<unsigned>(a[2]), flags,
                        static_cast<timespec*>(to(a[4])));
    case SYS_sendmmsg:
      return ::sendmmsg(fd, static_cast<mmsghdr*>(to(a[1])), static_cast<unsigned>(a[2]), flags);
    case SYS_epoll_ctl:
      return ::epoll_ctl(fd, static_cast<int>(a[1]), static_cast<int>(a[2]),
                         static_cast<epoll_event*>(to(a[3])));
    case SYS_epoll_pwait:
      return ::epoll_pwait(fd, static_cast<epoll_event*>(to(a[1])), static_cast<int>(a[2]), flags,
                           static_cast<sigset_t*>(to(a[4])));
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
      return ::epoll_wait(fd, static_cast<epoll_event*>(to(a[1])), static_cast<int>(a[2]), flags);
#endif
    default:
      return {};
  }
}

bool makes_process(long number) noexcept {
#ifdef SYS_fork
  if (number == SYS_fork) return true;
#endif
  return number == SYS_clone || number == SYS_clone3;
}

/// clone(2)'s flags. Of clone3 they lie in memory, which the kernel may not find readable either.
/// Nothing: who knows. `stack`: the child was given one.
std::optional<unsigned long> flags_of(long number, const long (&a)[6], bool& stack) noexcept {
  stack = false;
  if (number == SYS_clone) {
    stack = a[1] != 0;
    return static_cast<unsigned long>(a[0]);
  }
  if (number != SYS_clone3) return SIGCHLD;
  struct {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
  } given;
  const iovec here{&given, sizeof given};
  const iovec there{reinterpret_cast<void*>(a[0]), sizeof given};
  if (::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) != sizeof given) return {};
  stack = given.stack != 0;
  return given.flags;
}

template <class Make>
long make_process(long number, const long (&a)[6], Make&& make) noexcept {
  bool has_stack = false;
  const auto flags = flags_of(number, a, has_stack);
  if (flags)
    Owner::before_clone(*flags);
  else
    Owner::memory_is_shared();  // perhaps
  // On a stack of its own a child does not come back here.
  if (!flags || has_stack || !must_tell_fork(*flags)) return make();
  before_fork();
  const long r = make();
  const int saved = errno;
  if (r == 0)
    after_fork_in_child();
  else
    after_fork_in_parent();
  errno = saved;
  return r;
}

}  // namespace

extern "C" {

[[gnu::visibility("hidden")]] long __wrap_syscall(long number, ...) noexcept {
  va_list v;
  va_start(v, number);
  long a[6];
  for (long& each : a) each = va_arg(v, long);
  va_end(v);
  return call_kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

VIREO_EXPORT long syscall(long number, ...) noexcept {
  va_list v;
  va_start(v, number);
  long a[6];
  for (long& each : a) each = va_arg(v, long);
  va_end(v);
  if (const auto served = serve(number, a)) return *served;
  const auto make = [&] { return call_kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]); };
  if (makes_process(number)) return make_process(number, a, make);
  if (number == SYS_execve || number == SYS_execveat) {
    before_exec();
    (void)make();
    return exec_failed();
  }
  const bool may_leave =
      (number == SYS_setns && net_namespace::may_enter(static_cast<int>(a[1]))) ||
      (number == SYS_unshare && (a[0] & CLONE_NEWNET) != 0);
  const long r = may_leave ? net_namespace::leave_by(make) : make();
  if (number == SYS_setuid || number == SYS_setreuid || number == SYS_setresuid ||
      number == SYS_setfsuid)
    SpareShadows::users_differ();  // the kernel's calls are of a thread
  return number == SYS_io_uring_setup ? note_ring(r) : r;
}

}  // extern "C"
