#include "core/sleep.h"

#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "core/high_fd.h"

namespace vireo {
namespace {

/// Preserves errno: only the C boundary writes it.
class ErrnoKeeper {
 public:
  ErrnoKeeper() : saved_(errno) {}
  ~ErrnoKeeper() { errno = saved_; }

 private:
  int saved_;
};

timespec to_timespec(Duration d) {
  if (d < Duration()) d = Duration();
  return {d.s(), d.ns() % 1'000'000'000};
}

}  // namespace

Wake futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, Duration timeout) noexcept {
  ErrnoKeeper keep;
  const timespec ts = to_timespec(timeout);
  const bool bounded = timeout != Duration::max();
  if (syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, bounded ? &ts : nullptr, nullptr,
              0) == 0)
    return Wake::kWoken;
  if (errno == ETIMEDOUT) return Wake::kTimeout;
  return errno == EINTR ? Wake::kInterrupted : Wake::kWoken;  // EAGAIN: the word had changed
}

int futex_wake(const std::atomic<uint32_t>& word, int count) noexcept {
  ErrnoKeeper keep;
  const long n = syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
  return n < 0 ? 0 : static_cast<int>(n);
}

Result<EventFd> EventFd::create() noexcept {
  ErrnoKeeper keep;
  const long fd = syscall(SYS_eventfd2, 0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) return fail_errno("eventfd");
  return EventFd(UniqueFd(to_high_number(static_cast<int>(fd))));
}

void EventFd::signal() noexcept {
  ErrnoKeeper keep;
  const uint64_t one = 1;
  // EAGAIN: the counter is at its maximum, so the descriptor is readable all the same.
  (void)!syscall(SYS_write, fd_.get(), &one, sizeof one);
}

bool EventFd::drain() noexcept {
  ErrnoKeeper keep;
  uint64_t count = 0;
  return syscall(SYS_read, fd_.get(), &count, sizeof count) == sizeof count;
}

}  // namespace vireo
