// UDP flows: datagrams in by key, datagrams out by the egress of the last destination.
#include <algorithm>

#include "core/checksum.h"
#include "core/user_memory.h"
#include "stack/engine/engine.h"
#include "stack/net/lookup.h"

namespace vireo {
namespace {

constexpr unsigned kMaxFrames = 40;  ///< 64 KiB in frames of 1.75 KiB

}  // namespace

/// A payload copied into frames, with its sum.
struct Engine::Datagram {
  PacketChain body;
  checksum::Sum sum = 0;
};

Carried<UdpFlow*> Engine::udp_open(const Endpoint& local, const Endpoint& remote, bool v6only,
                                   void* owner, SocketStats& stats, IfIndex device) {
  UdpFlow* u = udp_.alloc();
  if (u == nullptr) return std::unexpected(Refusal{Carriage::kMemory, ENOMEM, "UDP flows"});
  u->kind = FlowKind::kUdp;
  u->tag = FlowTag(udp_.handle(*u).index + 1);
  u->key = FlowKey{IpProto::kUdp, !local.addr.is_v4(), VlanId(), local, remote};
  u->v6only = v6only;
  u->device = device;
  u->owner = owner;
  u->stats = &stats;
  if (auto ok = bind_keys(*u); !ok) {
    udp_.free(*u);
    return std::unexpected(ok.error());
  }
  if (auto ok = steer_bound(*u, device, u->rules); !ok) {
    unbind_keys(*u);
    udp_.free(*u);
    return std::unexpected(ok.error());
  }
  if (u->key.is_exact()) u->exact = &at<UdpBinding>(demux_.find_own(demux_key(u->key)));
  bound_udp_.push_back(u);
  count_flow();
  stats_.udp_flows.add();
  return u;
}

void Engine::udp_close(UdpFlow& u) {
  unbind_keys(u);
  std::erase(bound_udp_, &u);
  flow_count_.fetch_sub(1, std::memory_order_relaxed);
  udp_.free(u);
}

Carried<void> Engine::udp_join(UdpFlow& u, const IpAddr& group, IfIndex ifindex) {
  net::LookupKey key;
  key.dst = group;
  key.oif = ifindex;
  key.proto = IpProto::kUdp;
  const auto hop = net::resolve(reader_.snapshot(), key);
  if (!hop)
    return std::unexpected(Refusal{Carriage::kNoRoute, hop.error().code, hop.error().where});
  auto port = open_port(hop->carrier);
  if (!port) return std::unexpected(port.error());
  if (auto may = may_name(**port); !may) return may;
  // Before its key, which asks by how many ports it is heard.
  u.groups.push_back({group, ifindex, (*port)->link.index, hop->vlan});
  if (auto ok = bind_key(DemuxKey::bound(IpProto::kUdp, group, u.key.local.port, false), u); !ok) {
    u.groups.pop_back();
    return ok;
  }
  return steer_on(**port, group_key(u, u.groups.back()), {}, u, u.rules);
}

Carried<void> Engine::hear_by(UdpFlow& u, IfIndex device) {
  if (u.device == device) return {};
  unbind_keys(u);  // which leaves its rules to those that it shares them with
  u.rules.clear();
  u.device = device;
  if (auto ok = bind_keys(u); !ok) return ok;
  u.exact = u.key.is_exact() ? &at<UdpBinding>(demux_.find_own(demux_key(u.key))) : nullptr;
  if (auto ok = steer_bound(u, device, u.rules); !ok) return ok;
  for (const UdpGroup& g : u.groups) {
    if (auto ok = bind_key(DemuxKey::bound(IpProto::kUdp, g.group, u.key.local.port, false), u);
        !ok)
      return ok;
    for (Port* p : ports_)
      if (p->link.index == g.carrier && !p->dead)
        if (auto ok = steer_on(*p, group_key(u, g), {}, u, u.rules); !ok) return ok;
  }
  return {};
}

void Engine::udp_leave(UdpFlow& u, const IpAddr& group, IfIndex ifindex) {
  const auto is_left = [&](const UdpGroup& g) { return g.group == group && g.ifindex == ifindex; };
  if (std::erase_if(u.groups, is_left) == 0) return;  // by an interface that is not carried
  const auto key = DemuxKey::bound(IpProto::kUdp, group, u.key.local.port, false);
  const bool stays = (!u.key.is_exact() && u.key.local.addr == group) ||
                     std::ranges::find(u.groups, group, &UdpGroup::group) != u.groups.end();
  if (stays) {
    (void)bind_key(key, u);  // it has it: by how many ports is asked anew
    return;
  }
  // The steering rule stays until the socket closes: frames of a group nobody joined do not come
  // anyway, and other members may depend on it.
  std::vector<FlowRule> rules = std::move(u.rules);
  unbind_key(key, u);
  u.rules = std::move(rules);
}

// ---- in

void Engine::note_udp(UdpFlow& u) noexcept {
  lull_ = 0;
  deadlines_moved_ = true;
  if (!u.notify_hook.is_linked()) notify_udp_.push_back(u);
}

/// @return false: there is no room, and it is lost.
bool Engine::keep_datagram(UdpFlow& u, PacketChain packet) noexcept {
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

void Engine::deliver_udp(UdpFlow& u, PacketChain packet) noexcept {
  if (keep_datagram(u, std::move(packet))) note_udp(u);
}

/// Of a group's members, those that hear what came by `device` get a copy each, and the last of
/// them the frame itself. @return false: there is none, and the packet is still there.
bool Engine::deliver_multicast(const std::vector<UdpFlow*>& members, IfIndex device,
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
      PacketBuf* c = pool_->take();
      if (c == nullptr) {
        stats_.pool_empty.add();
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
    if (!copy.empty()) deliver_udp(*to, std::move(copy));
  }
  if (last != nullptr) deliver_udp(*last, std::move(packet));
  return last != nullptr;
}

// ---- out

namespace {

IpSettings ip_to(const UdpFlow& u, const Endpoint& dst) {
  IpSettings ip = u.ip;
  if (dst.addr.is_multicast()) ip.ttl = u.multicast_ttl;
  return ip;
}

}  // namespace

/// Looks the way to egress_to up again.
Result<void> Engine::refresh_egress(UdpFlow& u, Instant now) noexcept {
  Endpoint to = u.egress_to;
  if (u.device != IfIndex()) to.scope = u.device.value();
  const auto way =
      resolve_egress(u.egress, IpProto::kUdp, u.egress_from, to, ip_to(u, u.egress_to), now);
  if (way) {
    u.path_mtu = u.egress.mtu;
    if (u.fragment_bytes != 0 && !u.egress_to.addr.is_v4())
      u.egress.mtu = std::min(u.egress.mtu, u.fragment_bytes);
  }
  const bool is_plain = way.has_value() && u.egress.header.is_plain_udp() && u.egress.mtu > 28;
  u.plain_room =
      is_plain ? std::min(u.egress.mtu - 28, pool_->frame_bytes() - PacketPool::kHeadroom) + 1 : 0;
  return way;
}

Result<void> Engine::make_datagram(std::span<const iovec> data, Datagram& d) noexcept {
  const uint32_t room = pool_->frame_bytes() - PacketPool::kHeadroom;
  for (const iovec& v : data)
    if (v.iov_len != 0 && !is_readable(v.iov_base, v.iov_len)) [[unlikely]]
      return fail(EFAULT, "datagram");
  if (data.size() == 1 && data[0].iov_len <= room) [[likely]] {
    if (PacketBuf* const p = pool_->take(); p != nullptr) [[likely]] {
      const auto n = static_cast<uint16_t>(data[0].iov_len);
      d.sum = checksum::copy_and_sum(p->data(), data[0].iov_base, n);
      p->length = n;
      d.body.push_back(PacketRef(p));
      return {};
    }
  }
  PacketRef p;
  uint32_t total = 0;
  for (const iovec& v : data) {
    for (size_t at = 0; at < v.iov_len;) {
      if (!p || p->length == room) {
        if (p) d.body.push_back(std::move(p));
        p.reset(pool_->take());
        if (!p) {
          queue_reap();
          p.reset(pool_->take());
        }
        if (!p || d.body.buffers() == kMaxFrames) {
          stats_.pool_empty.add();
          return fail(ENOBUFS, "packet pool");
        }
      }
      const size_t n = std::min<size_t>(v.iov_len - at, room - p->length);
      const checksum::Sum s = checksum::copy_and_sum(
          p->data() + p->length, static_cast<const std::byte*>(v.iov_base) + at, n);
      d.sum = checksum::combine(d.sum, s, total % 2 != 0);
      p->length = static_cast<uint16_t>(p->length + n);
      total += static_cast<uint32_t>(n);
      at += n;
    }
  }
  if (p) d.body.push_back(std::move(p));
  return {};
}

Result<void> Engine::emit_udp(UdpFlow& u, const Datagram& d, Doorbell bell) noexcept {
  alignas(16) std::byte room[wire::HeaderTemplate::kMaxBytes];
  std::byte* head = room;
  // Right before the payload, where the device may leave it.
  if (d.body.buffers() == 1 && d.body.front()->device_refs == 0) [[likely]]
    head = d.body.front()->data() - u.egress.header.size();
  const size_t h =
      u.egress.header.emit_udp(head, {.payload_bytes = d.body.bytes(), .payload_sum = d.sum});
  PacketSlice slices[kMaxFrames];
  size_t count = 0;
  for (PacketBuf* p = d.body.front(); p != nullptr; p = p->next)
    slices[count++] = {p, p->data_at, p->length};
  const TxFrame frame{{head, h}, {slices, count}, 0};
  lull_ = 0;
  Queue& q = u.egress.port->queue();
  if (!q.tx(frame, bell)) {
    q.tx_flush();
    q.tx_reap();
    if (!q.tx(frame, bell)) {
      stats_.tx_ring_full.add();
      return fail(EAGAIN, "transmit ring");
    }
  }
  count_sent(u, h, d.body.bytes());
  return {};
}

Result<void> Engine::udp_send(UdpFlow& u, const Route&, const Endpoint& src, const Endpoint& dst,
                              std::span<const iovec> data, Doorbell bell, Instant now) noexcept {
  u.go_to(dst);
  u.egress_from = src;
  u.egress.generation = 0;
  return udp_send_cached(u, dst, data, bell, now);
}

Result<void> Engine::udp_send_cached(UdpFlow& u, const Endpoint& dst, std::span<const iovec> data,
                                     Doorbell bell, Instant now) noexcept {
  if (u.egress_to != dst || u.egress_to.port == 0) return fail(ENOENT, "egress");
  if (u.egress.generation != static_cast<uint32_t>(reader_.generation())) [[unlikely]]
    if (const auto way = refresh_egress(u, now); !way) return fail(EHOSTUNREACH, way.error().where);
  size_t n = 0;
  for (const iovec& v : data) n += v.iov_len;
  if (n + (dst.addr.is_v4() ? 28 : 48) > u.egress.mtu) return fail(EMSGSIZE, "path MTU");
  Datagram d;
  if (auto ok = make_datagram(data, d); !ok) return ok;
  return emit_udp(u, d, bell);
}

}  // namespace vireo
