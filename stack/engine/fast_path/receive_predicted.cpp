// A TCP segment or datagram in one buffer, with plain headers, of a known flow: from the frame to
// the receive queue. Any unusual frame takes the full path (receive.cpp), and nothing here has
// changed it.
#include "core/user_memory.h"
#include "stack/engine/hub.h"
#include "stack/tcp/fast_path/predicted.h"
#include "stack/wire/plain.h"

namespace vireo {
namespace {

/// The flow in use that has the tag, if of this IP version. Null: none.
template <class F>
F* flow_of(const Slab<F>& flows, FlowTag tag, bool v6) noexcept {
  if (tag.value() == 0) return nullptr;
  F* const f = flows.at(tag.value() - 1);
  // Of an unused object, kind is none.
  return f != nullptr && f->kind == F::kKind && f->key.v6 == v6 ? f : nullptr;
}

/// Prefetches what its pointers lead to: the socket, and the front of the queue's block.
[[gnu::always_inline]] inline void prefetch_beyond(const TcpFlow& f) noexcept {
  const auto* const socket = static_cast<const std::byte*>(f.owner);
  if (socket != nullptr) [[likely]] {
    __builtin_prefetch(socket);
    __builtin_prefetch(socket + 64);
  }
  const auto& board = f.tcb.queue.board();
  __builtin_prefetch(&board);
  __builtin_prefetch(&board.rack_sent);
  __builtin_prefetch(&board.answer_most);
  __builtin_prefetch(&board + 1);
}

}  // namespace

/// The connection of a segment, if not that of the one before. Null: none.
template <bool kV6>
[[gnu::noinline]] TcpFlow* Receive::find_flow(wire::PlainTcp<kV6> s, FlowTag tag) noexcept {
  Last<kV6>& h = last<kV6>();
  // A tag names the flow whose rule brought the frame. The frame need not belong to it: the rule
  // may have ended since, and the tag may be another flow's.
  if (TcpFlow* const f = flow_of<TcpFlow>(hub().tcp.slab(), tag, kV6)) {
    const wire::PlainPath<kV6> path{f->key.local, f->key.remote};
    if (s.is_on(path)) {
      h.flow = f;
      h.path = path;
      return f;
    }
  }
  const Demux::Ref found = hub().demux.find(
      DemuxKey::exact(IpProto::kTcp, s.dst(), s.dst_port(), s.src(), s.src_port()));
  // Frames never have an IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2).
  if (kind_of(found) != FlowKind::kTcp || at<TcpFlow>(found).key.v6 != kV6) return nullptr;
  h.flow = &at<TcpFlow>(found);
  prefetch_beyond(*h.flow);
  h.path = {h.flow->key.local, h.flow->key.remote};
  return h.flow;
}

/// Takes an expected segment, if its sums are right and there is room.
template <bool kAnswersSingle, bool kV6>
[[gnu::always_inline]] inline bool Receive::take_predicted(RxDesc& d, const wire::PlainTcp<kV6>& s,
                                                           TcpFlow& f,
                                                           const tcp::PlainSegment& segment,
                                                           bool alone, Instant now) noexcept {
  if (hub().pressure.is_low()) [[unlikely]]
    return false;
  if (!has(d.flags, RxFlags::kIpOk) && !s.is_ip_sum_good()) [[unlikely]]
    return false;
  if (!has(d.flags, RxFlags::kL4Ok) && !s.is_l4_sum_good()) [[unlikely]]
    return false;

  PacketBuf& p = *d.packet;
  hub().stats.rx_packets.add();
  hub().stats.rx_bytes.add(p.length);
  f.stats->rx_packets.add();
  f.stats->rx_bytes.add(segment.length);
  if (segment.length != 0)
    strip_headers(p, s.payload_at(), segment.length);
  else
    d.packet.reset();
  const tcp::Effects e =
      tcp::take_predicted<kAnswersSingle>(f.tcb, segment, std::move(d.packet), now);
  if (e == tcp::Effects::kReadable && alone && !f.notify_hook.is_linked()) [[likely]]
    hub().events.tcp(f, e);  // there is nothing to gather
  else
    hub().notifications.note(f, e);
  const Instant armed = f.deadline();  // TcpTimers::arm_by(), for the earliest of three deadlines
  if (f.tcb.delack_at < armed || (!kAnswersSingle && f.tcb.rtx_at < armed) ||
      now + tcp::kIdle < armed) [[unlikely]]
    hub().timers.arm(f);
  return true;
}

/// A segment of a known connection: takes it if it is the next expected.
template <bool kV6>
[[gnu::noinline]] bool Receive::take_if_predicted(RxDesc& d, wire::PlainTcp<kV6> s, TcpFlow& f,
                                                  bool alone, Instant now) noexcept {
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
  return tcp::is_predicted(f.tcb, segment) && f.owner != nullptr &&
         take_predicted<false>(d, s, f, segment, alone, now);
}

template <bool kV6>
[[gnu::always_inline]] inline bool Receive::take_segment(RxDesc& d, const wire::PlainIp<kV6>& ip,
                                                         bool alone, Instant now) noexcept {
  wire::PlainTcp<kV6> s(ip);
  if (!s.read_tcp()) return false;
  TcpFlow* f = last<kV6>().flow;
  if (f == nullptr || !s.is_on(last<kV6>().path)) [[unlikely]] {
    f = find_flow(s, d.tag);
    if (f == nullptr) return false;
  }
  // The answer to a request, which the program waits for. Such a connection has an owner.
  if (s.has_timestamps() && tcp::answers_single(f->tcb, s.numbers(), s.payload_bytes(), s.ts_val()))
      [[likely]]
    return take_predicted<true>(d, s, *f,
                                {.seq = s.seq(),
                                 .ack = s.ack(),
                                 .ts_val = s.ts_val(),
                                 .ts_echo = s.ts_echo(),
                                 .length = s.payload_bytes(),
                                 .window = s.window(),
                                 .has_ts = true},
                                alone, now);
  return take_if_predicted(d, s, *f, alone, now);
}

/// The binding of a datagram's tuple, not necessarily an exact one. Null: none.
template <bool kV6>
[[gnu::noinline]] UdpBinding* Receive::find_binding(wire::PlainUdp<kV6> u, FlowTag tag) noexcept {
  Last<kV6>& h = last<kV6>();
  const UdpFlow* const f = flow_of<UdpFlow>(hub().udp.slab(), tag, kV6);
  if (f != nullptr && f->exact != nullptr) {  // as in find_flow()
    const wire::PlainPath<kV6> path{f->key.local, f->key.remote};
    if (u.is_on(path)) {
      h.binding = f->exact;
      h.datagram_path = path;
      h.demux_version = hub().demux.version();
      return h.binding;
    }
  }
  const Endpoint local{u.dst(), u.dst_port(), 0};
  const Endpoint remote{u.src(), u.src_port(), 0};
  const Demux::Ref found = hub().demux.find(
      DemuxKey::exact(IpProto::kUdp, local.addr, local.port, remote.addr, remote.port));
  if (kind_of(found) != FlowKind::kUdp || local.addr.is_v4() == kV6 || remote.addr.is_v4() == kV6)
    return nullptr;
  if (!at<UdpBinding>(found).is_plain) return nullptr;
  h.binding = &at<UdpBinding>(found);
  h.datagram_path = {local, remote};
  h.demux_version = hub().demux.version();
  return h.binding;
}

/// A datagram for a binding with one socket.
template <bool kV6>
[[gnu::always_inline]] inline bool Receive::take_datagram(RxDesc& d, const wire::PlainIp<kV6>& ip,
                                                          bool alone) noexcept {
  PacketBuf& p = *d.packet;
  const wire::PlainUdp<kV6> u(ip);
  if (!u.read_udp()) return false;
  UdpBinding* binding = last<kV6>().binding;
  if (binding == nullptr || last<kV6>().demux_version != hub().demux.version() ||
      !u.is_on(last<kV6>().datagram_path)) [[unlikely]] {
    binding = find_binding(u, d.tag);
    if (binding == nullptr) return false;
  }
  if (binding->flows.size() != 1) return false;
  if (!has(d.flags, RxFlags::kIpOk) && !u.is_ip_sum_good()) [[unlikely]]
    return false;
  if (!has(d.flags, RxFlags::kL4Ok) && !u.is_l4_sum_good()) [[unlikely]]
    return false;
  hub().stats.rx_packets.add();
  hub().stats.rx_bytes.add(p.length);
  strip_headers(p, u.payload_at(), u.payload_bytes());
  UdpFlow& flow = *binding->flows.front();
  PacketRef packet = std::move(d.packet);
  if (!hub().udp.take_room(flow, truesize(p))) return true;
  flow.stats->rx_packets.add();
  flow.stats->rx_bytes.add(p.length);
  p.offset = 0;  // the datagram ends in this buffer
  if (flow.queue.empty()) [[likely]]
    flow.queue.push_first(std::move(packet));
  else
    flow.queue.push_back(std::move(packet));
  if (alone && flow.owner != nullptr && !flow.notify_hook.is_linked()) [[likely]]
    hub().events.udp(flow);
  else
    hub().notifications.note(flow);
  return true;
}

template <bool kV6>
[[gnu::always_inline]] inline bool Receive::take_plain_as(RxDesc& d, bool alone,
                                                          Instant now) noexcept {
  wire::PlainIp<kV6> ip;
  switch (ip.read(d.packet->data(), d.packet->length)) {
    case static_cast<unsigned>(IpProto::kTcp):
      return take_segment(d, ip, alone, now);
    case static_cast<unsigned>(IpProto::kUdp):
      return take_datagram(d, ip, alone);
    default:
      return false;
  }
}

/// A frame in one buffer, `alone` in its burst. @return false: nothing was done.
bool Receive::take_plain(RxDesc& d, bool alone, Instant now) noexcept {
  return take_plain_as<false>(d, alone, now) || take_plain6(d, alone, now);
}

[[gnu::noinline]] bool Receive::take_plain6(RxDesc& d, bool alone, Instant now) noexcept {
  return take_plain_as<true>(d, alone, now);
}

}  // namespace vireo
