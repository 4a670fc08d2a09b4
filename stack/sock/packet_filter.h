// The host's packet filter: a socket whose packets the rules would drop is not carried. It stays on
// the kernel, which applies the rules.
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
#include "dev/device_group.h"

namespace vireo {

class Stack;
namespace filter {
class Filter;
}

/// The rules, as far as they apply to this process. Thread: any.
class HostFilter {
 public:
  HostFilter() noexcept;
  ~HostFilter();
  /// Reads them, before there is an engine. `group`: of the process, if it has one.
  void open(std::shared_ptr<DeviceGroup> group);
  void close() noexcept;
  /// Null: no rules apply. Constant once there is an engine.
  filter::Filter* get() const noexcept { return filter_.get(); }

  /// Logs, once per process, that the rules could not be read.
  void say_if_unread() noexcept {
    if (is_unread_.load(std::memory_order_relaxed)) [[unlikely]]
      say_unread();
  }
  /// The same for a later change of the rules.
  void say_if_unread_again() noexcept;
  /// A permanent copy of a refusal's text.
  const char* keep(const std::string& detail);

  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.lock(); }
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  /// The filter belongs to the parent: it is leaked, not closed.
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS {
    lock_.reset_after_fork();
    (void)filter_.release();
  }

 private:
  void say_unread() noexcept;

  std::unique_ptr<filter::Filter> filter_;
  std::atomic<bool> is_unread_{false};  ///< and not yet logged
  std::atomic<bool> said_unread_again_{false};
  Lock lock_;  ///< leaf
  std::set<std::string> details_ VIREO_GUARDED_BY(lock_);
};

/// The packets that a socket needs, as the packet filter distinguishes them.
struct Passage {
  IpProto proto = IpProto::kTcp;
  Endpoint local = {};
  Endpoint remote = {};
  bool v6only = false;
  IfIndex interface{};  ///< the bound or routed interface; 0: found by address
  bool begins_there = false, begins_here = false, is_established = false;
  bool operator==(const Passage&) const = default;
};

/// The packet filter's verdicts for a socket's last destinations. Guard: the engine's lock.
class Verdicts {
 public:
  /// @return whether it passes; nullopt: ask the filter, then keep() the answer.
  std::optional<bool> find(const Passage& p, uint32_t generation) const noexcept;
  /// `generation`: of the rules, read before the filter was asked.
  void keep(const Passage& p, uint32_t generation, bool passes);

 private:
  static constexpr size_t kMax = 512;
  struct Verdict {
    Passage passage;
    uint32_t generation = 0;
    bool passes = false;
  };
  static size_t place_of(const Passage& p) noexcept;
  std::vector<Verdict> kept_;  ///< by place_of(); empty: nothing asked yet
};

/// Whether there are rules to check; if not, a check costs nothing.
bool is_filtered(Stack& stack) noexcept;
/// Changes with the rules.
uint32_t rules_generation(Stack& stack) noexcept;
/// Refusals: kFilter. Evaluates the rules: no engine's lock may be held.
Carried<void> may_pass(Stack& stack, const Passage& p);
/// Checks again if the rules have changed since `generation`, which was read before may_pass().
/// Call it under the lock of the engine in which the flow is opened: a later change then finds the
/// flow.
Carried<void> may_still_pass(Stack& stack, const Passage& p, uint32_t generation);
/// iptables-legacy sends no notification of changes. Call before may_pass(), no engine's lock held.
void look_at_filter(Stack& stack);

}  // namespace vireo
