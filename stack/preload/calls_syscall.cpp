// libc's syscall(2). Calls that make a process or a ring, or change user or namespace, are treated
// as libc's functions of that name (calls_process.cpp, calls_uring.cpp, calls_identity.cpp); so are
// calls on a socket or an epoll of Vireo's (libuv closes by it). The bare instruction (liburing.a,
// Go) is not seen. The library's own uses of syscall() go to the kernel: the linker maps them to
// __wrap_syscall.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstring>
#include <optional>

#include "core/clock.h"
#include "core/own_fds.h"
#include "core/user_memory.h"
#include "stack/preload/aio.h"
#include "stack/preload/note_ring.h"
#include "stack/preload/process_stack.h"
#include "stack/preload/real.h"
#include "stack/preload/signals.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/multiplex.h"
#include "stack/sock/net_namespace.h"
#include "stack/sock/owner.h"
#include "stack/sock/shadow_reserve.h"

using namespace vireo;           // NOLINT: the C names below live in no namespace
using namespace vireo::preload;  // NOLINT

namespace {

/// Makes the system call as libc does, but without libc: the caller may be an allocator.
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
  constexpr long kMaxErrno = 4095;
  if (r < 0 && r >= -kMaxErrno) {
    errno = static_cast<int>(-r);
    return -1;
  }
  return r;
}

bool is_ours(long fd) noexcept { return static_cast<bool>(fd_table().find(static_cast<int>(fd))); }

constexpr size_t kMaskBytes = NSIG / 8;  // the kernel's size, smaller than libc's

/// A signal mask in the kernel's size.
class Mask {
 public:
  Mask(long at, size_t bytes) noexcept : given_(at != 0) {
    sigemptyset(&set_);
    if (!given_) return;
    if (bytes != kMaskBytes)
      error_ = EINVAL;
    else if (!is_readable(reinterpret_cast<const void*>(at), kMaskBytes))
      error_ = EFAULT;
    else
      std::memcpy(&set_, reinterpret_cast<const void*>(at), kMaskBytes);
  }
  explicit operator bool() const noexcept { return error_ == 0; }
  long refused() const noexcept {
    errno = error_;
    return -1;
  }
  const sigset_t* get() const noexcept { return given_ ? &set_ : nullptr; }

 private:
  bool given_;
  int error_ = 0;
  sigset_t set_;
};

/// Unlike libc's functions, the system calls store the remaining time, if they can.
template <class Call>
long timed(timespec* timeout, Call&& make) noexcept {
  if (timeout == nullptr) return make(nullptr);
  if (!is_readable(timeout)) {
    errno = EFAULT;
    return -1;
  }
  const timespec asked = *timeout;
  const Instant start = Clock::now_from_kernel();
  const long r = make(&asked);
  const int saved = errno;
  const Duration whole = Duration::s(asked.tv_sec) + Duration::ns(asked.tv_nsec);
  const Duration left = std::max(whole - (Clock::now_from_kernel() - start), Duration());
  if (is_writable(timeout)) *timeout = {left.ns() / 1'000'000'000, left.ns() % 1'000'000'000};
  errno = saved;
  return r;
}

bool polls_ours(const long (&a)[6]) noexcept {
  return process_stack() != nullptr &&
         sock::concerns_us({reinterpret_cast<pollfd*>(a[0]), static_cast<unsigned>(a[1])});
}

long ppoll_by_number(const long (&a)[6]) noexcept {
  const Mask mask(a[3], static_cast<size_t>(a[4]));
  if (!mask) return mask.refused();
  return timed(reinterpret_cast<timespec*>(a[2]), [&](const timespec* t) {
    return ::ppoll(reinterpret_cast<pollfd*>(a[0]), static_cast<nfds_t>(a[1]), t, mask.get());
  });
}

bool selects_ours(const long (&a)[6]) noexcept {
  const auto set = [&](int i) { return reinterpret_cast<fd_set*>(a[i]); };
  return process_stack() != nullptr &&
         sock::concerns_us(static_cast<int>(a[0]), set(1), set(2), set(3));
}

long pselect_by_number(const long (&a)[6]) noexcept {
  struct Given {  // one argument more than a system call can have
    long mask;
    size_t bytes;
  } given{};
  if (a[5] != 0) {
    const auto* const at = reinterpret_cast<const Given*>(a[5]);
    if (!is_readable(at)) {
      errno = EFAULT;
      return -1;
    }
    given = *at;
  }
  const Mask mask(given.mask, given.bytes);
  if (!mask) return mask.refused();
  const auto set = [&](int i) { return reinterpret_cast<fd_set*>(a[i]); };
  return timed(reinterpret_cast<timespec*>(a[4]), [&](const timespec* t) {
    return ::pselect(static_cast<int>(a[0]), set(1), set(2), set(3), t, mask.get());
  });
}

