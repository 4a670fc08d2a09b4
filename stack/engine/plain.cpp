// The short ways of a plain TCP segment and a plain datagram: in, from the frame to the receive
// queue; out, from the program's bytes to the doorbell. Whatever is not as it nearly always is goes
// the full way, in receive.cpp, transmit.cpp and udp_flows.cpp, and nothing here has happened to
// it.
#include "stack/wire/plain.h"
#include "stack/engine/engine.h"
#include "stack/tcp/lone.h"
#include "stack/tcp/predicted.h"

namespace vireo {

/// A frame in one buffer, `alone` in its burst. @return false: nothing was done.
bool Engine::receive_plain(RxDesc& d, bool alone, Instant now) noexcept {
  wire::PlainIp ip;
  switch (ip.read(d.packet->data(), d.packet->length)) {
    case static_cast<unsigned>(IpProto::kTcp):
      return receive_expected(d, ip, alone, now);
    case static_cast<unsigned>(IpProto::kUdp):
      return receive_datagram(d, ip, alone);
    default:
      return false;
  }
}

/// The segment that a connection expects next.
bool Engine::receive_expected(RxDesc& d, const wire::PlainIp& ip, bool alone,
                              Instant now) noexcept {
  PacketBuf& p = *d.packet;
  wire::PlainTcp s(ip);
  if (!s.read_tcp()) return false;
  TcpFlow* f = heard_;
  if (f == nullptr || !s.is_between(f->key.local, f->key.remote)) {
    const Demux::Ref found =
        demux_.find(DemuxKey::exact(IpProto::kTcp, s.dst(), s.dst_port(), s.src(), s.src_port()));
    if (kind_of(found) != FlowKind::kTcp) return false;
    f = heard_ = &at<TcpFlow>(found);
  }
  tcp::PlainSegment segment{.seq = s.seq(),
                            .ack = s.ack(),
                            .length = s.payload_bytes(),
                            .window = s.window(),
                            .has_ts = s.has_timestamps(),
                            .is_marked = s.is_marked()};
  if (segment.has_ts) [[likely]] {
    segment.ts_val = s.ts_val();
    segment.ts_echo = s.ts_echo();
  }
  if (!tcp::is_predicted(f->tcb, segment) || f->owner == nullptr ||
      pool_->free_count() < low_water_)
    return false;
  if (!has(d.flags, RxFlags::kIpOk) && !s.is_ip_sum_good()) [[unlikely]]
    return false;
  if (!has(d.flags, RxFlags::kL4Ok) && !s.is_l4_sum_good(IpProto::kTcp)) [[unlikely]]
    return false;

  stats_.rx_packets.add();
  stats_.rx_bytes.add(p.length);
  f->stats->rx_packets.add();
  f->stats->rx_bytes.add(segment.length);
  PacketChain payload;
  if (segment.length != 0) {
    strip_headers(p, s.payload_at(), segment.length);
    payload.push_back(std::move(d.packet));
  }
  d.packet.reset();
  const tcp::Effects e = tcp::take_predicted(f->tcb, segment, std::move(payload), now);
  if (e == tcp::Effects::kReadable && alone && !f->notify_hook.is_linked()) [[likely]]
    events_.tcp(*f, e);  // there is nothing to gather
  else
    note_effects(*f, e);
  arm_timer_by(*f, std::min({f->tcb.delack_at, f->tcb.rtx_at, now + tcp::kIdle}));
  return true;
}

/// A datagram for the one socket that is bound to where it goes.
bool Engine::receive_datagram(RxDesc& d, const wire::PlainIp& ip, bool alone) noexcept {
  PacketBuf& p = *d.packet;
  const wire::PlainUdp u(ip);
  if (!u.read_udp()) return false;
  const Demux::Ref found =
      demux_.find(DemuxKey::exact(IpProto::kUdp, u.dst(), u.dst_port(), u.src(), u.src_port()));
  if (kind_of(found) != FlowKind::kUdp) return false;
  const auto& flows = at<UdpBinding>(found).flows;
  if (flows.size() != 1) return false;
  if (!has(d.flags, RxFlags::kIpOk) && !u.is_ip_sum_good()) [[unlikely]]
    return false;
  if (!has(d.flags, RxFlags::kL4Ok) &&
      !(u.has_sum() ? u.is_l4_sum_good(IpProto::kUdp) : !u.is_v6())) [[unlikely]]
    return false;
  stats_.rx_packets.add();
  stats_.rx_bytes.add(p.length);
  strip_headers(p, u.payload_at(), u.payload_bytes());
  UdpFlow& flow = *flows.front();
  PacketRef packet = std::move(d.packet);
  if (!take_room(flow, truesize(p))) return true;
  flow.stats->rx_packets.add();
  flow.stats->rx_bytes.add(p.length);
  p.offset = 0;  // the datagram ends in this buffer
  flow.queue.push_back(std::move(packet));
  if (alone && flow.owner != nullptr && !flow.notify_hook.is_linked()) [[likely]]
    events_.udp(flow);
  else
    note_udp(flow);
  return true;
}

/// A datagram in one frame, by the way of the one before. @return false: nothing was done.
bool Engine::send_datagram(UdpFlow& u, const iovec& data, Doorbell bell) noexcept {
  const Egress& way = u.egress;
  const size_t n = data.iov_len;
  if (way.generation != static_cast<uint32_t>(reader_.generation()) || !u.held.empty() ||
      n > pool_->frame_bytes() - PacketPool::kHeadroom ||
      n + way.header.size() > way.mtu + way.header.l3_at()) [[unlikely]]
    return false;
  const PacketRef p(pool_->take());
  if (!p) [[unlikely]]
    return false;
  p->length = static_cast<uint16_t>(n);
  const checksum::Sum sum = checksum::copy_and_sum(p->data(), data.iov_base, n);
  // Right before the payload, where the device may leave it.
  std::byte* const head = p->data() - way.header.size();
  const size_t h =
      way.header.emit_udp(head, {.payload_bytes = static_cast<uint32_t>(n), .payload_sum = sum});
  const PacketSlice slice{p.get(), p->data_at, p->length};
  if (!way.port->queue().tx({{head, h}, {&slice, 1}, 0}, bell)) [[unlikely]]
    return false;
  lull_ = 0;  // what the device has read is reaped in the next turn that finds nothing
  count_sent(u, h, n);
  return true;
}

/// One segment that leaves at once, the only one in flight. @return false: nothing was done.
bool Engine::send_lone(TcpFlow& f, const iovec& data, Instant now) noexcept {
  if (!tcp::may_send_lone(f.tcb, data.iov_len, now) || f.is_stalled || f.pending_hook.is_linked() ||
      f.egress.generation != static_cast<uint32_t>(reader_.generation()))
    return false;
  tcp::Plan plan;
  tcp::append_lone(f.tcb, data.iov_base, data.iov_len, now, plan);
  if (!emit(f, plan, Doorbell::kNow)) [[unlikely]] {
    tcp_progress(f, now);  // it is queued, and waits for the ring as others do
    return true;
  }
  tcp::sent_lone(f.tcb, plan, now);
  lull_ = 0;  // what the device has read is reaped in the next turn that finds nothing
  arm_timer_by(f, f.tcb.rtx_at);
  return true;
}

}  // namespace vireo
