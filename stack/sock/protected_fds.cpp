// Numbers of Vireo's own descriptors (core/high_fd.h).
#include "stack/sock/protected_fds.h"

#include "core/high_fd.h"

namespace vireo {

int protect_fd(int fd) noexcept {
  if (fd < 0) return fd;
  fd = to_high_number(fd);
  add_own_fd(fd);
  return fd;
}

void unprotect_fd(int fd) noexcept { remove_own_fd(fd); }

bool is_protected_fd(int fd) noexcept { return is_own_fd(fd); }

}  // namespace vireo
