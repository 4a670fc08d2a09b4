// A kernel file descriptor that closes itself. Owner: its holder. Thread: as the holder. Closing
// goes to the kernel directly, never through the interposed close(). While it is held, the program
// cannot close it (own_fds.h).
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "core/own_fds.h"

namespace vireo {

class UniqueFd {
 public:
  constexpr UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {
    if (fd >= 0) add_own_fd(fd);
  }
  UniqueFd(UniqueFd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& o) noexcept {
    if (this != &o) reset(o.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    if (fd_ >= 0) remove_own_fd(fd_);
    return std::exchange(fd_, -1);
  }
  void reset(int fd = -1) {
    if (fd_ >= 0) {
      remove_own_fd(fd_);
      ::syscall(SYS_close, fd_);
    }
    fd_ = fd;
    if (fd >= 0) add_own_fd(fd);
  }

 private:
  int fd_ = -1;
};

}  // namespace vireo
