// The counters of a process and of its sockets (core/stats_layout.h), in shared memory that
// vireo-stat can read, or in private memory where that cannot be made.
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
  /// Both outlive it.
  Counters(const Settings& s, const std::string& program) : settings_(s), program_(program) {}
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;
  ~Counters();

  /// Made at the first call.
  StatsLayout& all();
  /// Null: nothing was counted yet.
  const StatsLayout* if_any() const { return shown_.load(std::memory_order_acquire); }

  /// A free slot, or unlisted() when all are taken. Give it back with put(), which adds its
  /// counters to those of closed sockets; it stays readable until it is taken again.
  SocketStats& take(int proto, int family, int fd);
  void put(SocketStats& s);
  /// The slot of all sockets that have none of their own.
  SocketStats& unlisted() { return unlisted_; }

  void count_carried();
  /// Warns once a process of what an operator can cure.
  void count_kernel(const Refusal& why);

  /// VMA_STATS_FILE is written once a process. @return it was not before.
  bool begin_file(pid_t process) {
    return written_.exchange(process, std::memory_order_relaxed) != process;
  }
  /// The exec has failed before which they were written: they are to be written once more.
  void forget_file() noexcept { written_.store(0, std::memory_order_relaxed); }

  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.lock(); }
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  /// Those in shared memory are the parent's: the child counts for itself.
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS;

 private:
  void map() VIREO_REQUIRES(lock_);

  const Settings& settings_;
  const std::string& program_;
  Lock lock_;
  int fd_ VIREO_GUARDED_BY(lock_) =
      -1;  ///< -1: no memfd was to be had, the counters are ours alone
  StatsLayout* all_ VIREO_GUARDED_BY(lock_) = nullptr;
  std::atomic<StatsLayout*> shown_{nullptr};  ///< the same
  SocketStats unlisted_;
  uint32_t next_slot_ VIREO_GUARDED_BY(lock_) = 0;  ///< where a free one is looked for first
  std::atomic<bool> warned_{false};
  std::atomic<pid_t> written_{0};  ///< the process that wrote them last
};

}  // namespace vireo
