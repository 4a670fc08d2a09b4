// Kernel calls beside those of dev/shm, made directly: a library may be preloaded that takes them
// for the program's own. Owner: none. Thread: any. Each is as in section 2 of the manual.
#pragma once

#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <span>

namespace vireo::kernel {

inline int eventfd() {
  return static_cast<int>(syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK));
}
inline int timerfd() {
  return static_cast<int>(syscall(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
}
inline void set_timer(int fd, long ns) {
  itimerspec t{};
  t.it_value.tv_nsec = ns;
  syscall(SYS_timerfd_settime, fd, 0, &t, nullptr);
}
inline bool read_counter(int fd) {
  uint64_t n;
  return syscall(SYS_read, fd, &n, sizeof n) == sizeof n;
}
inline void add_to_counter(int fd) {
  const uint64_t one = 1;
  syscall(SYS_write, fd, &one, sizeof one);
}
inline void wait_readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  syscall(SYS_poll, &p, 1, -1);
}

/// @return true: one of them is.
inline bool wait_readable(std::span<pollfd> fds, long ns) {
  timespec most{ns / 1'000'000'000, ns % 1'000'000'000};
  return syscall(SYS_ppoll, fds.data(), fds.size(), &most, nullptr, 0) > 0;
}
/// Wakes all who wait for it, in every process that shares it.
inline void wake_word(const std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}
/// @return true: one of them is not, or no more, what it was.
inline bool wait_words(std::span<futex_waitv> words, long ns) {
  timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += ns;  // less than a second
  until.tv_sec += until.tv_nsec / 1'000'000'000;
  until.tv_nsec %= 1'000'000'000;
  const long woken =
      syscall(SYS_futex_waitv, words.data(), words.size(), 0, &until, CLOCK_MONOTONIC);
  return woken >= 0 || errno == EAGAIN;
}

}  // namespace vireo::kernel
