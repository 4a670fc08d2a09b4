#include "stack/net/lookup.h"

#include <algorithm>
#include <cstring>

#include "stack/net/policy.h"

namespace vireo::net {
namespace {

bool port_matches(const PortRange& range, uint16_t port) {
  return range.to == 0 || (port >= range.from && port <= range.to);
}

/// The interface is in a VRF (or is one): the kernel rewrites the flow before it evaluates rules.
bool is_in_vrf(const Snapshot& s, IfIndex oif) {
  const Link* l = s.links->find(oif);
  if (l == nullptr) return false;
  const Link* m = l->master == IfIndex() ? nullptr : s.links->find(l->master);
  return l->kind == LinkKind::kVrf || (m != nullptr && m->kind == LinkKind::kVrf);
}

bool name_matches(const Snapshot& s, const std::string& name, IfIndex index) {
  if (name.empty()) return true;
  const Link* l = s.links->find(index);
  return l != nullptr && l->name == name;
}

bool rule_matches(const Snapshot& s, const Rule& r, const Flow& f) {
  const LookupKey& k = f.key;
  const bool hit = name_matches(s, r.iif, loopback(s)) && name_matches(s, r.oif, f.oif) &&
                   ((r.mark ^ k.mark) & r.mark_mask) == 0 && !r.l3mdev &&
                   (!r.has_uid || (k.uid >= r.uid_from && k.uid <= r.uid_to)) &&
                   (r.from_len == 0 || (f.src && f.src->in_prefix(r.from, r.from_len))) &&
                   (r.to_len == 0 || k.dst.in_prefix(r.to, r.to_len)) &&
                   (r.tos == 0 || r.tos == (k.tos & 0xfc)) &&
                   (r.ip_proto == 0 || r.ip_proto == static_cast<uint8_t>(k.proto)) &&
                   port_matches(r.sport, k.sport) && port_matches(r.dport, k.dport);
  return hit != r.invert;
}

/// The result of a matching rule; EAGAIN: none.
Result<Found> apply_rule(const Snapshot& s, const Rule& r, const Flow& f, TableLookup lookup_in) {
  switch (r.action) {
    case RuleAction::kBlackhole:
      return fail(EINVAL, "rule: blackhole");
    case RuleAction::kUnreachable:
      return fail(ENETUNREACH, "rule: unreachable");
    case RuleAction::kProhibit:
      return fail(EACCES, "rule: prohibit");
    case RuleAction::kGoto:
    case RuleAction::kNop:
      return fail(EAGAIN, "rule: nop");
    case RuleAction::kTable:
      break;
  }
  const RouteTable* t = s.routes->find(r.table, r.v6);
  if (t == nullptr) return fail(EAGAIN, "rule: empty table");
  if (t->has_source_routes()) return fail(EOPNOTSUPP, "routes that depend on the source");
  auto found = lookup_in(s, *t, f);
  if (found && found->route->dst_len <= r.suppress_prefix_len)
    return fail(EAGAIN, "rule: prefix too short");
  return found;
}

uint32_t hash_flow(const LookupKey& k) {
  uint64_t h = 0x9e3779b97f4a7c15;
  auto mix = [&h](uint64_t v) { h = (h ^ v) * 0xff51afd7ed558ccd, h ^= h >> 32; };
  for (const IpAddr* a : {&k.src, &k.dst}) {
    uint64_t w[2];
    std::memcpy(w, a->bytes().data(), sizeof w);
    mix(w[0]), mix(w[1]);
  }
  mix(static_cast<uint64_t>(k.sport) << 32 | static_cast<uint64_t>(k.dport) << 16 |
      static_cast<uint64_t>(k.proto));
  return static_cast<uint32_t>(h >> 16);
}

}  // namespace

Flow flow_of(const LookupKey& key) {
  std::optional<IpAddr> src;
  if (!key.src.is_unspecified()) src = key.src;
  return {key, src, key.oif, key.flow_hash != 0 ? key.flow_hash : hash_flow(key)};
}

Result<Found> walk_rules(const Snapshot& s, const Flow& flow, TableLookup lookup_in) {
  const bool v6 = !flow.key.dst.is_v4();
  const auto& rules = s.rules->all;
  for (size_t i = 0; i < rules.size(); ++i) {
    const Rule& r = rules[i];
    if (r.v6 != v6) continue;
    if (r.foreign) return fail(EOPNOTSUPP, "rule with a condition unknown to us");
    if (!rule_matches(s, r, flow)) continue;
    if (r.action == RuleAction::kGoto) {
      // The target is a later rule of this family, or missing: then the rule has no effect.
      auto target =
          std::find_if(rules.begin() + static_cast<ptrdiff_t>(i) + 1, rules.end(),
                       [&](const Rule& t) { return t.v6 == v6 && t.priority == r.goto_priority; });
      if (target != rules.end()) i = static_cast<size_t>(target - rules.begin()) - 1;
      continue;
    }
    auto found = apply_rule(s, r, flow, lookup_in);
    if (found || found.error().code != EAGAIN) return found;
  }
  return fail(ENETUNREACH, "no route");
}

int refusal(RouteType type) {
  switch (type) {
    case RouteType::kBlackhole:
      return EINVAL;
    case RouteType::kUnreachable:
      return EHOSTUNREACH;
    case RouteType::kProhibit:
      return EACCES;
    case RouteType::kThrow:
      return EAGAIN;
    default:
      return 0;
  }
}

const Hop* choose_hop(const Route& route, IfIndex oif, uint32_t hash, bool honour_oif) {
  auto suits = [&](const Hop& h) {
    return !h.dead && h.oif != IfIndex() && (!honour_oif || oif == IfIndex() || h.oif == oif);
  };
  if (route.multipath.empty()) return suits(route.hop) ? &route.hop : nullptr;
  uint64_t total = 0;
  for (const Hop& h : route.multipath)
    if (suits(h)) total += h.weight;
  if (total == 0) return nullptr;
  uint64_t point = hash * total >> 32;
  for (const Hop& h : route.multipath) {
    if (!suits(h)) continue;
    if (point < h.weight) return &h;
    point -= h.weight;
  }
  return nullptr;
}

bool is_ours(const Snapshot& s, const IpAddr& addr) {
  if (s.addrs->find(addr) != nullptr) return true;
  const RouteTable* local =
      s.routes->find(255, !addr.is_v4());  // RT_TABLE_LOCAL: 127/8, "ip route add local"
  if (local == nullptr) return false;
  auto m = local->longest(addr);
  return m && m->first->type == RouteType::kLocal;
}

IfIndex loopback(const Snapshot& s) {
  for (const Link& l : s.links->all)
    if (l.is_loopback()) return l.index;
  return {};
}

Mac multicast_mac(const IpAddr& group) {
  const auto& b = group.bytes();
  if (group.is_v4()) return {0x01, 0x00, 0x5e, static_cast<uint8_t>(b[13] & 0x7f), b[14], b[15]};
  return {0x33, 0x33, b[12], b[13], b[14], b[15]};
}

Result<NextHop> complete(const Snapshot& s, const LookupKey& key, const Decision& d) {
  const Link* link = s.links->find(d.oif);
  if (link == nullptr) return fail(ENODEV, "interface of the route is unknown");
  NextHop n;
  n.kind = d.kind;
  n.ifindex = d.oif;
  n.src = d.src;
  n.via = d.via;
  n.src_mac = link->mac;
  n.advmss = d.advmss;
  n.table = d.table;
  n.generation = s.generation;
  n.mtu = d.route_mtu != 0 ? d.route_mtu : link->mtu;
  if (!key.dst.is_v4() && link->mtu6 != 0) n.mtu = std::min(n.mtu, link->mtu6);

  if (has(link->flags, LinkFlags::kEthernet)) {
    n.carrier = link->index;
    if (link->kind == LinkKind::kVlan) {
      // We write one 802.1Q tag on a plain interface; stacked and 802.1ad tags are not supported.
      const Link* lower = s.links->find(link->lower);
      const bool plain = lower != nullptr && lower->kind != LinkKind::kVlan && !link->vlan_8021ad;
      n.carrier = plain ? lower->index : IfIndex();
      n.vlan = link->vlan;
    }
  }

  switch (d.kind) {
    case DestKind::kLocal:
      n.carrier = IfIndex();
      n.neighbour = NeighbourState::kNoArp;
      break;
    case DestKind::kMulticast:
      n.dst_mac = multicast_mac(key.dst);
      n.neighbour = NeighbourState::kNoArp;
      break;
    case DestKind::kBroadcast:
      n.dst_mac = link->broadcast;
      n.neighbour = NeighbourState::kNoArp;
      break;
    case DestKind::kUnicast:
      if (has(link->flags, LinkFlags::kNoArp)) {
        n.dst_mac = link->mac;  // as the kernel's arp and ndisc constructors do
        n.neighbour = NeighbourState::kNoArp;
      } else if (const Neighbour* nb = s.neighbours->find(d.oif, d.via)) {
        n.dst_mac = nb->mac;
        n.neighbour = nb->state;
      }
      break;
  }
  return n;
}

bool ports_matter(const Snapshot& s) {
  return std::ranges::any_of(s.rules->all,
                             [](const Rule& r) { return r.sport.to != 0 || r.dport.to != 0; }) ||
         std::ranges::any_of(s.routes->all,
                             [](const RouteTables::Entry& t) { return t.table->has_multipath(); });
}

Result<NextHop> lookup(const Snapshot& snapshot, const LookupKey& key) {
  const Flow flow = flow_of(key);
  if (flow.oif != IfIndex() && is_in_vrf(snapshot, flow.oif))
    return fail(EOPNOTSUPP, "interface in a VRF");
  auto d = key.dst.is_v4() ? decide_v4(snapshot, flow) : decide_v6(snapshot, flow);
  if (!d) return std::unexpected(d.error());
  return complete(snapshot, key, *d);
}

Result<NextHop> resolve(const Snapshot& snapshot, const LookupKey& key) {
  auto n = lookup(snapshot, key);
  if (!n && n.error().code == EOPNOTSUPP) return kernel_lookup(snapshot, key);
  return n;
}

}  // namespace vireo::net
