// A rule in the format of the steering program's tables. Owner: none (values). Thread: any.
#pragma once

#include <cstdint>

#include "core/result.h"
#include "dev/device.h"
#include "dev/xdp/steer_layout.h"

namespace vireo::xdp {

/// A key of one of the four tables, and what follows from it.
struct SteerRule {
  steer_kind kind;
  uint32_t port_slot;  ///< STEER_PORT_SLOT of its local port
  union {              ///< keys are compared bytewise, padding included
    steer_exact4 exact4;
    steer_exact6 exact6;
    steer_local4 local4;
    steer_local6 local6;
  };

  bool is_v4() const { return kind == STEER_EXACT4 || kind == STEER_LOCAL4 || kind == STEER_WILD4; }
  bool is_exact() const { return kind == STEER_EXACT4 || kind == STEER_EXACT6; }
  /// The link that the rule names, or STEER_ANY_LINK.
  uint16_t link() const;
};

/// The member's slot in the value of a rule.
inline unsigned slot_of(uint64_t value) {
  return static_cast<unsigned>((value & ~STEER_MARKS) >> 32);
}

/// Errors: ENOTSUP the protocol, EINVAL an invalid key.
Result<SteerRule> rule_of(const FlowKey& key);

/// The rule of a key in a table. A key with port 0 is an address of the host, not a rule.
SteerRule rule_of(const steer_exact4& key);
SteerRule rule_of(const steer_exact6& key);
SteerRule rule_of(const steer_local4& key);
SteerRule rule_of(const steer_local6& key);

}  // namespace vireo::xdp
