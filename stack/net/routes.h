// Routes of one table and family, with longest-prefix match (RTM_NEWROUTE; rtnetlink(7)). The
// prefixes are sorted by address; each has the index of the one that encloses it. A look-up is one
// binary search for the last prefix that begins at or before the address, then a walk through the
// enclosing ones.
// Owner: the snapshot that contains the table. Thread: any; a published table never changes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/address.h"
#include "core/types.h"
#include "stack/net/addrs.h"

namespace vireo::net {

enum class RouteType : uint8_t {
  kUnicast,
  kLocal,
  kBroadcast,
  kAnycast,
  kMulticast,
  kBlackhole,
  kUnreachable,
  kProhibit,
  kThrow,
};

/// One next hop. A route has one, or several of which the flow hash selects one (ECMP).
struct Hop {
  IfIndex oif{};
  std::optional<IpAddr> gateway;  ///< none: on link. May be IPv6 for an IPv4 route (RTA_VIA).
  uint16_t weight = 1;
  bool dead = false;      ///< RTNH_F_DEAD: the interface is down
  bool linkdown = false;  ///< RTNH_F_LINKDOWN: no carrier

  bool operator==(const Hop&) const = default;
};

struct Route {
  uint32_t table = 0;    ///< RT_TABLE_MAIN = 254, ...
  IpAddr dst{};          ///< masked; 0.0.0.0 or :: with dst_len 0 for the default route
  uint8_t dst_len = 0;   ///< bits, 0-32 or 0-128
  uint8_t tos = 0;       ///< IPv4: 0 matches any
  uint8_t protocol = 0;  ///< RTPROT_*
  Scope scope = Scope::kUniverse;
  RouteType type = RouteType::kUnicast;
  uint8_t preference = 0;  ///< RFC 4191 as ICMPV6_ROUTER_PREF_*: 0 medium, 1 high, 3 low
  bool encap = false;      ///< lightweight tunnel: not carried
  uint32_t metric = 0;     ///< lowest is preferred
  uint32_t mtu = 0;        ///< RTAX_MTU; 0: the interface's
  uint32_t advmss = 0;     ///< RTAX_ADVMSS; 0: derived from the MTU
  std::optional<IpAddr> prefsrc{};
  Hop hop{};
  std::vector<Hop> multipath{};  ///< if not empty, the next hops; `hop` is then unused

  bool operator==(const Route&) const = default;
};

/// Immutable once built.
class RouteTable {
 public:
  /// `routes` of one table and family, sorted by precedes(). Cost: linear.
  RouteTable(std::vector<Route> routes, bool has_source_routes);
  /// The order that the constructor requires: address, length, TOS (specific first), metric.
  static bool precedes(const Route& a, const Route& b);

  /// Routes with the same prefix, best first; the first suitable one is used.
  struct Match {
    const Route* first;
    const Route* last;
    uint32_t parent;  ///< for shorter()
    const Route* begin() const { return first; }
    const Route* end() const { return last; }
  };
  /// The longest prefix that contains `dst`, which must be of this table's family.
  std::optional<Match> longest(const IpAddr& dst) const;
  /// The next shorter prefix that contains that of `m`.
  std::optional<Match> shorter(const Match& m) const;

  const std::vector<Route>& routes() const { return routes_; }
  /// The table has IPv6 routes that depend on the source (RTA_SRC): only the kernel can answer.
  bool has_source_routes() const { return has_source_routes_; }
  /// A route has several next hops, selected by the flow hash.
  bool has_multipath() const { return has_multipath_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Prefix {
    uint64_t hi, lo;  ///< address in host order
    uint32_t first;   ///< index of its first route
    uint32_t parent;  ///< index of the enclosing prefix, kNone
    uint8_t len;      ///< of 128 bits
  };
  Match at(uint32_t prefix) const;

  std::vector<Route> routes_;
  std::vector<Prefix> prefixes_;  ///< with a sentinel at the end
  bool has_source_routes_ = false;
  bool has_multipath_ = false;
};

/// All tables of both families.
struct RouteTables {
  struct Entry {
    uint32_t id;
    bool v6;
    std::shared_ptr<const RouteTable> table;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> all;

  const RouteTable* find(uint32_t id, bool v6) const;
};

}  // namespace vireo::net
