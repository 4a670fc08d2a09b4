// The full receive path of a datagram to its sockets.
#include <algorithm>

#include "stack/engine/hub.h"

namespace vireo {
namespace {

using wire::ParsedFrame;

}  // namespace

void Receive::take_udp(Port& port, const ParsedFrame& f, PacketChain packet, Instant now) noexcept {
  const IpAddr dst = f.dst();
  const auto key = DemuxKey::exact(IpProto::kUdp, dst, f.dst_port, f.src(), f.src_port);
  Demux::Ref r = hub().demux.find(key);
  const net::Link* link = nullptr;
  if (r == 0 || !at<UdpBinding>(r).is_plain) {
    link = hub().host.link_of(port, f);
    if (link == nullptr || !hub().host.judge(f.src(), dst, *link).may) {
      hub().stats.rx_unknown_flow.add();
      return;
    }
    if (r == 0) r = hub().keys.find(IpProto::kUdp, dst, f.dst_port);
    if (kind_of(r) != FlowKind::kUdp) {
      if (hub().steering.take_stray(port, f, packet, now)) return;
      hub().stats.rx_unknown_flow.add();
      return;
    }
    UdpBinding& b = at<UdpBinding>(r);
    const bool notes_port =
        f.is_to_group_mac() && hub().ports.all().size() > 1 && (!b.is_plain || !dst.is_multicast());
    if (notes_port) [[unlikely]] {
      const auto place = std::ranges::find(hub().ports.all(), &port) - hub().ports.all().begin();
      packet.front()->cookie |= static_cast<uint32_t>(place + 1) << kPortOfCookie;
    }
    if (b.is_plain) {
      if (!notes_port) hub().demux.remember(key, r);
    } else if (!dst.is_multicast()) {
      return take_by_device(&b, *link, f, std::move(packet));
    }
  }
  const UdpBinding& b = at<UdpBinding>(r);
  if (dst.is_multicast())
    hub().udp.deliver_multicast(b, {f.src(), f.src_port, 0},
                                link != nullptr ? link->index : IfIndex(), std::move(packet));
  else
    hub().udp.deliver(*member_for(b.flows, IfIndex(), f), std::move(packet));
}

/// Which of the sockets bound alike, and to `device`, gets a unicast datagram, as in Linux
/// (net/ipv4/udp.c): the first; if it has SO_REUSEPORT and no peer, the hash of the tuple selects
/// one of those like it. Null: none.
UdpFlow* Receive::member_for(const std::vector<UdpFlow*>& flows, IfIndex device,
                             const ParsedFrame& f) const noexcept {
  const auto found = std::ranges::find(flows, device, &UdpFlow::device);
  if (found == flows.end()) return nullptr;
  UdpFlow* const first = *found;
  if (flows.size() == 1 || !first->reuse_port || first->key.is_exact()) [[likely]]
    return first;
  const uint64_t h =
      tcp::tuple_hash(hub().secret, {f.dst(), f.dst_port, 0}, {f.src(), f.src_port, 0});
  const auto is_alike = [&](const UdpFlow* u) {
    return u->reuse_port && u->device == device && u->key.v6 == first->key.v6 &&
           u->v6only == first->v6only;
  };
  const auto alike = static_cast<uint64_t>(std::ranges::count_if(flows, is_alike));
  auto at = found;  // one of them
  for (uint64_t before = (h >> 32) * alike >> 32; before != 0; --before)
    at = std::find_if(at + 1, flows.end(), is_alike);
  return *at;
}

/// Sockets with the same key that receive by `link`: one bound to that device takes precedence over
/// one bound to none. If there is neither, the next less specific key is tried.
void Receive::take_by_device(UdpBinding* b, const net::Link& link, const ParsedFrame& f,
                             PacketChain packet) noexcept {
  const auto next = [&](const UdpBinding& tried) -> UdpBinding* {
    Demux::Ref r = 0;
    if (tried.key.remote_port != 0)
      r = hub().demux.find_own(DemuxKey::bound(IpProto::kUdp, f.dst(), f.dst_port, f.is_v6));
    if (r == 0)
      r = hub().demux.find_own(DemuxKey::bound(IpProto::kUdp, IpAddr(), f.dst_port, f.is_v6));
    return kind_of(r) == FlowKind::kUdp && &at<UdpBinding>(r) != &tried ? &at<UdpBinding>(r)
                                                                        : nullptr;
  };
  for (; b != nullptr; b = next(*b)) {
    UdpFlow* u = member_for(b->flows, link.index, f);
    if (u == nullptr) u = member_for(b->flows, IfIndex(), f);
    if (u != nullptr) return hub().udp.deliver(*u, std::move(packet));
  }
  hub().stats.rx_unknown_flow.add();
}

}  // namespace vireo
