// UDP flows: creation and end, and received datagrams.
#include <algorithm>
#include <utility>

#include "stack/engine/hub.h"

namespace vireo {

Carried<UdpFlow*> UdpFlows::open(const Endpoint& local, const Endpoint& remote, bool v6only,
                                 void* owner, SocketStats& stats, IfIndex device, uint64_t cookie) {
  UdpFlow* u = flows_.alloc();
  if (u == nullptr) return std::unexpected(Refusal{Carriage::kMemory, ENOMEM, "UDP flows"});
  u->kind = FlowKind::kUdp;
  u->tag = FlowTag(flows_.handle(*u).index + 1);
  u->key = FlowKey{IpProto::kUdp, !local.addr.is_v4(), VlanId(), local, remote};
  u->v6only = v6only;
  u->device = device;
  u->owner = owner;
  u->stats = &stats;
  u->cookie = cookie;
  Carried<void> ok = hub().steering.open_ports(*u);
  if (ok) {
    bound_.push_back(u);
    ok = bind(*u);
  }
  if (!ok) {
    std::erase(bound_, u);
    flows_.free(*u);
    return std::unexpected(ok.error());
  }
  hub().wakeups.count_flow();
  hub().stats.udp_flows.add();
  return u;
}

Carried<void> UdpFlows::bind(UdpFlow& u) {
  u.exact = nullptr;
  if (auto ok = hub().keys.bind(u); !ok) return ok;
  if (u.key.is_exact() && !u.key.local.addr.is_multicast())
    u.exact = &at<UdpBinding>(hub().demux.find_own(demux_key(u.key)));
  return {};
}

void UdpFlows::close(UdpFlow& u) {
  hub().ports.ask_arrivals(u, false);
  hub().keys.unbind(u);
  std::erase(bound_, &u);
  hub().wakeups.uncount_flow();
  flows_.free(u);
}

void UdpFlows::leave_to_kernel(UdpFlow& u, Instant now, const std::function<void()>& hear_copied) {
  (void)hub().turn.run(now);  // for the order: then little comes here behind what the kernel gets
  // What is copied from here on the kernel's socket hears, too.
  PacketChain queue = std::move(u.queue);
  if (hear_copied) hear_copied();
  while (!queue.empty()) {
    PacketChain packet;
    do packet.push_back(queue.pop_front());
    while (packet.back()->offset != 0);  // it continues in the next buffer
    PacketBuf& first = *packet.front();
    const unsigned header = header_bytes(first);
    const wire::ParsedFrame f = wire::parse_frame({first.data() - header, header + first.length},
                                                  packet.bytes() - first.length);
    Port* const port = f ? hub().host.port_of(u, first, f) : nullptr;
    // Others that have had it would get a second copy.
    const Demux::Ref r =
        hub().demux.find_own(DemuxKey::bound(IpProto::kUdp, f.dst(), f.dst_port, f.is_v6));
    const bool have_others = kind_of(r) == FlowKind::kUdp &&
                             (at<UdpBinding>(r).flows.size() > 1 || at<UdpBinding>(r).is_copied);
    if (port != nullptr && !(have_others && f.dst().is_multicast()))
      (void)hub().steering.give_to_kernel(*port, f, packet);
  }
  const bool is_copied = std::ranges::any_of(u.groups, [&](const UdpGroup& g) {
    const Demux::Ref r = hub().demux.find_own(group_key(g.group, u.key.local.port));
    return kind_of(r) == FlowKind::kUdp && at<UdpBinding>(r).is_copied;
  });
  hub().steering.expect_strays(u.key, now,
                               is_copied ? Steering::Groups::kNone : Steering::Groups::kToo);
  close(u);
}

Carried<void> UdpFlows::hear_by(UdpFlow& u, IfIndex device) {
  if (u.device == device) return {};
  hub().keys.unbind(u);
  u.device = device;
  if (auto ok = hub().steering.open_ports(u); !ok) {
    (void)bind(u);  // its owner closes it
    return ok;
  }
  return bind(u);
}

void UdpFlows::heed_sharers(uint16_t port, std::vector<net::DiagSocket> there, uint64_t opening) {
  if (!sharers_.heed(port, std::move(there))) return;
  sharers_.expect(opening);
  hub().keys.renew_all(port);
  sharers_.expect(0);
}

void UdpFlows::forget_sharers(uint16_t port) {
  if (sharers_.forget(port)) hub().keys.renew_all(port);
}

void UdpFlows::hear_all(UdpFlow& u, bool all4, bool all6) {
  if (u.hears_all4 == all4 && u.hears_all6 == all6) return;
  u.hears_all4 = all4;
  u.hears_all6 = all6;
  hub().keys.renew(u);
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
