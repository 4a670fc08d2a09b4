// Makes a placeholder when the first connection of its family is accepted.
#include "stack/sock/placeholders.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "stack/sock/libc.h"
#include "stack/sock/net_namespace.h"
#include "stack/sock/protected_fds.h"

namespace vireo {

Result<int> Placeholders::take_number(int family, bool cloexec) {
  UniqueFd& place = family == AF_INET6 ? v6_ : v4_;
  {
    const LockGuard guard(lock_);
    if (!place) {
      if (!net_namespace::is_thread_home()) [[unlikely]]  // for this connection only
        return from_libc(libc().socket(family, SOCK_STREAM | (cloexec ? SOCK_CLOEXEC : 0), 0),
                         "placeholder");
      const int fd = libc().socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0) return fail_errno("placeholder");
      place.reset(protect_fd(fd));
    }
  }
  const int fd = libc().fcntl(place.get(), cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
  if (fd < 0) return fail_errno("accept");
  return fd;
}

}  // namespace vireo
