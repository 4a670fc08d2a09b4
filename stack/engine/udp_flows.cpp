// UDP flows: their life, and datagrams on their way in.
#include <algorithm>
#include <cstring>
#include <utility>

#include "stack/engine/hub.h"

namespace vireo {

Carried<UdpFlow*> UdpFlows::open(const Endpoint& local, const Endpoint& remote, bool v6only,
                                 void* owner, SocketStats& stats, IfIndex device) {
  UdpFlow* u = flows_.alloc();
  if (u == nullptr) return std::unexpected(Refusal{Carriage::kMemory, ENOMEM, "UDP flows"});
  u->kind = FlowKind::kUdp;
  u->tag = FlowTag(flows_.handle(*u).index + 1);
  u->key = FlowKey{IpProto::kUdp, !local.addr.is_v4(), VlanId(), local, remote};
  u->v6only = v6only;
  u->device = device;
  u->owner = owner;
  u->stats = &stats;
  if (auto ok = hub().keys.bind(*u); !ok) {
    flows_.free(*u);
    return std::unexpected(ok.error());
  }
  if (auto ok = hub().steering.add_bound_rules(*u, device, u->rules); !ok) {
    hub().keys.unbind(*u);
    flows_.free(*u);
    return std::unexpected(ok.error());
  }
  if (u->key.is_exact()) u->exact = &at<UdpBinding>(hub().demux.find_own(demux_key(u->key)));
  bound_.push_back(u);
  hub().wakeups.count_flow();
  hub().stats.udp_flows.add();
  return u;
}

void UdpFlows::close(UdpFlow& u) {
  hub().keys.unbind(u);
  std::erase(bound_, &u);
  hub().wakeups.uncount_flow();
  flows_.free(u);
}

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

Carried<void> UdpFlows::hear_by(UdpFlow& u, IfIndex device) {
  if (u.device == device) return {};
  hub().keys.unbind(u);  // which leaves its rules to those that it shares them with
  u.rules.clear();
  u.device = device;
  if (auto ok = hub().keys.bind(u); !ok) return ok;
  u.exact = u.key.is_exact() ? &at<UdpBinding>(hub().demux.find_own(demux_key(u.key))) : nullptr;
  if (auto ok = hub().steering.add_bound_rules(u, device, u.rules); !ok) return ok;
  for (const UdpGroup& g : u.groups) {
    if (auto ok = hub().keys.bind_key(
            DemuxKey::bound(IpProto::kUdp, g.group, u.key.local.port, false), u);
        !ok)
      return ok;
    for (Port* p : hub().ports.all())
      if (p->link.index == g.carrier && !p->dead)
        if (auto ok = hub().steering.add_rules(*p, group_key(u, g), {}, u, u.rules); !ok) return ok;
  }
  return {};
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

/// @return false: there is no room, and it is lost.
bool UdpFlows::keep(UdpFlow& u, PacketChain packet) noexcept {
  uint32_t cost = 0;
  for (PacketBuf* p = packet.front(); p != nullptr; p = p->next) {
    cost += truesize(*p);
    p->offset = p->next != nullptr ? 1 : 0;  // 1: the datagram goes on in the next buffer
  }
  if (!take_room(u, cost)) return false;
  u.stats->rx_packets.add();
  u.stats->rx_bytes.add(packet.bytes());
  u.queue.append(std::move(packet));
  return true;
}

void UdpFlows::deliver(UdpFlow& u, PacketChain packet) noexcept {
  if (keep(u, std::move(packet))) hub().notifications.note(u);
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
