// Multicast groups of a UDP flow: joined, left, and who of the members gets a datagram.
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
  // Before its key, which asks by how many ports it is heard.
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
  if (std::erase_if(u.groups, is_left) == 0) return;  // by an interface that is not carried
  const auto key = DemuxKey::bound(IpProto::kUdp, group, u.key.local.port, false);
  const bool stays = (!u.key.is_exact() && u.key.local.addr == group) ||
                     std::ranges::find(u.groups, group, &UdpGroup::group) != u.groups.end();
  if (stays) {
    (void)hub().keys.bind_key(key, u);  // it has it: by how many ports is asked anew
    return;
  }
  // The steering rule stays until the socket closes: frames of a group nobody joined do not come
  // anyway, and other members may depend on it.
  std::vector<FlowRule> rules = std::move(u.rules);
  hub().keys.unbind_key(key, u);
  u.rules = std::move(rules);
}

/// Of a group's members, those that hear what came by `device` get a copy each, and the last of
/// them the frame itself. @return false: there is none, and the packet is still there.
bool UdpFlows::deliver_multicast(const std::vector<UdpFlow*>& members, IfIndex device,
                                 PacketChain& packet) noexcept {
  UdpFlow* last = nullptr;
  for (UdpFlow* const u : members) {
    if (u->device != IfIndex() && u->device != device) continue;
    UdpFlow* const to = std::exchange(last, u);
    if (to == nullptr) continue;
    if (!has_room(*to, truesize(packet))) {  // before it costs a copy
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
      // Headers too: addresses are read from them.
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
