// The host's packet filter: a socket is not carried if the rules would keep packets from it. It
// stays with the kernel, which applies them.
// Owner: HostFilter is the Stack's, Verdicts a UDP socket's. Guards: named at each.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/address.h"
#include "core/carriage.h"
#include "core/lock.h"

namespace vireo {

class Stack;
namespace filter {
class Filter;
}

/// The rules, as far as they have a say in this process. Thread: any.
class HostFilter {
 public:
  HostFilter() noexcept;
  ~HostFilter();
  /// Before there is an engine: reads them.
  void open();
  void close() noexcept;
  /// Null: they have no say. Constant once there is an engine.
  filter::Filter* get() const noexcept { return filter_.get(); }

  /// Once a process: that the rules could not be read.
  void say_if_unread() noexcept {
    if (is_unread_.load(std::memory_order_relaxed)) [[unlikely]]
      say_unread();
  }
  /// The same of a later change.
  void say_if_unread_again() noexcept;
  /// A lasting copy of what a refusal says.
  const char* keep(const std::string& detail);

  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.lock(); }
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  /// It is the parent's: not closed, but left behind.
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS {
    lock_.reset_after_fork();
    (void)filter_.release();
  }

 private:
  void say_unread() noexcept;

  std::unique_ptr<filter::Filter> filter_;
  std::atomic<bool> is_unread_{false};  ///< and nobody has said so yet
  std::atomic<bool> said_unread_again_{false};
  Lock lock_;  ///< leaf
  std::set<std::string> details_ VIREO_GUARDED_BY(lock_);
};

/// What a socket is to be for, as far as the packet filter asks.
struct Passage {
  IpProto proto = IpProto::kTcp;
  Endpoint local = {};
  Endpoint remote = {};
  bool v6only = false;
  IfIndex interface{};  ///< the one that it is bound to, or its route's; 0: by its address
  bool begins_there = false, begins_here = false, is_established = false;
  bool operator==(const Passage&) const = default;
};

/// What the packet filter said of the last destinations of a socket. Guard: the engine's lock.
class Verdicts {
 public:
  /// @return whether it passes; nullopt: ask, and keep() the answer.
  std::optional<bool> find(const Passage& p, uint32_t generation) const noexcept;
  /// `generation`: of the rules, read before they were asked.
  void keep(const Passage& p, uint32_t generation, bool passes);

 private:
  static constexpr size_t kMax = 512;
  struct Verdict {
    Passage passage;
    uint32_t generation = 0;
    bool passes = false;
  };
  static size_t place_of(const Passage& p) noexcept;
  std::vector<Verdict> kept_;  ///< by place_of(); empty: nothing was asked yet
};

/// Is there anything to ask? Else passing costs nothing.
bool is_filtered(Stack& stack) noexcept;
/// Of the rules; others have another.
uint32_t rules_generation(Stack& stack) noexcept;
/// Refusals: kFilter. Walks through the rules: no engine's lock is held.
Carried<void> may_pass(Stack& stack, const Passage& p);
/// Asks once more if the rules have changed since they were of this `generation`, which was read
/// before may_pass(). In the lock of the engine that the flow is opened in: a change that comes
/// later finds the flow.
Carried<void> may_still_pass(Stack& stack, const Passage& p, uint32_t generation);
/// iptables-legacy does not tell of changes. Before may_pass(), where no engine's lock is held.
void look_at_filter(Stack& stack);

}  // namespace vireo
