#include "core/high_fd.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace vireo {

// Above the numbers that programs use, and low enough to keep the kernel's table small.
int high_number() noexcept {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 4 * 3, 3000));
}

int to_high_number(int fd) noexcept {
  if (fd < 0) return fd;
  const int saved = errno;
  const auto high = static_cast<int>(::syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, high_number()));
  if (high >= 0) ::syscall(SYS_close, fd);
  errno = saved;
  return high >= 0 ? high : fd;
}

}  // namespace vireo
