// The kernel sockets beneath accepted connections. There is one for each family, unconnected, and
// each connection has a dup of it, which reserves its number. Option values are tried on it.
// Owner: Stack. Thread: any. Guard: lock(), a leaf.
#pragma once

#include "core/fd.h"
#include "core/lock.h"
#include "core/result.h"

namespace vireo {

class Placeholders {
 public:
  /// A new descriptor that reserves a number. Errors: EMFILE and those of socket(2).
  Result<int> take_number(int family, bool cloexec);

  /// Held while an option is set on a placeholder and read back.
  Lock& lock() noexcept { return lock_; }

  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.lock(); }
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  /// Closes the copies of the parent's descriptors.
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS {
    lock_.reset_after_fork();
    v4_.reset();
    v6_.reset();
  }

 private:
  Lock lock_;
  UniqueFd v4_ VIREO_GUARDED_BY(lock_);
  UniqueFd v6_ VIREO_GUARDED_BY(lock_);
};

}  // namespace vireo
