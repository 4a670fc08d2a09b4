// UDP flows: creation and end, and received datagrams.
#include <algorithm>
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

void UdpFlows::leave_to_kernel(UdpFlow& u, Instant now) {
  (void)hub().turn.run(now);  // for the order: then little comes here behind what the kernel gets
  while (!u.queue.empty()) {
    PacketChain packet;
    do packet.push_back(u.queue.pop_front());
    while (packet.back()->offset != 0);  // it continues in the next buffer
    PacketBuf& first = *packet.front();
    const unsigned header = header_bytes(first);
    const wire::ParsedFrame f = wire::parse_frame({first.data() - header, header + first.length},
                                                  packet.bytes() - first.length);
    Port* const port = f ? hub().host.port_of(u, first, f) : nullptr;
    // A socket of the same key would get a second copy.
    const Demux::Ref r =
        hub().demux.find_own(DemuxKey::bound(IpProto::kUdp, f.dst(), f.dst_port, f.is_v6));
    const bool is_shared = kind_of(r) == FlowKind::kUdp && at<UdpBinding>(r).flows.size() > 1;
    if (port != nullptr && !(is_shared && f.dst().is_multicast()))
      (void)hub().steering.give_to_kernel(*port, f, packet);
  }
  hub().steering.expect_strays(u.key, now);
  close(u);
}

Carried<void> UdpFlows::hear_by(UdpFlow& u, IfIndex device) {
  if (u.device == device) return {};
  hub().keys.unbind(u);  // its rules stay with the flows that share them
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

/// @return false: no room, the datagram is dropped.
bool UdpFlows::keep(UdpFlow& u, PacketChain packet) noexcept {
  uint32_t cost = 0;
  for (PacketBuf* p = packet.front(); p != nullptr; p = p->next) {
    cost += truesize(*p);
    p->offset = p->next != nullptr ? 1 : 0;  // 1: the datagram continues in the next buffer
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

}  // namespace vireo
