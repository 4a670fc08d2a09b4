// The rules that the kernel applies to packets in this network namespace: tables, chains, rules and
// sets of nf_tables (linux/netfilter/nf_tables.h), iptables-legacy in the same form, filters of
// tc(8), IPsec policies. Owner: Filter, which reads them. Thread: any; a published ruleset never
// changes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/address.h"
#include "core/types.h"

namespace vireo::filter {

using Bytes = std::vector<uint8_t>;

/// What happens to a packet that a rule matches.
struct Verdict {
  enum class Kind : uint8_t {
    kNone,    ///< continue with the next rule
    kAccept,  ///< accepted by this base chain
    kRefuse,  ///< dropped, rejected, redirected, queued: the socket does not receive it unchanged
    kReturn,
    kJump,
    kGoto,
  };
  Kind kind = Kind::kNone;
  std::string chain = {};  ///< for kJump and kGoto
};

/// A step of a rule: an nf_tables expression, as far as it is supported.
struct Expr {
  enum class Kind : uint8_t {
    kPass,       ///< counts, logs, marks: no condition
    kMaybe,      ///< a condition that cannot be evaluated beforehand: a rate, a quota
    kLoad,       ///< loads an unknown value into a register
    kImmediate,  ///< loads data into a register
    kVerdict,
    kPayload,
    kMeta,
    kCt,
    kDaddrType,  ///< fib daddr type
    kCompare,
    kRange,
    kBitwise,
    kByteorder,
    kLookup,
    kXtMatch,  ///< an x_tables match: `name`, revision `key`, its data
  };
  Kind kind = Kind::kPass;
  bool inverted = false;
  uint8_t op = 0;             ///< kCompare: NFT_CMP_*
  uint8_t base = 0;           ///< kPayload: NFT_PAYLOAD_*
  uint32_t key = 0;           ///< NFT_META_*, NFT_CT_*
  uint32_t from = 0, to = 0;  ///< registers, as byte offsets; kVerdictRegister
  uint32_t offset = 0, length = 0;
  Bytes data = {}, more = {};  ///< kRange: lower and upper end; kBitwise: mask and xor
  std::string name = {};       ///< of the set or match
  Verdict verdict = {};
};
inline constexpr uint32_t kVerdictRegister = ~0U;

struct Rule {
  uint64_t handle = 0;  ///< legacy: rule number in the chain, from 1
  std::vector<Expr> exprs = {};
};

/// Position of a base chain in a packet's path.
enum class Hook : uint8_t { kIngress, kPrerouting, kInput, kOutput, kPostrouting, kEgress, kOther };

struct Chain {
  std::string name = {};
  std::optional<Hook> hook = {};          ///< none: reached by jumps only
  bool is_nat = false;                    ///< sees the first packet of a connection only
  bool refuses = false;                   ///< policy drop
  std::vector<std::string> devices = {};  ///< for a hook on interfaces
  std::vector<Rule> rules = {};
};

struct Set {
  struct Element {
    Bytes key = {};
    Bytes end = {};  ///< last key of a range; empty: `key` alone
    Bytes data = {};
    Verdict verdict = {};
    bool is_certain = true;  ///< false: it has a rate limit or the like
  };
  std::string name = {};
  bool is_known = true;               ///< false: packets change it, or it has too many elements
  bool is_interval = false;           ///< elements are ranges
  bool fades = false;                 ///< elements have timeouts
  std::vector<uint32_t> fields = {};  ///< of a concatenation: bytes of each; empty: one field
  std::vector<Element> elements = {};
  std::vector<Bytes> gaps = {};         ///< while reading: ends of ranges, exclusive
  std::vector<Element> otherwise = {};  ///< "*": one or none
};

enum class Family : uint8_t { kIpv4, kIpv6, kInet, kNetdev, kOther };

struct Table {
  Family family = Family::kOther;
  std::string family_name = {};  ///< "inet"; "iptables-legacy" for a converted table
  std::string name = {};
  std::vector<Chain> chains = {};
  std::vector<Set> sets = {};

  const Chain* chain(std::string_view which) const;
  const Set* set(std::string_view which) const;
  Chain& chain_at(std::string_view which);  ///< created if missing
  Set& set_at(std::string_view which);
};

/// An IPsec policy (ip-xfrm(8)).
struct IpsecPolicy {
  bool inbound = false;
  bool passes = false;  ///< neither blocks nor transforms
  uint32_t priority = 0;
  bool v6 = false;
  IpAddr src = {}, dst = {};
  uint8_t src_len = 0, dst_len = 0;
  uint16_t sport = 0, sport_mask = 0, dport = 0, dport_mask = 0;  ///< host order
  uint8_t proto = 0;                                              ///< 0: any
  IfIndex ifindex{};                                              ///< 0: any
};

/// Filters of tc(8) on an interface: their effect is unknown.
struct TrafficControl {
  IfIndex ifindex{};
  bool inbound = false;
};

struct Ruleset {
  std::vector<Table> tables = {};
  std::vector<TrafficControl> traffic_control = {};
  std::vector<IpsecPolicy> ipsec = {};  ///< by priority
  bool sets_marks = false;              ///< by some rule: marks are unknown
  bool untracks = false;                ///< by some rule: states are unknown
  int unreadable = 0;                   ///< errno: there may be more rules

  Table& table_at(Family family, std::string_view family_name, std::string_view name);
  bool is_empty() const { return tables.empty() && traffic_control.empty() && ipsec.empty(); }
};

}  // namespace vireo::filter
