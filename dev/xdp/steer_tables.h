// The steering program's tables of rules and of the host's further addresses: BPF maps that all
// members of a group share. Owner: Steering, which has the descriptors. Thread: any; the kernel
// makes each call atomic.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "core/address.h"
#include "core/result.h"
#include "dev/xdp/steer_rule.h"

namespace vireo::xdp {

struct SteerTables {
  int exact4 = -1, exact6 = -1, local4 = -1, local6 = -1;

  /// Errors: EEXIST, ENOSPC.
  Result<void> insert(const SteerRule& rule, uint64_t value) const;
  /// Changes the value in place; nothing if it is not there.
  void replace(const SteerRule& rule, uint64_t value) const noexcept;
  /// @return false: it was not there.
  bool erase(const SteerRule& rule) const noexcept;
  /// STEER_VALUE of the rule, or nothing.
  std::optional<uint64_t> find(const SteerRule& rule) const noexcept;
  /// Visits each rule that is there all the time, once or, if others change the tables meanwhile,
  /// more often. The visitor must change nothing. @return false: they changed too fast to see all.
  bool for_each(const std::function<void(const SteerRule&, uint64_t value)>& visit) const;

  void insert_address(const IpAddr& a) const noexcept;
  void erase_address(const IpAddr& a) const noexcept;
  void for_each_address(bool v4, const std::function<void(const IpAddr&)>& visit) const;

 private:
  int of(steer_kind kind) const;
};

}  // namespace vireo::xdp
