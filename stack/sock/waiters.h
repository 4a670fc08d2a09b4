// Eventfds on which threads sleep. One is lent for a sleep and kept for the next.
// Owner: Stack. Thread: any. Guard: its own lock, a leaf.
#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/lock.h"
#include "core/result.h"
#include "core/sleep.h"
#include "stack/sock/readiness.h"

namespace vireo {

/// What a sleeping thread waits on.
struct Waiter {
  Watcher watcher;  ///< notify is set to signal `event`
  EventFd event;
  Waiter* next = nullptr;
};

class Waiters {
 public:
  Waiters() = default;
  Waiters(const Waiters&) = delete;
  Waiters& operator=(const Waiters&) = delete;
  ~Waiters();

  /// Errors: ENOMEM, EMFILE and others of eventfd(2).
  Result<Waiter*> take();
  /// It may be signalled after its last sleep: then the next one ends at once.
  void put(Waiter& w);

  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.lock(); }
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  /// The existing ones belong to the parent; their descriptors are closed elsewhere.
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS {
    lock_.reset_after_fork();
    free_ = nullptr;
  }

 private:
  Lock lock_;
  Waiter* free_ VIREO_GUARDED_BY(lock_) = nullptr;
};

/// Replaces a sleep that needs an eventfd when no descriptor is free (EMFILE): checking once per
/// millisecond is late, but leaves the processor to others.
inline void nap_without_event() noexcept {
  constexpr timespec kNap{0, 1'000'000};
  ::syscall(SYS_nanosleep, &kNap, nullptr);
}

}  // namespace vireo
