// The rules by which the kernel of this network namespace judges packets: tables, chains, rules and
// sets of nf_tables (linux/netfilter/nf_tables.h), those of iptables-legacy in the same form;
// filters of tc(8); policies of IPsec. Owner: Filter, which reads them. Thread: any; a published
// ruleset never changes.
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

/// What becomes of a packet for which a rule matches.
struct Verdict {
  enum class Kind : uint8_t {
    kNone,    ///< the next rule is asked
    kAccept,  ///< by this base chain
    kRefuse,  ///< dropped, rejected, redirected, queued: the socket that it is for does not get it
              ///< as it came
    kReturn,
    kJump,
    kGoto,
  };
  Kind kind = Kind::kNone;
  std::string chain = {};  ///< of kJump and kGoto
};

/// A step of a rule: one of nf_tables' expressions, as far as it is understood.
struct Expr {
  enum class Kind : uint8_t {
    kPass,       ///< counts, logs, marks: says nothing about the packet
    kMaybe,      ///< a condition that cannot be judged beforehand: a rate, a quota
    kLoad,       ///< something unknown into a register
    kImmediate,  ///< data into a register
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
    kXtMatch,  ///< a match of x_tables: `name`, revision `key`, its data
  };
  Kind kind = Kind::kPass;
  bool inverted = false;
  uint8_t op = 0;             ///< kCompare: NFT_CMP_*
  uint8_t base = 0;           ///< kPayload: NFT_PAYLOAD_*
  uint32_t key = 0;           ///< NFT_META_*, NFT_CT_*
  uint32_t from = 0, to = 0;  ///< registers, as places in bytes; kVerdictRegister
  uint32_t offset = 0, length = 0;
  Bytes data = {}, more = {};  ///< kRange: both ends; kBitwise: mask and xor
  std::string name = {};       ///< of the set, or the match
  Verdict verdict = {};
};
inline constexpr uint32_t kVerdictRegister = ~0U;

struct Rule {
  uint64_t handle = 0;  ///< legacy: its number in the chain, from 1
  std::vector<Expr> exprs = {};
};

/// Where in the way of a packet a base chain stands.
enum class Hook : uint8_t { kIngress, kPrerouting, kInput, kOutput, kPostrouting, kEgress, kOther };

struct Chain {
  std::string name = {};
  std::optional<Hook> hook = {};          ///< none: it is jumped to
  bool is_nat = false;                    ///< sees the first packet of a connection only
  bool refuses = false;                   ///< policy drop
  std::vector<std::string> devices = {};  ///< of a hook that belongs to interfaces
  std::vector<Rule> rules = {};
};

struct Set {
  struct Element {
    Bytes key = {};
    Bytes end = {};  ///< the last that is in; empty: `key` alone
    Bytes data = {};
    Verdict verdict = {};
    bool is_certain = true;  ///< false: a rate or the like is tied to it
  };
  std::string name = {};
  bool is_known = true;               ///< false: packets change it, or it has too many elements
  bool is_interval = false;           ///< elements are ranges
  bool fades = false;                 ///< elements go by themselves
  std::vector<uint32_t> fields = {};  ///< of a concatenation: bytes of each; empty: one field
  std::vector<Element> elements = {};
  std::vector<Bytes> gaps = {};         ///< while it is read: where ranges end, exclusive
  std::vector<Element> otherwise = {};  ///< "*": one, or none
};

enum class Family : uint8_t { kIpv4, kIpv6, kInet, kNetdev, kOther };

struct Table {
  Family family = Family::kOther;
  std::string family_name = {};  ///< "inet"; "iptables-legacy" for one of its
  std::string name = {};
  std::vector<Chain> chains = {};
  std::vector<Set> sets = {};

  const Chain* chain(std::string_view which) const;
  const Set* set(std::string_view which) const;
  Chain& chain_at(std::string_view which);  ///< made if there is none
  Set& set_at(std::string_view which);
};

/// A policy of IPsec (ip-xfrm(8)).
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

/// Filters of tc(8) at an interface: what they do is not known.
struct TrafficControl {
  IfIndex ifindex{};
  bool inbound = false;
};

struct Ruleset {
  std::vector<Table> tables = {};
  std::vector<TrafficControl> traffic_control = {};
  std::vector<IpsecPolicy> ipsec = {};  ///< by priority
  bool sets_marks = false;              ///< some rule does: nothing is known of marks
  bool untracks = false;                ///< some rule does: nothing is known of states
  int unreadable = 0;                   ///< errno: there may be more rules

  Table& table_at(Family family, std::string_view family_name, std::string_view name);
  bool is_empty() const { return tables.empty() && traffic_control.empty() && ipsec.empty(); }
};

}  // namespace vireo::filter
