// The steps of lookup(); private to stack/net.
// Owner: none (pure functions of a snapshot). Thread: any.
#pragma once

#include <optional>

#include "core/result.h"
#include "stack/net/lookup.h"

namespace vireo::net {

/// Result of a routing table.
struct Found {
  const Route* route = nullptr;  ///< null: no route, assumed on link
  const Hop* hop = nullptr;
};

/// Interface, kind and addresses; links and neighbours are added by complete().
struct Decision {
  DestKind kind = DestKind::kUnicast;
  IfIndex oif{};
  IpAddr src{};
  IpAddr via{};
  uint32_t route_mtu = 0;
  uint32_t advmss = 0;
  uint32_t table = 0;
};

/// The key as the kernel's flow: the source is present or absent, never unspecified.
struct Flow {
  const LookupKey& key;
  std::optional<IpAddr> src{};
  IfIndex oif;
  uint32_t hash;
};

Flow flow_of(const LookupKey& key);

/// Result of one rule: a route, or an errno; EAGAIN: continue with the next rule.
using TableAnswer = Result<Found>;
using TableLookup = TableAnswer (*)(const Snapshot&, const RouteTable&, const Flow&);

/// Evaluates the rules of the flow's family (ip-rule(8)). Errors: ENETUNREACH if no rule has a
/// result.
Result<Found> walk_rules(const Snapshot& s, const Flow& flow, TableLookup lookup_in);

/// errno of a rejecting route (blackhole, unreachable, prohibit, throw), 0 for any other.
int refusal(RouteType type);
/// Selects a next hop of `route` that is alive and, if `oif` is not 0, uses it. Null: none.
const Hop* choose_hop(const Route& route, IfIndex oif, uint32_t hash, bool honour_oif);

Result<Decision> decide_v4(const Snapshot& s, const Flow& flow);
Result<Decision> decide_v6(const Snapshot& s, const Flow& flow);
/// RFC 6724 §5 as in Linux. Nullopt: no suitable address.
std::optional<IpAddr> choose_source_v6(const Snapshot& s, const IpAddr& dst, IfIndex oif);
/// True if the kernel would deliver packets for `addr` locally.
bool is_ours(const Snapshot& s, const IpAddr& addr);
IfIndex loopback(const Snapshot& s);

/// Adds link and neighbour. Errors: ENODEV the interface is gone.
Result<NextHop> complete(const Snapshot& s, const LookupKey& key, const Decision& d);

}  // namespace vireo::net
