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

/// Resolves the egress again.
Result<void> UdpFlows::refresh_egress(UdpFlow& u, Instant now) noexcept {
  const bool is_asked = u.asked_to.port != 0;
  Endpoint to = u.goes_to();
  if (is_asked && u.asked.by != IfIndex())
    to.scope = u.asked.by.value();
  else if (u.device != IfIndex())
    to.scope = u.device.value();
  const auto way = hub().next_hops.resolve(u.egress, IpProto::kUdp, u.egress_from, to,
                                           is_asked ? u.asked.ip : ip_to(u, to), now);
  if (way) {
    u.path_mtu = u.egress.mtu;
    if (u.fragment_bytes != 0 && !to.addr.is_v4())
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

/// What of a message is still to be copied.
class UdpFlows::Payload {
 public:
  explicit Payload(std::span<const iovec> data) noexcept : pieces_(data) {
    for (const iovec& v : data) left_ += v.iov_len;
  }
  size_t left() const noexcept { return left_; }
  /// Up to `most` bytes, all of one piece; not called once nothing is left.
  std::span<const std::byte> take(size_t most) noexcept {
    while (offset_ == pieces_.front().iov_len) {
      pieces_ = pieces_.subspan(1);
      offset_ = 0;
    }
    const iovec& v = pieces_.front();
    const size_t n = std::min(most, v.iov_len - offset_);
    const auto* const at = static_cast<const std::byte*>(v.iov_base) + offset_;
    offset_ += n;
    left_ -= n;
    return {at, n};
  }

 private:
  std::span<const iovec> pieces_;
  size_t offset_ = 0;  ///< in the first
  size_t left_ = 0;
};

/// Copies the next `bytes` of a payload, which are readable.
Result<void> UdpFlows::fill(Payload& from, size_t bytes, Datagram& d) noexcept {
  const uint32_t room = hub().pool.frame_bytes() - PacketPool::kHeadroom;
  PacketRef p;
  for (size_t done = 0; done < bytes;) {
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
    const auto piece = from.take(std::min<size_t>(bytes - done, room - p->length));
    const checksum::Sum s =
        checksum::copy_and_sum(p->data() + p->length, piece.data(), piece.size());
    d.sum = checksum::combine(d.sum, s, done % 2 != 0);
    p->length = static_cast<uint16_t>(p->length + piece.size());
    done += piece.size();
  }
  if (p) d.body.push_back(std::move(p));
  return {};
}

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
  Payload all(data);
  return fill(all, all.left(), d);
}

Result<void> UdpFlows::emit(UdpFlow& u, const Datagram& d, Doorbell bell, bool is_told) noexcept {
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
  const int64_t left_at = u.is_watched ? Clock::wall_ns() : 0;
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
  if (u.is_watched && is_told) [[unlikely]]
    hub().events.udp_left(u,
                          {frame.head, frame.body, d.body.bytes(), 0, u.egress.ifindex, left_at});
  return {};
}

/// UDP_SEGMENT: datagrams of `segment` bytes, the last of what is left. Once the first has left,
/// the others follow; if the ring stays full they are lost, as in a full queue of the kernel's.
Result<void> UdpFlows::send_segments(UdpFlow& u, Payload from, size_t segment,
                                     Doorbell bell) noexcept {
  constexpr int kTries = 1000;
  const uint32_t room = hub().pool.frame_bytes() - PacketPool::kHeadroom;
  const size_t frames = (from.left() / segment + 1) * ((segment + room - 1) / room);
  if (hub().pool.ready_count() < frames) {
    hub().ports.reap();
    if (hub().pool.ready_count() < frames) {
      hub().stats.pool_empty.add();
      return fail(ENOBUFS, "packet pool");
    }
  }
  for (bool is_first = true; from.left() != 0; is_first = false) {
    Datagram d;
    if (auto ok = fill(from, std::min(segment, from.left()), d); !ok) return ok;
    const Doorbell now = from.left() != 0 ? Doorbell::kLater : bell;
    // The first tells of all (net/ipv4/udp_offload.c __udp_gso_segment()).
    auto sent = emit(u, d, now, is_first);
    for (int i = 0; !sent && !is_first && i < kTries; ++i) sent = emit(u, d, now, false);
    if (!sent && is_first) return sent;
    if (!sent) break;
  }
  return {};
}

Result<void> UdpFlows::send(UdpFlow& u, const Route&, const Endpoint& src, const Endpoint& dst,
                            const UdpMessage& m, Doorbell bell, Instant now) noexcept {
  if (m.asked != nullptr)
    u.go_to(dst, *m.asked);
  else
    u.go_to(dst);
  u.egress_from = src;
  u.egress.generation = 0;
  return send_cached(u, dst, m, bell, now);
}

Result<void> UdpFlows::send_cached(UdpFlow& u, const Endpoint& dst, const UdpMessage& m,
                                   Doorbell bell, Instant now) noexcept {
  const bool is_same = m.asked == nullptr ? u.egress_to == dst && u.egress_to.port != 0
                                          : u.asked_to == dst && u.asked == *m.asked;
  if (!is_same) return fail(ENOENT, "egress");
  if (!hub().is_current(u.egress)) [[unlikely]]
    if (const auto way = refresh_egress(u, now); !way) return fail(EHOSTUNREACH, way.error().where);
  size_t n = 0;
  for (const iovec& v : m.data) n += v.iov_len;
  const size_t most = m.segment != 0 ? std::min<size_t>(n, m.segment) : n;
  const size_t head = dst.addr.is_v4() ? 28 : 48;
  // Kernels differ in whether a segment may be longer than a packet if the message is not.
  if (most + head > u.egress.mtu || (most < m.segment && m.segment + head > u.egress.link_mtu))
    return fail(EMSGSIZE, "path MTU");
  if (most < n) return send_segments(u, Payload(m.data), most, bell);
  Datagram d;
  if (auto ok = make_datagram(m.data, d); !ok) return ok;
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
