// Sending datagrams; those with plain headers have a shorter path in fast_path/send_plain.h.
#include <algorithm>

#include "core/checksum.h"
#include "core/user_memory.h"
#include "stack/engine/hub.h"
#include "stack/engine/left_frame.h"

namespace vireo {
namespace {

constexpr unsigned kMaxFrames = 40;  ///< 64 KiB in frames of 1.75 KiB

IpSettings ip_to(const UdpFlow& u, const Endpoint& dst) {
  IpSettings ip = u.ip;
  if (dst.addr.is_multicast()) ip.ttl = u.multicast_ttl;
  return ip;
}

}  // namespace

/// Resolves the egress to egress_to again.
Result<void> UdpFlows::refresh_egress(UdpFlow& u, Instant now) noexcept {
  Endpoint to = u.egress_to;
  if (u.device != IfIndex()) to.scope = u.device.value();
  const auto way = hub().next_hops.resolve(u.egress, IpProto::kUdp, u.egress_from, to,
                                           ip_to(u, u.egress_to), now);
  if (way) {
    u.path_mtu = u.egress.mtu;
    if (u.fragment_bytes != 0 && !u.egress_to.addr.is_v4())
      u.egress.mtu = std::min(u.egress.mtu, u.fragment_bytes);
  }
  const bool is_plain = way.has_value() && u.egress.header.is_plain_udp() && u.egress.mtu > 28;
  u.plain_room =
      is_plain ? std::min(u.egress.mtu - 28, hub().pool.frame_bytes() - PacketPool::kHeadroom) + 1
               : 0;
  return way;
}

/// A payload copied into buffers, with its sum.
struct UdpFlows::Datagram {
  PacketChain body;
  checksum::Sum sum = 0;
};

Result<void> UdpFlows::make_datagram(std::span<const iovec> data, Datagram& d) noexcept {
  const uint32_t room = hub().pool.frame_bytes() - PacketPool::kHeadroom;
  for (const iovec& v : data)
    if (v.iov_len != 0 && !is_readable(v.iov_base, v.iov_len)) [[unlikely]]
      return fail(EFAULT, "datagram");
  if (data.size() == 1 && data[0].iov_len <= room) [[likely]] {
    if (PacketBuf* const p = hub().pool.take(); p != nullptr) [[likely]] {
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
        p.reset(hub().pool.take());
        if (!p) {
          hub().ports.reap();
          p.reset(hub().pool.take());
        }
        if (!p || d.body.buffers() == kMaxFrames) {
          hub().stats.pool_empty.add();
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

Result<void> UdpFlows::emit(UdpFlow& u, const Datagram& d, Doorbell bell) noexcept {
  alignas(16) std::byte room[wire::HeaderTemplate::kMaxBytes];
  std::byte* head = room;
  // Right in front of the payload, where the device may leave it.
  if (d.body.buffers() == 1 && d.body.front()->device_refs == 0) [[likely]]
    head = d.body.front()->data() - u.egress.header.size();
  const size_t h =
      u.egress.header.emit_udp(head, {.payload_bytes = d.body.bytes(), .payload_sum = d.sum});
  PacketSlice slices[kMaxFrames];
  size_t count = 0;
  for (PacketBuf* p = d.body.front(); p != nullptr; p = p->next)
    slices[count++] = {p, p->data_at, p->length};
  const TxFrame frame{{head, h}, {slices, count}, 0};
  hub().turn.end_idling();
  const int64_t queued_at = u.is_watched ? Clock::wall_ns() : 0;
  Queue& q = u.egress.port->queue();
  if (!q.tx(frame, bell)) {
    q.tx_flush();
    q.tx_reap();
    if (!q.tx(frame, bell)) {
      hub().stats.tx_ring_full.add();
      return fail(EAGAIN, "transmit ring");
    }
  }
  count_sent(u, h, d.body.bytes());
  if (u.is_watched) [[unlikely]]
    hub().events.udp_left(u, {frame.head, frame.body, d.body.bytes(), 0, u.egress.ifindex,
                              queued_at, Clock::wall_ns()});
  return {};
}

Result<void> UdpFlows::send(UdpFlow& u, const Route&, const Endpoint& src, const Endpoint& dst,
                            std::span<const iovec> data, Doorbell bell, Instant now) noexcept {
  u.go_to(dst);
  u.egress_from = src;
  u.egress.generation = 0;
  return send_cached(u, dst, data, bell, now);
}

Result<void> UdpFlows::send_cached(UdpFlow& u, const Endpoint& dst, std::span<const iovec> data,
                                   Doorbell bell, Instant now) noexcept {
  if (u.egress_to != dst || u.egress_to.port == 0) return fail(ENOENT, "egress");
  if (!hub().is_current(u.egress)) [[unlikely]]
    if (const auto way = refresh_egress(u, now); !way) return fail(EHOSTUNREACH, way.error().where);
  size_t n = 0;
  for (const iovec& v : data) n += v.iov_len;
  if (n + (dst.addr.is_v4() ? 28 : 48) > u.egress.mtu) return fail(EMSGSIZE, "path MTU");
  Datagram d;
  if (auto ok = make_datagram(data, d); !ok) return ok;
  return emit(u, d, bell);
}

bool UdpFlows::send_datagram(UdpFlow& u, const iovec& data, Doorbell bell) noexcept {
  const CachedRoute& way = u.egress;
  const size_t n = data.iov_len;
  if (!hub().is_current(way) || n > hub().pool.frame_bytes() - PacketPool::kHeadroom ||
      (n != 0 && !is_readable(data.iov_base, n)) ||
      n + way.header.size() > way.mtu + way.header.l3_at()) [[unlikely]]
    return false;
  const PacketRef p(hub().pool.take());
  if (!p) [[unlikely]]
    return false;
  p->length = static_cast<uint16_t>(n);
  const checksum::Sum sum = checksum::copy_and_sum(p->data(), data.iov_base, n);
  // Right in front of the payload, where the device may leave it.
  const size_t h =
      way.header.emit_udp(p->data() - way.header.size(),
                          {.payload_bytes = static_cast<uint32_t>(n), .payload_sum = sum});
  const PacketSlice slice{p.get(), p->data_at, p->length};
  if (!way.port->queue().tx({{p->data() - h, h}, {&slice, 1}, 0}, bell)) [[unlikely]]
    return false;
  hub()
      .turn.end_idling();  // what the device has read is reaped in the next turn that finds nothing
  count_sent(u, h, n);
  return true;
}

}  // namespace vireo
