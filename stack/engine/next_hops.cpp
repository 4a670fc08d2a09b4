// Resolving egresses, and asking the kernel for neighbours.
#include <algorithm>

#include "stack/engine/hub.h"
#include "stack/engine/mss.h"

namespace vireo {
namespace {

/// Interval of requests to the kernel for a neighbour that does not answer, or to confirm one in
/// use.
constexpr Duration kAskAgain = Duration::ms(500);
/// The same for a neighbour without an entry in the kernel, which may have dropped it without
/// notice.
constexpr Duration kAskAnew = Duration::ms(50);

Duration ask_interval(const net::NextHop& hop) {
  return hop.neighbour == net::NeighbourState::kNone ? kAskAnew : kAskAgain;
}

Refusal refusal_of_lookup(const Err& e) {
  switch (e.code) {
    case EOPNOTSUPP:
      return {Carriage::kInterface, e.code, e.where};
    default:
      return {Carriage::kNoRoute, e.code, e.where};
  }
}

}  // namespace

/// Cached: consecutive connections mostly take the same route, and the tables rarely change.
Result<net::NextHop> NextHops::find(net::LookupKey key) noexcept {
  const net::Snapshot& snapshot = hub().reader.snapshot();
  if (!snapshot.by_ports) [[likely]]
    key.sport = key.dport = 0;
  const size_t place =
      size_t{key.dst.bytes()[15]} ^ key.sport ^ key.dport ^ (key.src.is_unspecified() ? 1U : 0U);
  Resolved& r = resolved_[place % resolved_.size()];
  if (r.hop.generation == snapshot.generation && r.key == key) return r.hop;
  auto hop = net::resolve(snapshot, key);
  if (hop) r = {key, *hop};
  return hop;
}

Carried<Route> NextHops::route(const RouteRequest& r) {
  net::LookupKey key;
  key.dst = r.dst;
  key.src = r.src;
  key.oif = r.oif;
  key.tos = r.tos;
  key.mark = r.mark;
  key.proto = r.proto;
  const auto hop = find(key);
  if (!hop) return std::unexpected(refusal_of_lookup(hop.error()));
  switch (hop->kind) {
    case net::DestKind::kLocal:
      return std::unexpected(Refusal{Carriage::kLoopback, 0, "own address"});
    case net::DestKind::kBroadcast:
      return std::unexpected(Refusal{Carriage::kBroadcast, 0, "broadcast"});
    case net::DestKind::kUnicast:
    case net::DestKind::kMulticast:
      break;
  }
  if (hop->carrier.value() == 0)
    return std::unexpected(Refusal{Carriage::kInterface, 0, "not an Ethernet interface"});
  auto port = hub().ports.open(hop->carrier);
  if (!port) return std::unexpected(port.error());
  if (r.hears && r.oif != IfIndex())
    if (auto may = hub().ports.may_name(**port); !may) return std::unexpected(may.error());
  return Route{*hop, *port};
}

Carried<Reach> NextHops::reach(const RouteRequest& r) {
  const auto way = route(r);
  if (!way) return std::unexpected(way.error());
  return Reach{way->hop.src, 1, way->port->device->caps().reopens};
}

/// One request for all connections: it is a system call, and wakes the helper.
void NextHops::ask_for_neighbour(const net::NextHop& hop, Instant now) noexcept {
  Asked& last = asked_[hop.via.bytes()[15] % asked_.size()];
  const bool to_confirm = hop.is_resolved();
  if (last.via == hop.via && last.ifindex == hop.ifindex && last.to_confirm == to_confirm &&
      now - last.at < ask_interval(hop))
    return;
  last = {hop.via, hop.ifindex, now, to_confirm};
  mirror_.request_neighbour(hop.ifindex, hop.via);
}

/// A resolved neighbour needs no request; if the kernel drops it again, the next one is not
/// delayed.
void NextHops::forget_asked(const net::NextHop& hop) noexcept {
  Asked& last = asked_[hop.via.bytes()[15] % asked_.size()];
  if (last.via == hop.via && last.ifindex == hop.ifindex) last = {};
}

uint8_t NextHops::tag_priority(const net::NextHop& hop, const IpSettings& ip) const noexcept {
  if (hop.vlan == VlanId()) return 0;
  const net::Link* const link = hub().reader.snapshot().links->find(hop.ifindex);
  if (link == nullptr || ip.priority >= link->egress_qos.size()) return 0;
  return link->egress_qos[ip.priority];
}

Result<void> NextHops::resolve(CachedRoute& e, IpProto proto, const Endpoint& local,
                               const Endpoint& remote, const IpSettings& ip, Instant now) noexcept {
  net::LookupKey key;
  key.dst = remote.addr;
  key.src = local.addr;
  key.oif = IfIndex(remote.scope);
  key.proto = proto;
  key.sport = local.port;
  key.dport = remote.port;
  key.tos = ip.tos;
  key.mark = ip.mark;
  const auto hop = find(key);
  if (!hop) return std::unexpected(hop.error());
  if (proto == IpProto::kTcp && hop->kind != net::DestKind::kUnicast)
    return fail(ENETUNREACH, "not one host elsewhere");
  if (hop->carrier.value() == 0) return fail(ENETUNREACH, "the route left the carried interfaces");
  if (e.port == nullptr || e.port->link.index != hop->carrier || e.port->dead) {
    auto port = hub().ports.open(hop->carrier);
    if (!port) return fail(ENETUNREACH, port.error().where);
    e.port = *port;
  }
  e.link_mtu = hop->mtu;
  const bool hears = ip.mtu_discover < IP_PMTUDISC_INTERFACE;
  const bool probes = proto == IpProto::kUdp && ip.mtu_discover == IP_PMTUDISC_PROBE;
  e.mtu = hears && !probes ? pmtu_.get(remote.addr, hop->mtu, now) : hop->mtu;
  e.ifindex = hop->ifindex;
  const bool is_lost = e.generation != 0 && !hop->is_resolved();
  if (!net::wants_kick(hop->neighbour)) {
    forget_asked(*hop);
  } else if ((hop->is_resolved() || proto == IpProto::kTcp) &&
             (is_lost || now - e.asked >= ask_interval(*hop))) {
    e.asked = now;
    ask_for_neighbour(*hop, now);
  }
  if (!hop->is_resolved()) {
    e.generation = 0;
    return fail(EAGAIN, "neighbour");
  }
  e.header = wire::HeaderTemplate::build(
      {.src_mac = hop->src_mac,
       .dst_mac = hop->dst_mac,
       .vlan = hop->vlan,
       .proto = proto,
       .src = local.addr,
       .dst = remote.addr,
       .src_port = local.port,
       .dst_port = remote.port,
       .ttl = ip.ttl,
       .tos = ip.tos,
       .dont_fragment = proto == IpProto::kUdp || ip.mtu_discover != IP_PMTUDISC_DONT,
       .vlan_priority = tag_priority(*hop, ip)});
  e.generation = static_cast<uint32_t>(hop->generation);
  return {};
}

Result<void> NextHops::refresh(TcpFlow& f, Instant now) noexcept {
  const uint32_t before = f.egress.mtu;
  auto ok = resolve(f.egress, IpProto::kTcp, f.key.local, f.key.remote, f.ip, now);
  if (ok) f.stalled_since = Instant();
  if (before != 0 && f.egress.mtu != before)
    tcp::set_mss(f.tcb, std::min(mss_of(f.egress.mtu, f.key.v6), f.mss_limit));
  return ok;
}

}  // namespace vireo
