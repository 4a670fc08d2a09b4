// syscall(2) of libc: who makes a process or a ring by it, becomes another user or goes elsewhere,
// is seen as by libc's function of that name (calls_process.cpp, calls_uring.cpp,
// calls_identity.cpp). The instruction itself (liburing.a, Go) goes by unseen.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "stack/preload/note_ring.h"
#include "stack/preload/real.h"
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

}  // namespace

extern "C" {

VIREO_EXPORT long syscall(long number, ...) noexcept {
  va_list v;
  va_start(v, number);
  long a[6];
  for (long& each : a) each = va_arg(v, long);
  va_end(v);
  if (number == SYS_clone) Owner::before_clone(static_cast<unsigned long>(a[0]));
  if (number == SYS_clone3) Owner::memory_is_shared();  // perhaps: its flags are in memory
  const auto make = [&] { return call_kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]); };
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
