// The steps of lookup(); private to stack/net.
// Owner: none (pure functions of a snapshot). Thread: any.
#pragma once

#include <optional>

#include "core/result.h"
#include "stack/net/lookup.h"

namespace vireo::net {

/// What a routing table answered.
struct Found {
  const Route* route = nullptr;  ///< null: no route, assumed on link
  const Hop* hop = nullptr;
};

/// The interface, the kind and the addresses are settled; what remains is links and neighbours.
struct Decision {
  DestKind kind = DestKind::kUnicast;
  IfIndex oif{};
  IpAddr src{};
  IpAddr via{};
  uint32_t route_mtu = 0;
  uint32_t advmss = 0;
  uint32_t table = 0;
};

/// The key as the kernel's flow: the source is present or absent, never an unspecified address.
struct Flow {
  const LookupKey& key;
  std::optional<IpAddr> src{};
  IfIndex oif;
  uint32_t hash;
};

Flow flow_of(const LookupKey& key);

/// Answer of one rule: a route, or an errno; EAGAIN: go on with the next rule.
using TableAnswer = Result<Found>;
using TableLookup = TableAnswer (*)(const Snapshot&, const RouteTable&, const Flow&);

/// Walks the rules of the flow's family (ip-rule(8)). Errors: ENETUNREACH when no rule has an
/// answer.
Result<Found> walk_rules(const Snapshot& s, const Flow& flow, TableLookup lookup_in);

/// errno of a route that refuses (blackhole, unreachable, prohibit, throw), 0 for one that carries.
int refusal(RouteType type);
/// The way out among those of `route` that are alive and, if `oif` is not 0, leave there. Null:
/// none.
const Hop* choose_hop(const Route& route, IfIndex oif, uint32_t hash, bool honour_oif);

Result<Decision> decide_v4(const Snapshot& s, const Flow& flow);
Result<Decision> decide_v6(const Snapshot& s, const Flow& flow);
/// RFC 6724 §5 as Linux does it. Nullopt: no address will do.
std::optional<IpAddr> choose_source_v6(const Snapshot& s, const IpAddr& dst, IfIndex oif);
/// True if the kernel would deliver packets for `addr` to itself.
bool is_ours(const Snapshot& s, const IpAddr& addr);
IfIndex loopback(const Snapshot& s);

/// Adds links and neighbours. Errors: ENODEV the interface is gone.
Result<NextHop> complete(const Snapshot& s, const LookupKey& key, const Decision& d);

}  // namespace vireo::net