/// Copies from and to the program's memory through the kernel, because the fault handlers may not
/// be installed yet. @return false: not accessible.
bool copy_in(void* to, long from, size_t n) noexcept {
  const iovec here{to, n};
  const iovec there{reinterpret_cast<void*>(from), n};
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(n);
}
bool copy_back(long to, void* from, size_t n) noexcept {
  const iovec here{from, n};
  const iovec there{reinterpret_cast<void*>(to), n};
  return ::process_vm_writev(::getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(n);
}

/// rt_sigaction(2). Empty: the kernel serves calls that libc would not pass on.
std::optional<long> set_action_by_number(const long (&a)[6]) noexcept {
  struct KernelAction {
    sighandler_t handler;
    unsigned long flags;
    void (*restorer)();
    uint64_t mask;
  };
  static_assert(sizeof(KernelAction::mask) == kMaskBytes);
  const auto signo = static_cast<int>(a[0]);
  sigset_t all;
  sigfillset(&all);  // without the signals that libc reserves
  if (signo <= 0 || signo >= NSIG || sigismember(&all, signo) != 1 || a[3] != kMaskBytes) return {};
  KernelAction wanted{};
  if (a[1] != 0 && !copy_in(&wanted, a[1], sizeof wanted)) return {};
  struct sigaction now{};
  struct sigaction before{};
  now.sa_handler = wanted.handler;
  now.sa_flags = static_cast<int>(wanted.flags);
  std::memcpy(&now.sa_mask, &wanted.mask, kMaskBytes);
  if (set_action(signo, a[1] != 0 ? &now : nullptr, &before) != 0) return -1;
  KernelAction was{before.sa_handler, static_cast<unsigned>(before.sa_flags), before.sa_restorer,
                   0};
  std::memcpy(&was.mask, &before.sa_mask, kMaskBytes);
  if (a[2] == 0 || copy_back(a[2], &was, sizeof was)) return 0;
  errno = EFAULT;
  return -1;
}

/// Serves a call on a descriptor of Vireo's by libc's function of that name. Empty: the kernel's;
/// then no libc function was called, because an allocator may call this from within dlsym(3).
std::optional<long> serve(long number, const long (&a)[6]) noexcept {
  const auto fd = static_cast<int>(a[0]);
  const auto count = static_cast<size_t>(a[2]);
  const auto flags = static_cast<int>(a[3]);
  const auto to = [](long word) { return reinterpret_cast<void*>(word); };
  const auto name = [](long word) { return reinterpret_cast<sockaddr*>(word); };
  const auto length = [](long word) { return reinterpret_cast<socklen_t*>(word); };
  switch (number) {  // first those with no descriptor as first argument, or with several
    case SYS_close:  // Vireo's own descriptors must stay open
      if (!is_ours(fd) && !is_own_fd(fd)) return {};
      return ::close(fd);
    case SYS_rt_sigaction:
      return set_action_by_number(a);
    case SYS_io_submit: {
      const long n = give_to_aio(a[1], reinterpret_cast<iocb**>(a[2]));
      if (n == a[1]) return {};
      if (n != 0) return call_kernel(number, a[0], n, a[2], 0, 0, 0);
      errno = EINVAL;
      return -1;
    }
#ifdef SYS_poll
    case SYS_poll: {
      if (!polls_ours(a)) return {};
      return ::poll(static_cast<pollfd*>(to(a[0])), static_cast<nfds_t>(a[1]),
                    static_cast<int>(a[2]));
    }
#endif
    case SYS_ppoll:
      return polls_ours(a) ? ppoll_by_number(a) : std::optional<long>();
#ifdef SYS_select
    case SYS_select:
      if (!selects_ours(a)) return {};
      return ::select(fd, static_cast<fd_set*>(to(a[1])), static_cast<fd_set*>(to(a[2])),
                      static_cast<fd_set*>(to(a[3])), static_cast<timeval*>(to(a[4])));
#endif
    case SYS_pselect6:
      return selects_ours(a) ? pselect_by_number(a) : std::optional<long>();
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
    case SYS_preadv2:  // the offset is in two words; the first holds all of it
      return ::preadv2(fd, static_cast<iovec*>(to(a[1])), static_cast<int>(a[2]), a[3],
                       static_cast<int>(a[5]));
    case SYS_pwritev2:
      return ::pwritev2(fd, static_cast<iovec*>(to(a[1])), static_cast<int>(a[2]), a[3],
                        static_cast<int>(a[5]));
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
    case SYS_epoll_pwait2: {
      const Mask mask(a[4], static_cast<size_t>(a[5]));
      if (!mask) return mask.refused();
      auto* const events = static_cast<epoll_event*>(to(a[1]));
      if (number == SYS_epoll_pwait)
        return ::epoll_pwait(fd, events, static_cast<int>(a[2]), flags, mask.get());
      return ::epoll_pwait2(fd, events, static_cast<int>(a[2]), static_cast<timespec*>(to(a[3])),
                            mask.get());
    }
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

/// The flags of clone(2). Those of clone3 are in memory, which may not be readable. nullopt:
/// unknown. `stack`: the child gets its own.
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
  if (!copy_in(&given, a[0], sizeof given)) return {};
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
    Owner::memory_is_shared();  // it may be
  // With a stack of its own the child does not return here.
  if (!flags || has_stack || !must_tell_fork(*flags)) {
    if (!flags || (*flags & CLONE_THREAD) == 0) note_unknown_child();
    return make();
  }
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
    ShadowReserve::users_differ();  // the system calls change one thread only
  return number == SYS_io_uring_setup ? note_ring(r) : r;
}

}  // extern "C"
