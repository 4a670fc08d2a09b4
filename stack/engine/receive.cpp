// The full receive path, for any frame.
#include <algorithm>

#include "core/checksum.h"
#include "stack/engine/hub.h"
#include "stack/ip/icmp_error.h"
#include "stack/wire/parse.h"

namespace vireo {
namespace {

using wire::ParsedFrame;

/// Frames that one turn takes from a queue at most: then other threads may take the engine's lock.
constexpr unsigned kMaxAtOnce = 256;

/// False if the checksum is wrong and the device has not verified it. `rest`: further buffers of
/// the payload.
bool l4_is_good(const ParsedFrame& f, const RxDesc& d, const PacketChain& rest) noexcept {
  if (has(d.flags, RxFlags::kL4Ok)) return true;
  if (rest.empty()) [[likely]]
    return wire::l4_checksum_ok(f);
  if (f.proto == IpProto::kUdp && f.udp().checksum.raw() == 0) return !f.is_v6;
  uint32_t covered = std::min<uint32_t>(f.l4_bytes, d.packet->length - f.l4_at);
  checksum::Sum sum = wire::pseudo_header_sum(f) + checksum::sum(f.frame + f.l4_at, covered);
  for (const PacketBuf* p = rest.front(); p != nullptr && covered < f.l4_bytes; p = p->next) {
    const uint32_t n = std::min<uint32_t>(p->length, f.l4_bytes - covered);
    sum = checksum::combine(checksum::fold(sum), checksum::sum(p->data(), n), covered % 2 != 0);
    covered += n;
  }
  return checksum::is_good(sum);
}

tcp::Segment make_segment(const ParsedFrame& f) noexcept {
  const wire::TcpHeader& h = f.tcp();
  tcp::Segment s;
  s.seq = h.seq();
  s.ack = h.ack();
  s.window = h.window;
  s.flags = static_cast<tcp::SegFlags>(h.flag_bits);
  s.urgent = h.urgent;
  s.options = h.options();
  s.ecn = f.ecn();
  return s;
}

}  // namespace

void Receive::clear() noexcept {
  for (RxDesc& d : burst_) d.packet.reset();
  partial_.reset();
  partial_rest_.clear();
  reassembly_.clear();
}

unsigned Receive::take_many(Port& port, Queue& queue, unsigned n, Instant now) noexcept {
  unsigned frames = 0;
  hub().doorbells.begin_batch();  // for replies to frames of unknown flows
  for (;; n = take_burst(queue)) {
    frames += n;
    for (unsigned i = 0; i < n; ++i) take_buffer(port, burst_[i], n == 1, now);
    if (n == kBurst && frames == kBurst) [[unlikely]]
      hub().pressure.watch_ring(queue.rx_level(), kBurst, now);
    if (partial_ && n != 0) continue;  // the rest of the packet is there: it arrived with it
    // Frames in the ring may be lost, those in a socket's queue are not.
    if (n < kBurst || frames >= kMaxAtOnce) break;
  }
  if (partial_) [[unlikely]] {
    hub().stats.rx_malformed.add();
    partial_.reset();
    partial_rest_.clear();
  }
  hub().doorbells.end_batch(now);
  return frames;
}

/// A whole packet, or one buffer of a packet in several buffers.
void Receive::take_buffer(Port& port, RxDesc& d, bool alone, Instant now) noexcept {
  if (!partial_) [[likely]] {
    if (is_single(d.flags)) [[likely]] {
      if (!take_plain(d, alone, now)) take_frame(port, d, {}, now);
      return;
    }
    if (!has(d.flags, RxFlags::kMore)) return take_frame(port, d, {}, now);
    partial_ = std::move(d.packet);
    partial_flags_ = d.flags;
    return;
  }
  partial_rest_.push_back(std::move(d.packet));
  if (has(d.flags, RxFlags::kMore)) return;
  RxDesc whole{std::move(partial_), partial_flags_, d.tag};
  take_frame(port, whole, std::move(partial_rest_), now);
}

void Receive::take_frame(Port& port, RxDesc& d, PacketChain rest, Instant now) noexcept {
  hub().turn.move_deadline();
  PacketRef owned = std::move(d.packet);
  hub().stats.rx_packets.add();
  hub().stats.rx_bytes.add(owned->length + rest.bytes());
  ParsedFrame f = wire::parse_frame(owned->bytes(), rest.bytes());
  if (!f) [[unlikely]] {
    if (f.error != wire::ParseError::kFragment) {
      hub().stats.rx_malformed.add();
      return;
    }
    if (!make_whole(port, f, owned, rest, now)) return;
    d.flags = RxFlags::kIpOk;
  }
  if (f.proto == IpProto::kIcmp || f.proto == IpProto::kIcmpV6) [[unlikely]] {
    take_icmp(f, now);
    return;
  }
  PacketBuf& p = *owned;
  d.packet = std::move(owned);
  if ((!has(d.flags, RxFlags::kIpOk) && !wire::ipv4_header_ok(f)) || !l4_is_good(f, d, rest))
      [[unlikely]] {
    hub().stats.rx_bad_checksum.add();
    d.packet.reset();
    return;
  }
  const std::byte* const eth = p.data();
  const uint32_t here = std::min<uint32_t>(f.payload_bytes, p.length - f.payload_at);
  strip_headers(p, f.payload_at, here);
  PacketChain packet(std::move(d.packet));
  if (here < f.payload_bytes) {  // what follows is no payload: a UDP length may be short
    packet.append(std::move(rest));
    if (packet.bytes() > f.payload_bytes) packet.trim_back(packet.bytes() - f.payload_bytes);
  }
  if (f.proto == IpProto::kTcp) [[likely]]
    take_tcp(port, f, eth, std::move(packet), segments_of(d.flags), now);
  else
    take_udp(port, f, std::move(packet), now);
}

/// Adds the fragment `f` in `first` and `rest` to its packet. @return false: the packet is
/// incomplete or malformed; else `first`, `rest` and `f` are the whole packet.
[[gnu::noinline]] bool Receive::make_whole(const Port& port, ParsedFrame& f, PacketRef& first,
                                           PacketChain& rest, Instant now) noexcept {
  const int64_t last_arrival = first->arrival();
  PacketChain fragment(std::move(first));
  fragment.append(std::move(rest));
  PacketChain whole;
  if (hub().pressure.is_low() || !hub().host.takes_fragments()) {
    reassembly_.refuse();  // queues must not grow, and this is one
  } else {
    const uint32_t wire = port.link.index.value() << 12 | (f.tags != 0 ? f.vlan().value() : 0U);
    whole = reassembly_.add(f, wire, std::move(fragment), now);
  }
  hub().stats.reassembly_fails.set(reassembly_.fails());
  if (whole.empty()) return false;
  hub().stats.reassembled.add();
  first = whole.pop_front();
  first->set_arrival(last_arrival);
  rest = std::move(whole);
  f = wire::parse_frame(first->bytes(), rest.bytes());
  if (f) return true;
  hub().stats.rx_malformed.add();
  return false;
}

void Receive::expire_fragments(Instant now) noexcept {
  reassembly_.expire(now);
  hub().stats.reassembly_fails.set(reassembly_.fails());
}

void Receive::take_tcp(Port& port, const ParsedFrame& f, const std::byte* eth, PacketChain packet,
                       uint32_t segments, Instant now) noexcept {
  tcp::Segment s = make_segment(f);
  s.segments = static_cast<uint8_t>(segments);
  if (f.payload_bytes != 0)
    s.payload = std::move(packet);  // without payload the buffer ends with this call
  const IpAddr dst = f.dst();
  const IpAddr src = f.src();
  std::optional<tcp::TimeWait> before;
  Demux::Ref found =
      hub().demux.find(DemuxKey::exact(IpProto::kTcp, dst, f.dst_port, src, f.src_port));
  if (has(s.flags, tcp::SegFlags::kSyn) && kind_of(found) == FlowKind::kTcp &&
      hub().tcp.make_way(at<TcpFlow>(found), s, before, now)) [[unlikely]]
    found = 0;
  if (kind_of(found) == FlowKind::kTcp) [[likely]] {
    auto& t = at<TcpFlow>(found);
    t.stats->rx_packets.add();
    t.stats->rx_bytes.add(f.payload_bytes);
    if (has(s.flags, tcp::SegFlags::kSyn)) [[unlikely]]
      hub().tcp.hear_syn_ack(t, s);
    if (hub().pressure.is_low() && tcp::may_wait(t.tcb, s)) [[unlikely]] {
      // Queues must not grow: payload is dropped, as with datagrams. The peer retransmits it; the
      // ACK counts.
      if (!s.payload.empty()) t.stats->rx_drops.add();
      s.payload.clear();
      s.flags &= ~(tcp::SegFlags::kFin | tcp::SegFlags::kPsh);
    }
    hub().notifications.note(t, tcp::input(t.tcb, std::move(s), now));
    if (t.is_watched && t.owner != nullptr) [[unlikely]]
      hub().events.tcp_acked(t);
    if (t.owner == nullptr) [[unlikely]]
      hub().output.want(t);  // an orphan may be done: checked after the burst
    else if (!t.pending_hook.is_linked() || t.is_stalled || t.is_ack_delayed)
      hub().timers.arm(t);  // else transmit() does
    return;
  }
  const Incoming in{port, f, eth};
  if (kind_of(found) == FlowKind::kTimeWait)
    hub().time_waits.segment_arrived(at<TimeWaitEntry>(found), in, s, now);
  else if (!hub().passive.segment_arrived(in, s, before ? &*before : nullptr, now) &&
           !hub().steering.take_stray(port, f, s.payload, now))
    hub().replies.refuse(in, s, now);
}

void Receive::take_icmp(const ParsedFrame& f, Instant now) noexcept {
  const auto e = ip::parse_icmp_error(f);
  if (!e) return;
  if (e->proto == IpProto::kUdp && e->kind == ip::IcmpErrorKind::kTooBig) {
    hub().next_hops.path_mtu_reported(*e, now);
    return;
  }
  if (e->proto == IpProto::kTcp && e->kind != ip::IcmpErrorKind::kTooBig)
    hub().passive.error_arrived(*e);
  // Only a flow of exactly the quoted tuple: a socket without a peer sends to many destinations.
  const Demux::Ref r = hub().demux.find_own(
      DemuxKey::exact(e->proto, e->local.addr, e->local.port, e->remote.addr, e->remote.port));
  switch (kind_of(r)) {
    case FlowKind::kTcp: {
      auto& t = at<TcpFlow>(r);
      if (e->kind == ip::IcmpErrorKind::kTooBig)
        hub().next_hops.path_mtu_reported(t, Seq32(e->tcp_seq), e->mtu, now);
      else
        hub().notifications.note(t,
                                 tcp::icmp_error(t.tcb, Seq32(e->tcp_seq), e->error, e->hard, now));
      break;
    }
    case FlowKind::kUdp: {  // as Linux: only connected sockets get the error
      UdpFlow& u = *at<UdpBinding>(r).flows.front();
      if (!e->hard) break;
      u.soft_error = e->error;
      hub().notifications.note(u);
      break;
    }
    default:
      break;
  }
}

}  // namespace vireo
