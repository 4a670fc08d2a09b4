// Who the program is to the kernel: the user and the network namespace, which a socket has from
// whoever makes it. Those of before are lent to nobody after a change (stack/sock/spare_shadows.h),
// and another namespace is the kernel's (stack/sock/net_namespace.h). The same by syscall(2):
// calls_uring.cpp.
#include <sched.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "stack/preload/real.h"
#include "stack/sock/net_namespace.h"
#include "stack/sock/spare_shadows.h"

using namespace vireo;           // NOLINT: the C names below live in no namespace
using namespace vireo::preload;  // NOLINT

extern "C" {

VIREO_EXPORT int setns(int fd, int type) noexcept {
  if (type != 0 && (type & CLONE_NEWNET) == 0) return real().setns(fd, type);
  const net_namespace::Cookie from = net_namespace::here();
  const int result = real().setns(fd, type);
  if (result == 0) net_namespace::left(from);
  return result;
}
VIREO_EXPORT int unshare(int flags) noexcept {
  if ((flags & CLONE_NEWNET) == 0) return real().unshare(flags);
  const net_namespace::Cookie from = net_namespace::here();
  const int result = real().unshare(flags);
  if (result == 0) net_namespace::left(from);
  return result;
}

VIREO_EXPORT int setuid(uid_t user) noexcept {
  const int result = real().setuid(user);
  SpareShadows::user_changed();
  return result;
}
VIREO_EXPORT int seteuid(uid_t user) noexcept {
  const int result = real().seteuid(user);
  SpareShadows::user_changed();
  return result;
}
VIREO_EXPORT int setreuid(uid_t user, uid_t effective) noexcept {
  const int result = real().setreuid(user, effective);
  SpareShadows::user_changed();
  return result;
}
VIREO_EXPORT int setresuid(uid_t user, uid_t effective, uid_t kept) noexcept {
  const int result = real().setresuid(user, effective, kept);
  SpareShadows::user_changed();
  return result;
}
VIREO_EXPORT int setfsuid(uid_t user) noexcept {
  const int result = real().setfsuid(user);
  SpareShadows::users_differ();  // this thread's
  return result;
}

}  // extern "C"
