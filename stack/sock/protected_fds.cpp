// Our own descriptors stand at high numbers, out of the way of programs that count theirs.
#include <sys/resource.h>

#include <algorithm>

#include "core/own_fds.h"
#include "stack/sock/process.h"

namespace vireo {
namespace {

// Above what programs that count descriptors use, and low enough that the kernel's table stays
// small.
int high_number() noexcept {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 4 * 3, 3000));
}

}  // namespace

int protect_fd(int fd) noexcept {
  if (fd < 0) return fd;
  const int high = libc().fcntl(fd, F_DUPFD_CLOEXEC, high_number());
  if (high >= 0) {
    libc().close(fd);
    fd = high;
  }
  add_own_fd(fd);
  return fd;
}

void unprotect_fd(int fd) noexcept { remove_own_fd(fd); }

bool is_protected_fd(int fd) noexcept { return is_own_fd(fd); }

}  // namespace vireo
