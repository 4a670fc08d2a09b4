// Multicast groups of a UDP flow: join, leave, and delivery to members.
#include <algorithm>
#include <cstring>
#include <utility>

#include "stack/engine/hub.h"

namespace vireo {

Carried<void> UdpFlows::join(UdpFlow& u, const IpAddr& group, IfIndex ifindex) {
  net::LookupKey key;
  key.dst = group;
  key.oif = ifindex;
  key.proto = IpProto::kUdp;
  const auto hop = net::resolve(hub().reader.snapshot(), key);
  if (!hop)
    return std::unexpected(Refusal{Carriage::kNoRoute, hop.error().code, hop.error().where});
  auto port = hub().ports.open(hop->carrier);
  if (!port) return std::unexpected(port.error());
  if (auto may = hub().ports.may_name(**port); !may) return may;
  // Before its key: binding counts the ports by which the group is received.
  u.groups.push_back({group, ifindex, (*port)->link.index, hop->vlan});
  if (auto ok =
          hub().keys.bind_key(DemuxKey::bound(IpProto::kUdp, group, u.key.local.port, false), u);
      !ok) {
    u.groups.pop_back();
    return ok;
  }
  return hub().steering.add_rules(**port, group_key(u, u.groups.back()), {}, u, u.rules);
}

void UdpFlows::leave(UdpFlow& u, const IpAddr& group, IfIndex ifindex) {
  const auto is_left = [&](const UdpGroup& g) { return g.group == group && g.ifindex == ifindex; };
  if (std::erase_if(u.groups, is_left) == 0) return;  // joined on an interface that is not carried
  const auto key = DemuxKey::bound(IpProto::kUdp, group, u.key.local.port, false);
  const bool stays = (!u.key.is_exact() && u.key.local.addr == group) ||
                     std::ranges::find(u.groups, group, &UdpGroup::group) != u.groups.end();
  if (stays) {
    (void)hub().keys.bind_key(key, u);  // the key exists: updates by how many ports the group is
                                        // received
    return;
  }
  // The steering rule stays until the socket closes: frames of a group without members do not
  // arrive anyway, and other members may depend on it.
  std::vector<FlowRule> rules = std::move(u.rules);
  hub().keys.unbind_key(key, u);
  u.rules = std::move(rules);
}

/// Of a group's members, each that receives by `device` gets a copy, and the last one the frame
/// itself. @return false: there is none, and `packet` is unchanged.
bool UdpFlows::deliver_multicast(const std::vector<UdpFlow*>& members, IfIndex device,
                                 PacketChain& packet) noexcept {
  UdpFlow* last = nullptr;
  for (UdpFlow* const u : members) {
    if (u->device != IfIndex() && u->device != device) continue;
    UdpFlow* const to = std::exchange(last, u);
    if (to == nullptr) continue;
    if (!has_room(*to, truesize(packet))) {  // before the cost of a copy
      to->stats->rx_drops.add();
      continue;
    }
    PacketChain copy;
    for (const PacketBuf* p = packet.front(); p != nullptr; p = p->next) {
      PacketBuf* c = hub().pool.take();
      if (c == nullptr) {
        hub().stats.pool_empty.add();
        to->stats->rx_drops.add();
        copy.clear();
        break;
      }
      // With headers: addresses are read from them.
      std::memcpy(c->frame, p->frame, size_t{p->data_at} + p->length);
      c->data_at = p->data_at;
      c->length = p->length;
      c->cookie = p->cookie;
      c->hw_time = p->hw_time;
      copy.push_back(PacketRef(c));
    }
    if (!copy.empty()) deliver(*to, std::move(copy));
  }
  if (last != nullptr) deliver(*last, std::move(packet));
  return last != nullptr;
}

}  // namespace vireo
