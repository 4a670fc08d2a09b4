// Changes of user and network namespace, which a socket takes from its creator. After a change of
// user, no earlier kernel socket is lent (stack/sock/shadow_reserve.h); sockets of another
// namespace are the kernel's (stack/sock/net_namespace.h). The same by syscall(2):
// calls_syscall.cpp.
#include <sched.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "stack/preload/real.h"
#include "stack/sock/net_namespace.h"
#include "stack/sock/shadow_reserve.h"

using namespace vireo;           // NOLINT: the C names below live in no namespace
using namespace vireo::preload;  // NOLINT

namespace {

int then(int result, void (*tell)() noexcept) noexcept {
  tell();
  return result;
}

}  // namespace

extern "C" {

VIREO_EXPORT int setns(int fd, int type) noexcept {
  const auto call = [&] { return real().setns(fd, type); };
  return net_namespace::may_enter(type) ? net_namespace::leave_by(call) : call();
}
VIREO_EXPORT int unshare(int flags) noexcept {
  const auto call = [&] { return real().unshare(flags); };
  return (flags & CLONE_NEWNET) != 0 ? net_namespace::leave_by(call) : call();
}

VIREO_EXPORT int setuid(uid_t user) noexcept {
  return then(real().setuid(user), ShadowReserve::user_changed);
}
VIREO_EXPORT int seteuid(uid_t user) noexcept {
  return then(real().seteuid(user), ShadowReserve::user_changed);
}
VIREO_EXPORT int setreuid(uid_t user, uid_t effective) noexcept {
  return then(real().setreuid(user, effective), ShadowReserve::user_changed);
}
VIREO_EXPORT int setresuid(uid_t user, uid_t effective, uid_t kept) noexcept {
  return then(real().setresuid(user, effective, kept), ShadowReserve::user_changed);
}
VIREO_EXPORT int setfsuid(uid_t user) noexcept {
  return then(real().setfsuid(user), ShadowReserve::users_differ);  // per thread
}

}  // extern "C"
