// Kernel sockets that lay beneath closed connections, for those to come: to make one and to end it
// costs more than all that Vireo does for a short connection. Each is as socket(2) made it (File::
// made_in), and has no other number, so that nobody can tell it from a new one; what the kernel
// looks at in its maker is the same (the user, the network namespace; a child of fork(2) has none
// of them).
// Owner: Stack. Thread: any; a leaf lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "core/fd.h"
#include "core/lock.h"
#include "stack/sock/file.h"

namespace vireo {

class SpareShadows {
 public:
  /// TCP sockets of both families, or a sixteenth of RLIMIT_NOFILE. More are closed as ever.
  static constexpr unsigned kMost = 64;

  /// A number, the lowest that is free, for a new TCP socket of the family. @return -1: none is
  /// there, or no number is.
  int take(int family, bool nonblock, bool cloexec) noexcept;
  /// Takes the socket beneath a number that is closed with it, if it is pristine still and of this
  /// age. @return false: nothing was done.
  bool put(Handle h) noexcept;

  // Async-signal-safe.
  /// The process has another user, effective or for files.
  static void user_changed() noexcept { g_users.fetch_add(1, std::memory_order_relaxed); }
  /// One thread of it has: from now on nothing is lent.
  static void users_differ() noexcept { g_users_differ.store(true, std::memory_order_relaxed); }

  // A child has all numbers of its parent: what lies beneath is not one process's any more. Nor is
  // it one user's, who may change: with either a new age begins.
  /// Before a socket is made: the age it is of, 1 to kLastAge; 0: it can be no spare.
  uint8_t age() noexcept;
  /// When its File is in the table: it is pristine, if that is the age still.
  void set_pristine(File& f, uint8_t age) noexcept;
  /// Closes them all. Files that are there are touched next.
  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS;
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.reset_after_fork(); }

 private:
  struct Spare {
    UniqueFd fd;
    int family = 0;
    bool nonblock = false;
    bool nodelay = false;
  };

  void begin_age() noexcept VIREO_REQUIRES(lock_);

  inline static constinit std::atomic<uint32_t> g_users{0};  ///< how often there was another
  inline static constinit std::atomic<bool> g_users_differ{false};

  Lock lock_;
  std::array<Spare, kMost> spares_ VIREO_GUARDED_BY(lock_);
  unsigned count_ VIREO_GUARDED_BY(lock_) = 0;
  static constexpr uint8_t kLastAge = File::kNoDelay - 1;  ///< after it the first comes again

  uint8_t age_ VIREO_GUARDED_BY(lock_) = 1;
  unsigned most_ VIREO_GUARDED_BY(lock_) = 0;
  uint32_t users_ VIREO_GUARDED_BY(lock_) = 0;  ///< g_users of this age
  int least_ VIREO_GUARDED_BY(lock_) = -1;      ///< number of the first ever kept
};

}  // namespace vireo
