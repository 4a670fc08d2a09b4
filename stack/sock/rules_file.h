// The rules file (config/rules.h), read for the first socket.
// Owner: Stack. Thread: any. Guard: its own lock, a leaf.
#pragma once

#include <atomic>
#include <memory>

#include "config/rules.h"
#include "config/settings.h"
#include "core/lock.h"

namespace vireo {

class RulesFile {
 public:
  const Rules& rules(const Settings& s);

  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.lock(); }
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.reset_after_fork(); }

 private:
  Lock lock_;
  std::unique_ptr<Rules> rules_ VIREO_GUARDED_BY(lock_);
  std::atomic<const Rules*> read_{nullptr};  ///< = rules_, once read
};

}  // namespace vireo
