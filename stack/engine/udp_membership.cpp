// Multicast groups of a UDP flow: join, leave, and delivery to those who hear.
#include <algorithm>
#include <cstring>
#include <utility>

#include "stack/engine/hub.h"

namespace vireo {
namespace {

/// Whether a membership on that interface admits the source: else the host would not take the
/// datagram (net/ipv4/igmp.c ip_check_mc_rcu(), net/ipv6/mcast.c ipv6_chk_mcast_addr()).
bool is_wanted(const UdpBinding& b, const IpAddr& group, const IpAddr& source,
               IfIndex link) noexcept {
  return std::ranges::any_of(b.flows, [&](const UdpFlow* u) {
    return std::ranges::any_of(u->groups, [&](const UdpGroup& g) {
      return g.group == group && g.link == link && g.sources.admits(source);
    });
  });
}

}  // namespace

Result<net::NextHop> UdpFlows::way_to(const IpAddr& group, IfIndex ifindex) const {
  net::LookupKey key;
  key.dst = group;
  key.oif = ifindex;
  key.proto = IpProto::kUdp;
  return net::resolve(hub().reader.snapshot(), key);
}

void UdpFlows::open_for_join(const IpAddr& group, IfIndex ifindex) {
  if (const auto hop = way_to(group, ifindex)) (void)hub().ports.open(hop->carrier);
}

Carried<void> UdpFlows::join(UdpFlow& u, const IpAddr& group, IfIndex ifindex,
                             SourceFilter sources) {
  const uint16_t port = u.key.local.port;
  const auto have = std::ranges::find_if(
      u.groups, [&](const UdpGroup& g) { return g.group == group && g.ifindex == ifindex; });
  if (have != u.groups.end()) {
    have->sources = std::move(sources);
    return hub().keys.renew_group(group, port);
  }
  // Also where the kernel receives the group: in IPv6 a membership counts on every interface.
  UdpGroup& g = u.groups.emplace_back();
  g.group = group;
  g.ifindex = g.link = ifindex;
  g.sources = std::move(sources);
  Carried<void> carried;
  if (const auto hop = way_to(group, ifindex); !hop) {
    carried = std::unexpected(Refusal{Carriage::kNoRoute, hop.error().code, hop.error().where});
  } else if (auto by = hub().ports.open(hop->carrier); !by) {
    carried = std::unexpected(by.error());
  } else {
    carried = hub().ports.may_name(**by);
    if (carried) g.carrier = (*by)->link.index;
    g.link = hop->ifindex;
    g.vlan = hop->vlan;
  }
  const auto renewed = hub().keys.renew_group(group, port);
  return carried ? renewed : carried;
}

void UdpFlows::leave(UdpFlow& u, const IpAddr& group, IfIndex ifindex) {
  const auto is_left = [&](const UdpGroup& g) { return g.group == group && g.ifindex == ifindex; };
  if (std::erase_if(u.groups, is_left) != 0) (void)hub().keys.renew_group(group, u.key.local.port);
}

void UdpFlows::deliver_copy(UdpFlow& u, const PacketChain& packet) noexcept {
  if (!has_room(u, truesize(packet))) {  // before the cost of a copy
    u.stats->rx_drops.add();
    return;
  }
  PacketChain copy;
  for (const PacketBuf* p = packet.front(); p != nullptr; p = p->next) {
    PacketBuf* c = hub().pool.take();
    if (c == nullptr) {
      hub().stats.pool_empty.add();
      u.stats->rx_drops.add();
      return;
    }
    // With headers: addresses are read from them.
    std::memcpy(c->frame, p->frame, size_t{p->data_at} + p->length);
    c->data_at = p->data_at;
    c->length = p->length;
    c->cookie = p->cookie;
    c->take_times(*p);
    copy.push_back(PacketRef(c));
  }
  deliver(u, std::move(copy));
}

void UdpFlows::deliver_multicast(const UdpBinding& b, const Endpoint& source, IfIndex link,
                                 PacketChain packet) noexcept {
  const IpAddr group = IpAddr::v6(b.key.local);
  if (b.asks_each && !is_wanted(b, group, source.addr, link)) return;
  UdpFlow* last = nullptr;
  for (UdpFlow* const u : b.flows) {
    if (b.asks_each && !u->hears(group, source, link)) continue;
    if (UdpFlow* const to = std::exchange(last, u)) deliver_copy(*to, packet);
  }
  if (last != nullptr) deliver(*last, std::move(packet));
}

}  // namespace vireo
