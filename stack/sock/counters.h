// The counters of a process and of its sockets (core/stats_layout.h), in shared memory that
// vireo-stat can read, or in private memory if shared memory cannot be made.
// Owner: Stack. Thread: any. Guard: its own lock, a leaf.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>

#include "config/settings.h"
#include "core/carriage.h"
#include "core/lock.h"
#include "core/stats_layout.h"

namespace vireo {

class Counters {
 public:
  /// Both arguments must outlive this object.
  Counters(const Settings& s, const std::string& program) : settings_(s), program_(program) {}
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;
  ~Counters();

  /// Made at the first call.
  StatsLayout& all();
  /// Null: nothing was counted yet.
  const StatsLayout* if_any() const { return shown_.load(std::memory_order_acquire); }

  /// A free slot, or unlisted() if all are taken. Return it with put(), which adds its counters to
  /// those of closed sockets; it stays readable until it is taken again.
  SocketStats& take(int proto, int family, int fd);
  void put(SocketStats& s);
  /// The slot shared by all sockets that have none of their own.
  SocketStats& unlisted() { return unlisted_; }

  void count_carried();
  /// Warns, once per process, of a reason that an operator can remove.
  void count_kernel(const Refusal& why);

  /// VMA_STATS_FILE is written once per process. @return false: `process` has written it.
  bool begin_file(pid_t process) {
    return written_.exchange(process, std::memory_order_relaxed) != process;
  }
  /// The exec that followed the write failed: the file is to be written again.
  void forget_file() noexcept { written_.store(0, std::memory_order_relaxed); }

  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.lock(); }
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  /// Counters in shared memory belong to the parent: the child gets its own.
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS;

 private:
  void map() VIREO_REQUIRES(lock_);

  const Settings& settings_;
  const std::string& program_;
  Lock lock_;
  int fd_ VIREO_GUARDED_BY(lock_) = -1;  ///< -1: no memfd could be made, the counters are private
  StatsLayout* all_ VIREO_GUARDED_BY(lock_) = nullptr;
  std::atomic<StatsLayout*> shown_{nullptr};  ///< = all_
  SocketStats unlisted_;
  uint32_t next_slot_ VIREO_GUARDED_BY(lock_) = 0;  ///< where the search for a free slot starts
  std::atomic<bool> warned_{false};
  std::atomic<pid_t> written_{0};  ///< the process that wrote the file last
};

}  // namespace vireo
