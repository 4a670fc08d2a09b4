// Policy routing rules (RTM_NEWRULE; linux/fib_rules.h, ip-rule(8)).
// Owner: the snapshot that contains the table. Thread: any; a published table never changes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/address.h"
#include "core/types.h"

namespace vireo::net {

enum class RuleAction : uint8_t { kTable, kGoto, kNop, kBlackhole, kUnreachable, kProhibit };

struct PortRange {
  uint16_t from = 0;
  uint16_t to = 0;  ///< 0: any port
  bool operator==(const PortRange&) const = default;
};

struct Rule {
  bool v6 = false;
  uint32_t priority = 0;  ///< lower is evaluated first
  RuleAction action = RuleAction::kTable;
  uint32_t table = 0;
  uint32_t goto_priority = 0;
  bool invert = false;  ///< "not"
  IpAddr from{}, to{};
  uint8_t from_len = 0, to_len = 0;  ///< 0: any
  std::string iif{}, oif{};          ///< empty: any. For output the input interface is "lo".
  uint32_t mark = 0, mark_mask = 0;
  uint8_t tos = 0;       ///< 0: any
  uint8_t ip_proto = 0;  ///< 0: any
  PortRange sport{}, dport{};
  bool has_uid = false;
  uint32_t uid_from = 0, uid_to = 0;
  int32_t suppress_prefix_len = -1;  ///< a match of at most so many bits is ignored; -1: off
  bool l3mdev = false;               ///< uses the table of the VRF
  bool foreign = false;              ///< has a condition unknown here: only the kernel can answer

  bool operator==(const Rule&) const = default;
};

/// Both families, in the kernel's order within each.
struct Rules {
  std::vector<Rule> all;
  bool operator==(const Rules&) const = default;
};

}  // namespace vireo::net
