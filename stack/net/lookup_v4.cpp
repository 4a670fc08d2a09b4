// IPv4 output routing like ip_route_output_key_hash(), fib_table_lookup() and inet_select_addr()
// (Linux 6.x).
#include <algorithm>

#include "stack/net/policy.h"

namespace vireo::net {
namespace {

bool is_zeronet(const IpAddr& a) { return a.bytes()[12] == 0; }
bool is_local_multicast(const IpAddr& a) { return a.in_prefix(IpAddr::v4(be32(0xe0000000)), 24); }

IpAddr select_addr(const Snapshot& s, IfIndex oif, const std::optional<IpAddr>& peer, Scope scope);

/// Of several next hops, prefers those whose own source address is the flow's
/// (fib_select_multipath()).
const Hop* prefer_by_source(const Snapshot& s, const Route& r, const Flow& f, const Hop* chosen) {
  if (r.multipath.empty() || !f.src || f.oif != IfIndex()) return chosen;
  Route suited;
  for (const Hop& h : r.multipath)
    if (!h.dead && select_addr(s, h.oif, h.gateway, r.scope) == *f.src)
      suited.multipath.push_back(h);
  const Hop* best = suited.multipath.empty() ? nullptr : choose_hop(suited, {}, f.hash, true);
  if (best == nullptr) return chosen;
  return &*std::ranges::find(r.multipath, *best);
}

/// The first suitable route of the longest prefix that has one.
TableAnswer lookup_in(const Snapshot& s, const RouteTable& table, const Flow& f) {
  for (auto m = table.longest(f.key.dst); m; m = table.shorter(*m)) {
    for (const Route& r : *m) {
      if (r.tos != 0 && r.tos != (f.key.tos & 0xfc)) continue;
      if (const int e = refusal(r.type); e != 0) return fail(e, "route refuses");
      if (r.encap) return fail(EOPNOTSUPP, "route over a tunnel");
      if (const Hop* h = choose_hop(r, f.oif, f.hash, true))
        return Found{&r, prefer_by_source(s, r, f, h)};
    }
  }
  return fail(EAGAIN, "no route in table");
}

/// The interface's first primary address of at most that scope, preferably in the subnet of `peer`;
/// else that of any interface.
IpAddr select_addr(const Snapshot& s, IfIndex oif, const std::optional<IpAddr>& peer, Scope scope) {
  const Addr* best = nullptr;
  for (const Addr& a : s.addrs->all) {
    if (a.ifindex != oif || !a.addr.is_v4() || has(a.flags, AddrFlags::kSecondary)) continue;
    if (a.scope > scope) continue;
    const bool same_subnet = !peer || peer->in_prefix(a.prefix, a.prefix_len);
    if (same_subnet) return a.addr;
    if (best == nullptr) best = &a;
  }
  if (best != nullptr) return best->addr;
  for (const Addr& a : s.addrs->all)
    if (a.addr.is_v4() && !has(a.flags, AddrFlags::kSecondary) && a.scope != Scope::kLink &&
        a.scope <= scope)
      return a.addr;
  return IpAddr::any_v4();
}

DestKind kind_of(const IpAddr& dst) {
  if (dst.is_limited_broadcast()) return DestKind::kBroadcast;
  return dst.is_multicast() ? DestKind::kMulticast : DestKind::kUnicast;
}

/// Without a routing table: the destination is on the link of `oif`.
Decision on_link(const Flow& f, IfIndex oif, const IpAddr& src) {
  return {.kind = kind_of(f.key.dst), .oif = oif, .src = src, .via = f.key.dst};
}

Decision to_ourselves(const Snapshot& s, const IpAddr& src, const IpAddr& dst, uint32_t table) {
  return {.kind = DestKind::kLocal, .oif = loopback(s), .src = src, .via = dst, .table = table};
}

Decision by_route(const Snapshot& s, const Flow& f, const Found& found) {
  const Route& r = *found.route;
  const IpAddr& dst = f.key.dst;
  if (r.type == RouteType::kLocal)
    return to_ourselves(s, f.src.value_or(r.prefsrc.value_or(dst)), dst, r.table);
  Decision d{.kind = r.type == RouteType::kBroadcast ? DestKind::kBroadcast : kind_of(dst),
             .oif = found.hop->oif,
             .src = {},
             .via = dst,
             .table = r.table};
  if (f.src)
    d.src = *f.src;
  else if (r.prefsrc)
    d.src = *r.prefsrc;
  else
    d.src = select_addr(s, d.oif, found.hop->gateway, r.scope);
  // A broadcast, or a multicast that only the default route matches, uses only the route's
  // interface.
  const bool interface_only =
      d.kind == DestKind::kBroadcast || (d.kind == DestKind::kMulticast && r.dst_len < 4);
  if (!interface_only) {
    d.route_mtu = r.mtu;
    d.advmss = r.advmss;
    if (found.hop->gateway && d.kind == DestKind::kUnicast) d.via = *found.hop->gateway;
  }
  return d;
}

Result<Decision> decide_once(const Snapshot& s, const Flow& given) {
  Flow f = given;
  const IpAddr& dst = f.key.dst;
  const bool to_many = dst.is_multicast() || dst.is_limited_broadcast();

  if (f.src) {
    if (f.src->is_multicast() || f.src->is_limited_broadcast() || is_zeronet(*f.src))
      return fail(EINVAL, "source address");
    if (!is_ours(s, *f.src)) return fail(EINVAL, "source address is not ours");
    if (f.oif == IfIndex() && to_many)
      if (const Addr* a = s.addrs->find(*f.src)) return on_link(f, a->ifindex, *f.src);
  }
  if (f.oif != IfIndex()) {
    const Link* l = s.links->find(f.oif);
    if (l == nullptr) return fail(ENODEV, "bound interface is gone");
    if (!l->is_up()) return fail(ENETUNREACH, "bound interface is down");
    if (is_local_multicast(dst) || dst.is_limited_broadcast())
      return on_link(f, f.oif, f.src ? *f.src : select_addr(s, f.oif, {}, Scope::kLink));
    if (!f.src && dst.is_multicast()) {
      const IpAddr a = select_addr(s, f.oif, {}, Scope::kUniverse);
      if (!a.is_unspecified()) f.src = a;
    }
  }
  if (dst.is_unspecified()) {
    const IpAddr self = f.src.value_or(IpAddr::v4(be32(0x7f000001)));
    return to_ourselves(s, self, self, 255);
  }

  auto found = walk_rules(s, f, lookup_in);
  if (!found) {
    if (f.oif == IfIndex() || found.error().code == EOPNOTSUPP)
      return std::unexpected(found.error());
    return on_link(f, f.oif, f.src ? *f.src : select_addr(s, f.oif, {}, Scope::kLink));
  }
  if (is_zeronet(dst) && found->route->type != RouteType::kLocal) return fail(EINVAL, "0.0.0.0/8");
  return by_route(s, f, *found);
}

/// __mkroute_output(): 127/8 never leaves the host.
Result<Decision> decide_checked(const Snapshot& s, const Flow& f) {
  auto d = decide_once(s, f);
  if (!d || !d->src.is_loopback()) return d;
  const Link* out = s.links->find(d->oif);
  if (out != nullptr && !out->is_loopback()) return fail(EINVAL, "loopback source on a network");
  return d;
}

}  // namespace

Result<Decision> decide_v4(const Snapshot& s, const Flow& flow) {
  auto d = decide_checked(s, flow);
  if (!d || !flow.key.connected || flow.src || d->src.is_unspecified()) return d;
  Flow again = flow;  // ip_route_connect(): rules on the source match the chosen one
  again.src = d->src;
  return decide_checked(s, again);
}

}  // namespace vireo::net
