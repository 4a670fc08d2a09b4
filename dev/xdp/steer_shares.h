// The local ends that several members share: who shares each, who of them gets which SYNs, and of
// UDP copies. The program reads the latter (`sharers`, by buckets; `copies`) and the rule's value,
// which names the first sharer. Owner: made where it is used, over what Steering has. Thread: the
// holder of the lock of SteerCounts, except where said. If that one died, the rules and the
// members' bits are the truth.
#pragma once

#include <cstdint>
#include <span>

#include "core/result.h"
#include "dev/xdp/steer_ports.h"
#include "dev/xdp/steer_tables.h"

namespace vireo::xdp {

class SteerShares {
 public:
  SteerShares(SteerPorts& ports, const SteerTables& tables) : ports_(ports), tables_(tables) {}

  enum How : uint8_t {
    kSpread,  ///< TCP: each connection goes to one sharer
    kCopies,  ///< UDP: a copy of each frame goes to each, and the frame to the kernel
  };
  /// Makes `slot` a sharer of the rule; the first one adds it to the table. For copies it takes the
  /// place of a rule that another member has: that one's frames are the kernel's until it shares,
  /// too. Errors: EEXIST `slot` shares it already, or has another rule of the key; EBUSY another
  /// member has such a rule; ENOSPC.
  Result<void> add(const SteerRule& rule, unsigned slot, How how);
  /// Takes `slot` out of a shared rule. @return false: nobody else shares it; the caller removes
  /// the rule, and then calls forget(). Also without the lock: its holder may then undo part of it.
  bool leave(const SteerRule& rule, uint64_t value, unsigned slot) noexcept;
  /// The rule is gone: its number may be given again.
  void forget(uint64_t value) noexcept;
  /// Whether `slot` shares the rule. Also without the lock.
  bool has(uint64_t value, unsigned slot) const noexcept;

  /// Makes all follow from the rules and from who shares them, while frames arrive.
  void rebuild(std::span<const SharedRule> rules) noexcept;

 private:
  Result<void> start(const SteerRule& rule, unsigned slot, How how);
  void want_kernel(unsigned end, unsigned slot) noexcept;
  void spread(unsigned end, uint64_t members) noexcept;
  void appoint(const SteerRule& rule, uint64_t value) noexcept;
  std::atomic<uint64_t>& members_of(unsigned end) const noexcept;

  SteerPorts& ports_;
  const SteerTables tables_;
};

}  // namespace vireo::xdp
