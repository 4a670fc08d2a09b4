// IPv6 output routing like ip6_route_output(), rt6_select() and ipv6_dev_get_saddr() (Linux 6.x),
// RFC 6724 §5.
#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cstring>

#include "stack/net/policy.h"

namespace vireo::net {
namespace {

bool gateway_failed(const Snapshot& s, const Hop& h) {
  if (!h.gateway) return false;
  const Neighbour* n = s.neighbours->find(h.oif, *h.gateway);
  return n != nullptr && n->state == NeighbourState::kFailed;
}

int score(const Route& r, const Hop& h, IfIndex oif) {
  constexpr int kByPreference[] = {1, 2, 0, 0};  // medium, high, (reserved), low: RFC 4191 §2.1
  return (oif == IfIndex() || h.oif == oif ? 1 : 0) + 2 * kByPreference[r.preference & 3];
}

/// The best suitable route of the lowest metric that has any; nullopt: none.
Result<std::optional<Found>> select(const Snapshot& s, RouteTable::Match m, const Flow& f,
                                    bool reachable_only) {
  const Route* best = nullptr;
  const Hop* best_hop = nullptr;
  int best_score = -1;
  for (const Route& r : m) {
    if (best != nullptr && r.metric != best->metric) break;
    // A rejecting route has the loopback interface, and so does not apply to a bound socket.
    const int refused = refusal(r.type);
    const bool applies = f.oif == IfIndex() || r.hop.oif == f.oif;
    const Hop* h = refused == 0 ? choose_hop(r, f.oif, f.hash, true) : applies ? &r.hop : nullptr;
    if (h == nullptr) continue;
    if (refused == 0 && reachable_only && gateway_failed(s, *h)) {
      // Another next hop of the same route may be usable.
      h = nullptr;
      for (const Hop& o : r.multipath)
        if (!o.dead && (f.oif == IfIndex() || o.oif == f.oif) && !gateway_failed(s, o)) h = &o;
      if (h == nullptr) continue;
    }
    if (const int points = score(r, *h, f.oif); points > best_score)
      best = &r, best_hop = h, best_score = points;
  }
  if (best == nullptr) return std::nullopt;
  if (const int e = refusal(best->type); e != 0) return fail(e, "route refuses");
  if (best->encap) return fail(EOPNOTSUPP, "route over a tunnel");
  return Found{best, best_hop};
}

TableAnswer lookup_in(const Snapshot& s, const RouteTable& table, const Flow& f) {
  for (const bool reachable_only : {true, false}) {
    for (auto m = table.longest(f.key.dst); m; m = table.shorter(*m)) {
      auto found = select(s, *m, f, reachable_only);
      if (!found) return std::unexpected(found.error());
      if (*found) return **found;
    }
  }
  return fail(EAGAIN, "no route in table");
}

int scope_of(const IpAddr& a) {
  const auto& b = a.bytes();
  if (a.is_multicast()) return b[1] & 0x0f;
  if (a.is_link_local() || a.is_loopback()) return 2;
  if (b[0] == 0xfe && (b[1] & 0xc0) == 0xc0) return 5;
  return 14;
}

/// RFC 6724 §2.1 with Linux's own entries (net/ipv6/addrlabel.c).
int label_of(const IpAddr& a) {
  struct Entry {
    uint8_t len;
    int label;
    std::array<uint8_t, 4> head;
  };
  static constexpr Entry kTable[] = {
      {32, 6, {0x20, 0x01, 0, 0}},
      {28, 7, {0x20, 0x01, 0, 0x10}},
      {16, 2, {0x20, 0x02}},
      {10, 11, {0xfe, 0xc0}},
      {7, 5, {0xfc}},
  };
  const auto& b = a.bytes();
  if (a.is_v4()) return 4;
  if (a.is_loopback()) return 0;
  if (std::all_of(b.begin(), b.begin() + 12, [](uint8_t x) { return x == 0; })) return 3;
  for (const Entry& e : kTable) {
    const IpAddr net = IpAddr::v6({e.head[0], e.head[1], e.head[2], e.head[3]});
    if (a.in_prefix(net, e.len)) return e.label;
  }
  return 1;
}

int common_bits(const IpAddr& a, const IpAddr& b) {
  for (unsigned i = 0; i < 16; ++i)
    if (const auto diff = static_cast<uint8_t>(a.bytes()[i] ^ b.bytes()[i]); diff != 0)
      return static_cast<int>(8 * i) + std::countl_zero(diff);
  return 128;
}

bool is_orchid(const IpAddr& a) { return a.in_prefix(IpAddr::v6({0x20, 0x01, 0, 0x10}), 28); }

/// One number per rule of §5, in their order; larger is better, the first difference decides.
using Merits = std::array<int, 7>;

Merits merits(const Addr& a, const IpAddr& dst, IfIndex oif) {
  const int scope = scope_of(a.addr);
  return {
      a.addr == dst,
      scope >= scope_of(dst) ? -scope : scope - 128,
      !has(a.flags, AddrFlags::kDeprecated),
      oif == IfIndex() || a.ifindex == oif,
      label_of(a.addr) == label_of(dst),
      2 * !has(a.flags, AddrFlags::kTemporary) + (is_orchid(a.addr) == is_orchid(dst)),
      std::min<int>(common_bits(a.addr, dst), a.prefix_len),
  };
}

Result<Decision> by_route(const Snapshot& s, const Flow& f, const Found& found) {
  const Route& r = *found.route;
  const IpAddr& dst = f.key.dst;
  const bool ours = r.type == RouteType::kLocal || r.type == RouteType::kAnycast;
  Decision d{.kind = ours                 ? DestKind::kLocal
                     : dst.is_multicast() ? DestKind::kMulticast
                                          : DestKind::kUnicast,
             .oif = ours ? loopback(s) : found.hop->oif,
             .src = {},
             .via = found.hop->gateway.value_or(dst),
             .route_mtu = r.mtu,
             .advmss = r.advmss,
             .table = r.table};
  if (d.kind != DestKind::kUnicast) d.via = dst;
  if (f.src) {
    d.src = *f.src;
  } else if (r.prefsrc) {
    d.src = *r.prefsrc;
  } else {
    auto src = choose_source_v6(s, dst, found.hop->oif);
    if (!src) return fail(EADDRNOTAVAIL, "no source address for the destination");
    d.src = *src;
  }
  return d;
}

Result<Decision> decide_once(const Snapshot& s, const Flow& f) {
  auto found = walk_rules(s, f, lookup_in);
  if (!found) return std::unexpected(found.error());
  return by_route(s, f, *found);
}

}  // namespace

std::optional<IpAddr> choose_source_v6(const Snapshot& s, const IpAddr& dst, IfIndex oif) {
  const bool this_link_only = oif != IfIndex() && (dst.is_multicast() || scope_of(dst) <= 2);
  const Addr* best = nullptr;
  Merits best_merits{};
  for (const Addr& a : s.addrs->all) {
    if (a.addr.is_v4() || has(a.flags, AddrFlags::kTentative | AddrFlags::kDadFailed)) continue;
    if (this_link_only && a.ifindex != oif) continue;
    const Merits m = merits(a, dst, oif);
    if (best == nullptr || m > best_merits) best = &a, best_merits = m;
  }
  if (best == nullptr) return std::nullopt;
  return best->addr;
}

Result<Decision> decide_v6(const Snapshot& s, const Flow& flow) {
  if (flow.oif != IfIndex()) {
    const Link* l = s.links->find(flow.oif);
    if (l == nullptr) return fail(ENODEV, "bound interface is gone");
    if (!l->is_up()) return fail(ENETUNREACH, "bound interface is down");
  }
  if (flow.key.dst.is_unspecified()) {
    const IpAddr self = flow.src.value_or(*IpAddr::parse("::1"));
    return Decision{
        .kind = DestKind::kLocal, .oif = loopback(s), .src = self, .via = self, .table = 255};
  }
  auto d = decide_once(s, flow);
  const int error = d ? 0 : d.error().code;
  if (flow.src || error == EOPNOTSUPP || error == EADDRNOTAVAIL) return d;
  // ip6_dst_lookup_tail(): a source is chosen even if the first result was a refusal; the second
  // result counts.
  Flow again = flow;
  again.src = d ? d->src : choose_source_v6(s, flow.key.dst, IfIndex());
  if (!again.src) return fail(EADDRNOTAVAIL, "no source address for the destination");
  return decide_once(s, again);
}

}  // namespace vireo::net
