// From the protocol to the ring: what a connection wants to say, the header it is said with, and
// where it goes.
#include "core/checksum.h"
#include "stack/engine/engine.h"
#include "stack/engine/mss.h"

namespace vireo {
namespace {

/// Frames one connection may send before the others have their turn.
constexpr unsigned kSendBurst = 64;
/// How often the kernel is asked again about a neighbour that does not answer, or to confirm one in
/// use.
constexpr Duration kAskAgain = Duration::ms(500);
/// How long a connection waits for a neighbour before it fails, as Linux's three probes a second
/// apart.
constexpr Duration kNeighbourPatience = Duration::s(3);

/// The device segments, and more may leave right behind `plan`: `b` says what, of `most` segments.
bool may_burst(TcpFlow& f, const tcp::Plan& plan, unsigned most, tcp::Burst& b) {
  tcp::BurstLimits limits = f.egress.port->burst;
  if (limits.bytes == 0) return false;
  limits.segments = static_cast<uint16_t>(most);
  return tcp::plan_burst(f.tcb, plan, limits, b);
}

}  // namespace

void Engine::want_transmit(TcpFlow& f) noexcept {
  lull_ = 0;
  deadlines_moved_ = true;  // whoever sleeps or helps must know that something waits
  if (!f.pending_hook.is_linked()) pending_.push_back(f);
}

/// @return false: the ring is full or the burst is over, and the flow has more to send.
bool Engine::transmit(TcpFlow& f, Instant now) noexcept {
  if (f.is_stalled) [[unlikely]]
    return true;
  f.pending_hook.unlink();
  tcp::Plan plan;
  bool is_done = true;
  bool is_unrung = false;
  for (unsigned n = 0; tcp::has_output(f.tcb) && tcp::next_segment(f.tcb, now, plan);) {
    if (n == kSendBurst) {
      is_done = false;
      break;
    }
    if (f.egress.generation != reader_.generation()) [[unlikely]] {
      if (auto ok = refresh_egress(f, now); !ok) {
        stall(f, ok.error(), now);
        break;
      }
    }
    // The last one rings at once, before the books are done: the reply is a microsecond away.
    bool is_last = tcp::unsent_bytes(f.tcb) <= plan.length;
    tcp::Burst burst;
    const bool is_burst = !is_last && may_burst(f, plan, kSendBurst - n, burst);
    if (is_burst) [[unlikely]]
      is_last = tcp::unsent_bytes(f.tcb) <= burst.bytes;
    const Doorbell bell = is_last ? Doorbell::kNow : Doorbell::kLater;
    if (!(is_burst ? emit_burst(f, plan, burst, bell) : emit(f, plan, bell))) [[unlikely]] {
      stats_.tx_ring_full.add();
      f.egress.port->queue().tx_reap();
      is_done = false;
      break;
    }
    is_unrung = !is_last;
    if (is_burst) [[unlikely]]
      tcp::sent_burst(f.tcb, plan, burst, now);
    else
      tcp::sent(f.tcb, plan, now);
    n += is_burst ? burst.segments : 1;
  }
  if (is_unrung) f.egress.port->queue().tx_flush();
  arm_timer(f);
  return is_done;
}

bool Engine::emit(TcpFlow& f, const tcp::Plan& plan, Doorbell bell) noexcept {
  alignas(16) std::byte room[wire::HeaderTemplate::kMaxBytes];
  checksum::Sum sum = 0;
  std::byte* head = room;
  if (plan.length != 0) {
    PacketBuf& b = *plan.packet;
    sum = plan.sum_known ? plan.sum : checksum::sum(b.frame + plan.at, plan.length);
    // Right before the payload, where the device may leave it, unless it still reads that.
    if (plan.at == b.data_at && b.device_refs == 0 && b.data_at >= sizeof room) [[likely]]
      head = b.data() - (f.egress.header.size() + plan.options_length);
  }
  const size_t n = f.egress.header.emit_tcp(head, {.seq = plan.seq.value(),
                                                   .ack = plan.ack.value(),
                                                   .flags = static_cast<uint8_t>(plan.flags),
                                                   .window = plan.window,
                                                   .urgent = plan.urgent,
                                                   .options = {plan.options, plan.options_length},
                                                   .payload_bytes = plan.length,
                                                   .payload_sum = sum,
                                                   .ip_id = f.next_ip_id,
                                                   .ecn = plan.ecn});
  if (f.ip.mtu_discover == IP_PMTUDISC_DONT) [[unlikely]]
    ++f.next_ip_id;
  const PacketSlice slice{plan.packet, plan.at, plan.length};
  const TxFrame frame{{head, n}, {&slice, plan.length == 0 ? size_t{0} : size_t{1}}, 0};
  if (!f.egress.port->queue().tx(frame, bell)) return false;
  stats_.tx_packets.add();
  stats_.tx_bytes.add(n + plan.length);
  f.stats->tx_packets.add();
  f.stats->tx_bytes.add(plan.length);
  if (plan.retransmission) [[unlikely]] {
    f.stats->retransmits.add();
    stats_.retransmits.add();
  }
  return true;
}

/// All of a burst in one frame, which the device cuts; sums and lengths are its own to fill in.
bool Engine::emit_burst(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst,
                        Doorbell bell) noexcept {
  alignas(16) std::byte head[wire::HeaderTemplate::kMaxBytes];
  const size_t n = f.egress.header.emit_tcp(head,
                                            {.seq = plan.seq.value(),
                                             .ack = plan.ack.value(),
                                             .flags = static_cast<uint8_t>(burst.flags(plan)),
                                             .window = plan.window,
                                             .options = {plan.options, plan.options_length},
                                             .payload_bytes = burst.bytes,
                                             .ip_id = f.next_ip_id,
                                             .ecn = plan.ecn},
                                            wire::L4Sum::kPseudo);
  const TxFrame frame{{head, n}, {burst.slices, burst.slice_count}, plan.length};
  if (!f.egress.port->queue().tx(frame, bell)) return false;
  if (f.ip.mtu_discover == IP_PMTUDISC_DONT)
    f.next_ip_id = static_cast<uint16_t>(f.next_ip_id + burst.segments);
  stats_.tx_packets.add(burst.segments);
  stats_.tx_bytes.add(n * burst.segments + burst.bytes);
  f.stats->tx_packets.add(burst.segments);
  f.stats->tx_bytes.add(burst.bytes);
  return true;
}

/// Looks the way up again. Errors: EAGAIN the neighbour is not known yet (the kernel was asked),
/// EHOSTUNREACH it does not answer, and those of the look-up. `e.mtu` and `e.port` are set even if
/// the neighbour is unknown.
Result<void> Engine::resolve_egress(Egress& e, IpProto proto, const Endpoint& local,
                                    const Endpoint& remote, const IpSettings& ip,
                                    Instant now) noexcept {
  net::LookupKey key;
  key.dst = remote.addr;
  key.src = local.addr;
  key.oif = IfIndex(remote.scope);
  key.proto = proto;
  key.sport = local.port;
  key.dport = remote.port;
  key.tos = ip.tos;
  key.mark = ip.mark;
  const auto hop = net::resolve(reader_.snapshot(), key);
  if (!hop) return std::unexpected(hop.error());
  if (proto == IpProto::kTcp && hop->kind != net::DestKind::kUnicast)
    return fail(ENETUNREACH, "not one host elsewhere");
  if (hop->carrier.value() == 0) return fail(ENETUNREACH, "the route left the carried interfaces");
  if (e.port == nullptr || e.port->link.index != hop->carrier || e.port->dead) {
    auto port = open_port(hop->carrier);
    if (!port) return fail(ENETUNREACH, port.error().where);
    e.port = *port;
  }
  e.link_mtu = hop->mtu;
  const bool hears = ip.mtu_discover < IP_PMTUDISC_INTERFACE;
  const bool probes = proto == IpProto::kUdp && ip.mtu_discover == IP_PMTUDISC_PROBE;
  e.mtu = hears && !probes ? pmtu_.get(remote.addr, hop->mtu, now) : hop->mtu;
  e.ifindex = hop->ifindex;
  if (net::wants_kick(hop->neighbour) && now - e.asked >= kAskAgain) {
    mirror_.request_neighbour(hop->ifindex, hop->via);
    e.asked = now;
  }
  if (!hop->is_resolved())
    return fail(hop->neighbour == net::NeighbourState::kFailed ? EHOSTUNREACH : EAGAIN,
                "neighbour");
  e.header = wire::HeaderTemplate::build(
      {.src_mac = hop->src_mac,
       .dst_mac = hop->dst_mac,
       .vlan = hop->vlan,
       .proto = proto,
       .src = local.addr,
       .dst = remote.addr,
       .src_port = local.port,
       .dst_port = remote.port,
       .ttl = ip.ttl,
       .tos = ip.tos,
       .dont_fragment = proto == IpProto::kUdp || ip.mtu_discover != IP_PMTUDISC_DONT});
  e.generation = hop->generation;
  return {};
}

Result<void> Engine::refresh_egress(TcpFlow& f, Instant now) noexcept {
  const uint32_t before = f.egress.mtu;
  auto ok = resolve_egress(f.egress, IpProto::kTcp, f.key.local, f.key.remote, f.ip, now);
  if (ok) f.stalled_since = Instant();
  if (before != 0 && f.egress.mtu != before)
    tcp::set_mss(f.tcb, std::min(mss_of(f.egress.mtu, f.key.v6), f.mss_limit));
  return ok;
}

/// The way is not known: waits for the kernel's answer. A connection in the making fails after a
/// while, as Linux's does; an established one goes on by TCP's own clock.
void Engine::stall(TcpFlow& f, const Err& why, Instant now) noexcept {
  if (f.stalled_since == Instant()) f.stalled_since = now;
  const tcp::State state = tcp::state(f.tcb);
  const bool is_opening = state == tcp::State::kSynSent || state == tcp::State::kSynReceived;
  const bool is_orphan = f.owner == nullptr && f.listener == nullptr;
  const bool may_heal = why.code == EAGAIN || why.code == EHOSTUNREACH;
  if ((is_opening || is_orphan) && (!may_heal || now - f.stalled_since >= kNeighbourPatience)) {
    note_effects(f, tcp::fail(f.tcb, why.code == EAGAIN ? EHOSTUNREACH : why.code));
    return;
  }
  f.is_stalled = true;
  stalled_.push_back(f);
  deadlines_moved_ = true;
}

void Engine::flush_pending(Instant now) noexcept {
  TcpPending turn;  // those that are not done after their turn wait for the next poll
  turn.swap(pending_);
  while (!turn.empty()) {
    TcpFlow& f = turn.front();
    turn.pop_front();
    if (!transmit(f, now)) want_transmit(f);
    if (f.owner == nullptr && f.listener == nullptr && !f.notify_hook.is_linked()) [[unlikely]]
      orphan_effects(f, now);
  }
}

/// Neighbours or routes changed, or time passed: whoever waits for them tries again.
void Engine::retry_waiters(Instant now) noexcept {
  waiters_retried_ = now;
  for (TcpFlow& f : stalled_) f.is_stalled = false;
  pending_.splice(pending_.end(), stalled_);
  HookList<UdpFlow, &UdpFlow::held_hook> udp;
  udp.swap(held_);
  while (!udp.empty()) {
    UdpFlow& u = udp.front();
    udp.pop_front();
    send_held(u, now);
  }
  if (!pending_.empty()) flush_pending(now);
}

}  // namespace vireo
