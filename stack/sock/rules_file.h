// The rules file (config/rules.h), read for the first socket, and the rules that the program adds.
// Owner: Stack. Thread: any. Guard: its own lock, a leaf.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

#include "config/rules.h"
#include "config/settings.h"
#include "core/lock.h"

namespace vireo {

class RulesFile {
 public:
  const Rules& rules(const Settings& s);
  /// For sockets that are decided from now on: `line` comes before all others. @return false: it is
  /// no `use` line without an error.
  bool add_first(const Settings& s, std::string_view line);

  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.lock(); }
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.reset_after_fork(); }

 private:
  Lock lock_;
  const Rules& read(const Settings& s) VIREO_REQUIRES(lock_);
  /// The file's, and after it each that had one more. None is freed: others may be reading it.
  std::vector<std::unique_ptr<const Rules>> all_ VIREO_GUARDED_BY(lock_);
  std::atomic<const Rules*> read_{nullptr};  ///< the last of all_
};

}  // namespace vireo
