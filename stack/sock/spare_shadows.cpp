#include "stack/sock/spare_shadows.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/high_fd.h"
#include "stack/sock/libc.h"
#include "stack/sock/net_namespace.h"

namespace vireo {

int SpareShadows::take(int family, bool nonblock, bool cloexec) noexcept {
  const LockGuard guard(lock_);
  unsigned i = count_;
  while (i > 0 && spares_[i - 1].family != family) --i;
  if (i == 0) return -1;
  Spare& s = spares_[i - 1];
  const int fd = libc().fcntl(s.fd.get(), cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
  if (fd < 0) return -1;
  const int off = 0;
  if (s.nodelay) (void)libc().setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &off, sizeof off);
  if (s.nonblock != nonblock) (void)libc().fcntl(fd, F_SETFL, nonblock ? O_NONBLOCK : 0);
  s.fd.reset();
  std::swap(s, spares_[--count_]);
  return fd;
}

bool SpareShadows::put(Handle h) noexcept {
  const LockGuard guard(lock_);
  const uint8_t made_in = h->made_in.load(std::memory_order_relaxed);
  if ((made_in & ~File::kNoDelay) != age_) return false;
  if (least_ < 0) {
    least_ = high_number();
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    most_ = static_cast<unsigned>(std::min<rlim_t>(kMost, limit.rlim_cur / 16));
  }
  if (count_ >= most_) return false;
  const int high = libc().fcntl(h.fd, F_DUPFD_CLOEXEC, least_);
  if (high < 0) return false;
  spares_[count_++] = {UniqueFd(high), h->domain.load(std::memory_order_relaxed),
                       h->nonblock.load(std::memory_order_relaxed),
                       (made_in & File::kNoDelay) != 0};
  kernel::close(h.fd);
  return true;
}

uint8_t SpareShadows::age() noexcept {
  if (net_namespace::has_anyone_left() || g_users_differ.load(std::memory_order_relaxed))
      [[unlikely]]
    return 0;
  const LockGuard guard(lock_);
  const uint32_t users = g_users.load(std::memory_order_relaxed);
  if (users != users_) [[unlikely]] {
    begin_age();
    users_ = users;
  }
  return age_;
}

void SpareShadows::set_pristine(File& f, uint8_t age) noexcept {
  const LockGuard guard(lock_);
  if (age == age_) f.made_in.store(age, std::memory_order_relaxed);
}

void SpareShadows::fork_prepare() noexcept {
  lock_.lock();
  begin_age();
}

void SpareShadows::begin_age() noexcept {
  while (count_ > 0) spares_[--count_].fd.reset();
  age_ = age_ == kLastAge ? 1 : static_cast<uint8_t>(age_ + 1);
}

}  // namespace vireo
