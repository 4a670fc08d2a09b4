// The host's packet filter: read at start, and again when the kernel notifies of a change. Bound to
// the network namespace of the thread that opened it. iptables-legacy has no notifications: it is
// read again when a socket is about to be carried, at most once a second.
// Owner: Stack. Thread: any; process() the helper only. Of no use in the child of a fork.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/fd.h"
#include "core/lock.h"
#include "core/sleep.h"
#include "stack/filter/judge.h"
#include "stack/filter/legacy.h"
#include "stack/filter/sessions.h"
#include "stack/filter/traffic_control.h"

namespace vireo::filter {

class Filter {
 public:
  /// Reads the rules. rules()->unreadable has the errno of what could not be read. `is_own`: any
  /// thread.
  explicit Filter(IsOwnProgram is_own = {});
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  /// Readable when process() has work; -1: nothing to follow.
  int fd() const { return epoll_.get(); }
  /// Reads the rules again if the kernel notified of a change. @return they have changed.
  bool process();
  bool is_legacy_due(Instant now) const {
    return now.ns() - legacy_at_.load(std::memory_order_relaxed) >= kLookAtLegacy.ns();
  }
  /// Reads iptables-legacy, by a thread of that namespace. No engine's lock held.
  void look_at_legacy(Instant now);

  /// No rules at all: one load.
  bool is_empty() const { return is_empty_.load(std::memory_order_acquire); }
  std::shared_ptr<const Ruleset> rules() const;
  /// Changes after each change of the rules. Never 0.
  uint32_t generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  static constexpr Duration kLookAtLegacy = Duration::s(1);
  void open(std::optional<Session>& s, int protocol, const char* module, uint32_t group);
  void follow(int fd);
  bool was_told();
  void read();
  void publish();

  const IsOwnProgram is_own_;
  std::optional<Session> nft_, ipsec_, control_;
  int unopened_ = 0;  ///< errno of a session that could not be opened
  UniqueFd epoll_;
  EventFd legacy_changed_;

  mutable Lock lock_;  ///< leaf
  Lock reading_;       ///< serializes reading; before lock_
  std::vector<LegacyTable> legacy_;
  Ruleset read_;  ///< without iptables-legacy
  std::atomic<int64_t> legacy_at_{0};
  std::shared_ptr<const Ruleset> rules_ VIREO_GUARDED_BY(lock_);
  std::atomic<bool> is_empty_{true};
  std::atomic<uint32_t> generation_{0};
};

}  // namespace vireo::filter
