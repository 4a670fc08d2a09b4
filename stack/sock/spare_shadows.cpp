#include "stack/sock/spare_shadows.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "core/high_fd.h"
#include "stack/sock/libc.h"

namespace vireo {

int SpareShadows::take(int family, bool nonblock, bool cloexec) noexcept {
  const ControlGuard guard(lock_);
  if (count_ == 0) return -1;
  if (::geteuid() != user_) [[unlikely]] {
    clear_locked();
    return -1;
  }
  unsigned i = count_;
  while (i > 0 && spares_[i - 1].family != family) --i;
  if (i == 0) return -1;
  Spare& s = spares_[i - 1];
  const int fd = libc().fcntl(s.fd.get(), cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
  if (fd < 0) return -1;
  if (s.nonblock != nonblock) (void)libc().fcntl(fd, F_SETFL, nonblock ? O_NONBLOCK : 0);
  s.fd.reset();
  std::swap(s, spares_[--count_]);
  return fd;
}

bool SpareShadows::put(int fd, int family, bool nonblock,
                       const std::atomic<bool>& is_pristine) noexcept {
  const ControlGuard guard(lock_);
  if (count_ == kMost || !is_pristine.load(std::memory_order_relaxed)) return false;
  const uid_t user = ::geteuid();
  if (count_ != 0 && user != user_) [[unlikely]]
    clear_locked();
  user_ = user;
  if (least_ < 0) least_ = high_number();
  const int high = libc().fcntl(fd, F_DUPFD_CLOEXEC, least_);
  if (high < 0) return false;
  spares_[count_++] = {UniqueFd(high), family, nonblock};
  kernel::close(fd);
  return true;
}

void SpareShadows::set_pristine(std::atomic<bool>& is_pristine, uint32_t forks) noexcept {
  const ControlGuard guard(lock_);
  if (forks_.load(std::memory_order_relaxed) == forks)
    is_pristine.store(true, std::memory_order_relaxed);
}

void SpareShadows::fork_prepare() noexcept {
  lock_.lock();
  forks_.fetch_add(1, std::memory_order_relaxed);
  clear_locked();
}

void SpareShadows::clear_locked() noexcept {
  while (count_ > 0) spares_[--count_].fd.reset();
}

}  // namespace vireo
