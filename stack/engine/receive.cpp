// From the ring to the protocol: one parse, one look-up, one call into TCP or UDP per frame;
// effects are told at the end of the burst.
#include <algorithm>

#include "core/checksum.h"
#include "stack/engine/engine.h"
#include "stack/ip/icmp_error.h"
#include "stack/wire/parse.h"

namespace vireo {
namespace {

using wire::ParsedFrame;

/// Frames that one turn takes from a queue, if so many wait: beyond them, whoever waits for the
/// engine's lock has its turn first.
constexpr unsigned kMostAtOnce = 256;

/// True unless the checksum, where we must look ourselves, is wrong. `rest` continues the payload
/// in further buffers.
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

/// receive_burst() of which the first `n` are there.
unsigned Engine::receive_many(Port& port, Queue& queue, unsigned n, Instant now) noexcept {
  unsigned frames = 0;
  bell_ = Doorbell::kLater;  // of the answers to those that are nobody's
  for (;; n = queue.rx_burst(burst_)) {
    frames += n;
    for (unsigned i = 0; i < n; ++i) receive_buffer(port, burst_[i], n == 1, now);
    if (n == kBurst && frames == kBurst) [[unlikely]]
      watch_crowd(queue.rx_level(), now);
    if (partial_ && n != 0) continue;  // the rest of a packet is there already: it came as one
    // What waits in the ring is in danger, what waits in a socket is not.
    if (n < kBurst || frames >= kMostAtOnce) break;
  }
  if (partial_) [[unlikely]] {
    stats_.rx_malformed.add();
    partial_.reset();
    partial_rest_.clear();
  }
  bell_ = Doorbell::kNow;
  if (unrung_ != 0) [[unlikely]]
    ring_turn(now);
  return frames;
}

/// A whole packet, or one buffer of a packet that lies in several.
void Engine::receive_buffer(Port& port, RxDesc& d, bool alone, Instant now) noexcept {
  if (!partial_) [[likely]] {
    if (is_single(d.flags)) [[likely]] {
      if (!receive_plain(d, alone, now)) receive_frame(port, d, {}, now);
      return;
    }
    if (!has(d.flags, RxFlags::kMore)) return receive_frame(port, d, {}, now);
    partial_ = std::move(d.packet);
    partial_flags_ = d.flags;
    return;
  }
  partial_rest_.push_back(std::move(d.packet));
  if (has(d.flags, RxFlags::kMore)) return;
  RxDesc whole{std::move(partial_), partial_flags_, d.tag};
  receive_frame(port, whole, std::move(partial_rest_), now);
}

void Engine::receive_frame(Port& port, RxDesc& d, PacketChain rest, Instant now) noexcept {
  deadlines_moved_ = true;
  PacketRef owned = std::move(d.packet);
  stats_.rx_packets.add();
  stats_.rx_bytes.add(owned->length + rest.bytes());
  ParsedFrame f = wire::parse_frame(owned->bytes(), rest.bytes());
  if (!f) [[unlikely]] {
    if (f.error != wire::ParseError::kFragment) {
      stats_.rx_malformed.add();
      return;
    }
    if (!make_whole(port, f, owned, rest, now)) return;
    d.flags = RxFlags::kIpOk;
  }
  if (f.proto == IpProto::kIcmp || f.proto == IpProto::kIcmpV6) [[unlikely]] {
    receive_icmp(f, now);
    return;
  }
  PacketBuf& p = *owned;
  d.packet = std::move(owned);
  if ((!has(d.flags, RxFlags::kIpOk) && !wire::ipv4_header_ok(f)) || !l4_is_good(f, d, rest))
      [[unlikely]] {
    stats_.rx_bad_checksum.add();
    d.packet.reset();
    return;
  }
  const std::byte* const eth = p.data();
  const uint32_t here = std::min<uint32_t>(f.payload_bytes, p.length - f.payload_at);
  strip_headers(p, f.payload_at, here);
  PacketChain packet(std::move(d.packet));
  if (here < f.payload_bytes) {  // else what follows is none of it: a UDP length may be short
    packet.append(std::move(rest));
    if (packet.bytes() > f.payload_bytes) packet.trim_back(packet.bytes() - f.payload_bytes);
  }
  if (f.proto == IpProto::kTcp) [[likely]]
    receive_tcp(port, f, eth, std::move(packet), segments_of(d.flags), now);
  else
    receive_udp(port, f, std::move(packet));
}

/// Of a fragment, `f`, that lies in `first` and `rest`. @return false: the packet is not complete,
/// or not sound; else it lies there now, and `f` tells of it.
[[gnu::noinline]] bool Engine::make_whole(const Port& port, ParsedFrame& f, PacketRef& first,
                                          PacketChain& rest, Instant now) noexcept {
  PacketChain fragment(std::move(first));
  fragment.append(std::move(rest));
  PacketChain whole;
  if (pool_->free_count() < low_water_ || !takes_fragments_) {
    reassembly_.refuse();  // queues grow no more, and this is one
  } else {
    const uint32_t wire = port.link.index.value() << 12 | (f.tags != 0 ? f.vlan().value() : 0U);
    whole = reassembly_.add(f, wire, std::move(fragment), now);
  }
  stats_.reassembly_fails.set(reassembly_.fails());
  if (whole.empty()) return false;
  stats_.reassembled.add();
  first = whole.pop_front();
  rest = std::move(whole);
  f = wire::parse_frame(first->bytes(), rest.bytes());
  if (f) return true;
  stats_.rx_malformed.add();
  return false;
}

void Engine::expire_fragments(Instant now) noexcept {
  reassembly_.expire(now);
  stats_.reassembly_fails.set(reassembly_.fails());
}

void Engine::receive_tcp(Port& port, const ParsedFrame& f, const std::byte* eth, PacketChain packet,
                         uint32_t segments, Instant now) noexcept {
  tcp::Segment s = make_segment(f);
  s.segments = static_cast<uint8_t>(segments);
  if (f.payload_bytes != 0)
    s.payload = std::move(packet);  // else the buffer lives to the end of this call
  const IpAddr dst = f.dst();
  const IpAddr src = f.src();
  std::optional<tcp::TimeWait> before;
  Demux::Ref found = demux_.find(DemuxKey::exact(IpProto::kTcp, dst, f.dst_port, src, f.src_port));
  if (has(s.flags, tcp::SegFlags::kSyn) && kind_of(found) == FlowKind::kTcp &&
      make_way(at<TcpFlow>(found), s, before, now)) [[unlikely]]
    found = 0;
  if (kind_of(found) == FlowKind::kTcp) [[likely]] {
    auto& t = at<TcpFlow>(found);
    t.stats->rx_packets.add();
    t.stats->rx_bytes.add(f.payload_bytes);
    if (has(s.flags, tcp::SegFlags::kSyn)) [[unlikely]]
      hear_syn_ack(t, s);
    if (pool_->free_count() < low_water_ && tcp::may_wait(t.tcb, s)) [[unlikely]] {
      // Queues grow no more, as with datagrams: the peer says it again, its ACK counts.
      if (!s.payload.empty()) t.stats->rx_drops.add();
      s.payload.clear();
      s.flags &= ~(tcp::SegFlags::kFin | tcp::SegFlags::kPsh);
    }
    note_effects(t, tcp::input(t.tcb, std::move(s), now));
    if (t.owner == nullptr) [[unlikely]]
      want_transmit(t);  // an orphan may be over: that is seen after the burst
    else if (!t.pending_hook.is_linked() || t.is_stalled || t.is_riding)
      arm_timer(t);  // else transmit() does
    return;
  }
  const Incoming in{port, f, eth};
  if (kind_of(found) == FlowKind::kTimeWait)
    time_wait_segment(at<TimeWaitEntry>(found), in, s, now);
  else if (!listen_segment(in, s, before ? &*before : nullptr, now))
    receive_stranger(in, s, now);
}

/// A segment that belongs to nobody (RFC 9293 §3.10.7.1).
void Engine::receive_stranger(const Incoming& in, const tcp::Segment& s, Instant now) noexcept {
  stats_.rx_unknown_flow.add();
  tcp::Plan plan;
  if (!tcp::reset_for(s, in.frame.payload_bytes, plan) || heard_by(in) == nullptr ||
      !resets_.allow(now))
    return;
  reply(in, plan);
  stats_.resets_sent.add();
}

/// The interface by which a segment came that may be answered; null: it may not. Never is a group,
/// nobody, or we ourselves (RFC 1122 §3.2.1.3, §4.2.3.10).
const net::Link* Engine::heard_by(const Incoming& in) noexcept {
  if (in.frame.is_to_group_mac()) return nullptr;
  const net::Link* const link = link_of(in.port, in.frame);
  return link != nullptr && may_come(in.frame.src(), in.frame.dst(), *link).answers ? link
                                                                                    : nullptr;
}

Demux::Ref Engine::find_bound(IpProto proto, const IpAddr& local, uint16_t port) noexcept {
  BoundTo& last = bound_to_;
  if (last.ref != 0 && last.port == port && last.proto == proto && last.local == local)
    return last.ref;
  const bool v6 = !local.is_v4();
  Demux::Ref r = demux_.find(DemuxKey::bound(proto, local, port, v6));
  if (r == 0) r = demux_.find(DemuxKey::bound(proto, IpAddr(), port, v6));
  last = {r, local, port, proto};
  return r;
}

/// Answers a frame by its own addresses turned round: needs no route and no neighbour.
void Engine::reply(const Incoming& in, const tcp::Plan& plan) noexcept {
  const ParsedFrame& to = in.frame;
  const auto& e = *reinterpret_cast<const wire::EthernetHeader*>(in.eth);
  send_alone(in.port,
             wire::HeaderTemplate::build({.src_mac = e.dst,
                                          .dst_mac = e.src,
                                          .vlan = to.tags != 0 ? to.vlan() : VlanId(),
                                          .proto = IpProto::kTcp,
                                          .src = to.dst(),
                                          .dst = to.src(),
                                          .src_port = to.dst_port,
                                          .dst_port = to.src_port}),
             plan);
}

/// A segment without payload, of no connection.
void Engine::send_alone(Port& port, const wire::HeaderTemplate& header,
                        const tcp::Plan& plan) noexcept {
  alignas(16) std::byte head[wire::HeaderTemplate::kMaxBytes];
  const size_t n = header.emit_tcp(head, {.seq = plan.seq.value(),
                                          .ack = plan.ack.value(),
                                          .flags = static_cast<uint8_t>(plan.flags),
                                          .window = plan.window,
                                          .options = {plan.options, plan.options_length}});
  // A full ring drops it, as a busy network would.
  if (!port.queue().tx({{head, n}, {}, 0}, bell_)) return;
  if (bell_ == Doorbell::kLater && ++unrung_ >= kMostTogether) ring_left();
  stats_.tx_packets.add();
  stats_.tx_bytes.add(n);
}

/// Who of those bound alike, and to `device`, gets a unicast datagram, as Linux does it
/// (net/ipv4/udp.c): the first; if it has SO_REUSEPORT and no peer, the hash of the tuple chooses
/// among those of its kind. Null: none is.
UdpFlow* Engine::member_for(const std::vector<UdpFlow*>& flows, IfIndex device,
                            const ParsedFrame& f) const noexcept {
  const auto found = std::ranges::find(flows, device, &UdpFlow::device);
  if (found == flows.end()) return nullptr;
  UdpFlow* const first = *found;
  if (flows.size() == 1 || !first->reuse_port || first->key.is_exact()) [[likely]]
    return first;
  const uint64_t h = tcp::tuple_hash(secret_, {f.dst(), f.dst_port, 0}, {f.src(), f.src_port, 0});
  const auto is_alike = [&](const UdpFlow* u) {
    return u->reuse_port && u->device == device && u->key.v6 == first->key.v6 &&
           u->v6only == first->v6only;
  };
  const auto alike = static_cast<uint64_t>(std::ranges::count_if(flows, is_alike));
  auto at = found;  // is one of them
  for (uint64_t before = (h >> 32) * alike >> 32; before != 0; --before)
    at = std::find_if(at + 1, flows.end(), is_alike);
  return *at;
}

void Engine::receive_udp(const Port& port, const ParsedFrame& f, PacketChain packet) noexcept {
  const IpAddr dst = f.dst();
  const auto key = DemuxKey::exact(IpProto::kUdp, dst, f.dst_port, f.src(), f.src_port);
  Demux::Ref r = demux_.find(key);
  if (r == 0 || at<UdpBinding>(r).names_device || at<UdpBinding>(r).notes_port) {
    const net::Link* const link = link_of(port, f);
    if (link == nullptr || !may_come(f.src(), dst, *link).may) {
      stats_.rx_unknown_flow.add();
      return;
    }
    if (r == 0) r = find_bound(IpProto::kUdp, dst, f.dst_port);
    if (kind_of(r) != FlowKind::kUdp) {
      stats_.rx_unknown_flow.add();
      return;
    }
    const UdpBinding& b = at<UdpBinding>(r);
    const bool notes_port = f.is_to_group_mac() && ports_.size() > 1 &&
                            (b.notes_port || b.names_device || !dst.is_multicast());
    if (notes_port) [[unlikely]] {
      const auto place = std::ranges::find(ports_, &port) - ports_.begin();
      packet.front()->cookie |= static_cast<uint32_t>(place + 1) << kPortOfCookie;
    }
    if (b.names_device) [[unlikely]]
      return receive_by_device(&at<UdpBinding>(r), *link, f, std::move(packet));
    if (!notes_port) demux_.remember(key, r);
  }
  const auto& flows = at<UdpBinding>(r).flows;
  if (dst.is_multicast())
    deliver_multicast(flows, IfIndex(), packet);
  else
    deliver_udp(*member_for(flows, IfIndex(), f), std::move(packet));
}

/// Of those that are bound alike, who hears what came by `link`: who is bound to it goes before who
/// is bound to none. Where nobody does, those that are bound less narrowly are asked.
void Engine::receive_by_device(UdpBinding* b, const net::Link& link, const ParsedFrame& f,
                               PacketChain packet) noexcept {
  const auto next = [&](const UdpBinding& tried) -> UdpBinding* {
    Demux::Ref r = 0;
    if (tried.key.remote_port != 0)
      r = demux_.find_own(DemuxKey::bound(IpProto::kUdp, f.dst(), f.dst_port, f.is_v6));
    if (r == 0) r = demux_.find_own(DemuxKey::bound(IpProto::kUdp, IpAddr(), f.dst_port, f.is_v6));
    return kind_of(r) == FlowKind::kUdp && &at<UdpBinding>(r) != &tried ? &at<UdpBinding>(r)
                                                                        : nullptr;
  };
  for (; b != nullptr; b = next(*b)) {
    if (f.dst().is_multicast()) {
      if (deliver_multicast(b->flows, link.index, packet)) return;
      continue;
    }
    UdpFlow* u = member_for(b->flows, link.index, f);
    if (u == nullptr) u = member_for(b->flows, IfIndex(), f);
    if (u != nullptr) return deliver_udp(*u, std::move(packet));
  }
  stats_.rx_unknown_flow.add();
}

void Engine::receive_icmp(const ParsedFrame& f, Instant now) noexcept {
  const auto e = ip::parse_icmp_error(f);
  if (!e) return;
  if (e->proto == IpProto::kUdp && e->kind == ip::IcmpErrorKind::kTooBig) {
    path_mtu_reported(*e, now);
    return;
  }
  if (e->proto == IpProto::kTcp && e->kind != ip::IcmpErrorKind::kTooBig) {
    const SynTuple t{e->local.addr, e->remote.addr, e->local.port, e->remote.port};
    if (tcp::SynRecord* r = syns_.find(t)) told_of_record(*r, Seq32(e->tcp_seq));
  }
  // Whose very tuple is quoted: who is bound without a peer has sent to many, and none is the one.
  const Demux::Ref r = demux_.find_own(
      DemuxKey::exact(e->proto, e->local.addr, e->local.port, e->remote.addr, e->remote.port));
  switch (kind_of(r)) {
    case FlowKind::kTcp: {
      auto& t = at<TcpFlow>(r);
      if (e->kind == ip::IcmpErrorKind::kTooBig)
        path_mtu_reported(t, Seq32(e->tcp_seq), e->mtu, now);
      else
        note_effects(t, tcp::icmp_error(t.tcb, Seq32(e->tcp_seq), e->error, e->hard, now));
      break;
    }
    case FlowKind::kUdp: {  // as Linux: only connected sockets hear of it
      UdpFlow& u = *at<UdpBinding>(r).flows.front();
      if (!e->hard) break;
      u.soft_error = e->error;
      note_udp(u);
      break;
    }
    default:
      break;
  }
}

}  // namespace vireo
