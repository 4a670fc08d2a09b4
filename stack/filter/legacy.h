// Reads the rules of iptables-legacy and ip6tables-legacy (x_tables) and converts them to the form
// of nf_tables.
// Owner: none. Thread: any, of the network namespace in question.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "stack/filter/ruleset.h"

namespace vireo::filter {

/// A table as returned by the kernel (linux/netfilter_ipv4/ip_tables.h: IPT_SO_GET_INFO,
/// GET_ENTRIES).
struct LegacyTable {
  bool v6 = false;
  std::string name = {};
  uint32_t valid_hooks = 0;
  uint32_t hook_entry[5] = {};  ///< offset of a hook's chain
  uint32_t underflow[5] = {};   ///< offset of the entry that is its policy
  std::vector<std::byte> entries = {};
  bool operator==(const LegacyTable&) const = default;
};

/// The existing tables; never asks for another, which would create it. Errors: EPERM without
/// CAP_NET_ADMIN.
Result<std::vector<LegacyTable>> read_legacy();

void add_legacy(std::span<const LegacyTable> tables, Ruleset& to);

}  // namespace vireo::filter
