// The set of Vireo's own descriptors, one bit each. A program that closes descriptors it did not
// open (daemons, close_range) must not close ours, and the child of a fork must close its copies,
// or a device would outlive the parent that opened it. UniqueFd maintains the bits; descriptors
// that a library holds for us (libbpf) are added explicitly. Owner: process. Thread: any; a query
// is one load.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace vireo {

inline constexpr uint32_t kMaxOwnFds = 1U << 20;
inline constinit std::atomic<uint64_t> g_own_fds[kMaxOwnFds / 64]{};

inline void add_own_fd(int fd) noexcept {
  if (static_cast<uint32_t>(fd) < kMaxOwnFds)
    g_own_fds[fd / 64].fetch_or(uint64_t{1} << (fd % 64), std::memory_order_relaxed);
}
/// Call before it is closed or given away: afterwards the number may be reused.
inline void remove_own_fd(int fd) noexcept {
  if (static_cast<uint32_t>(fd) < kMaxOwnFds)
    g_own_fds[fd / 64].fetch_and(~(uint64_t{1} << (fd % 64)), std::memory_order_relaxed);
}
inline bool is_own_fd(int fd) noexcept {
  return static_cast<uint32_t>(fd) < kMaxOwnFds &&
         (g_own_fds[fd / 64].load(std::memory_order_relaxed) >> (fd % 64) & 1) != 0;
}
/// Our lowest descriptor at or above `from`, kMaxOwnFds if there is none.
inline uint32_t next_own_fd(uint32_t from) noexcept {
  for (uint32_t word = from / 64; word < kMaxOwnFds / 64; ++word) {
    uint64_t bits = g_own_fds[word].load(std::memory_order_relaxed);
    if (word == from / 64) bits &= ~uint64_t{0} << (from % 64);
    if (bits != 0) return word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits));
  }
  return kMaxOwnFds;
}
/// In the child of a fork: closes our copies. Their owners must not use them any more.
inline void close_own_fds() noexcept {
  for (uint32_t word = 0; word < kMaxOwnFds / 64; ++word)
    for (uint64_t bits = g_own_fds[word].exchange(0, std::memory_order_relaxed); bits != 0;
         bits &= bits - 1)
      ::syscall(SYS_close, static_cast<int>(word * 64) + __builtin_ctzll(bits));
}

}  // namespace vireo
