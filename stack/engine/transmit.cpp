// From the protocol to the ring: what a connection wants to say, the header it is said with, and
// where it goes.
#include <cstring>

#include "core/checksum.h"
#include "stack/engine/engine.h"
#include "stack/engine/mss.h"
#include "stack/tcp/held.h"
#include "stack/tcp/joined.h"
#include "stack/wire/tcp_options.h"

namespace vireo {
namespace {

/// Frames one connection may send before the others have their turn.
constexpr unsigned kSendBurst = 64;
/// How long an ACK may wait before it goes by itself, in steps of Engine::ride_clock_: it leaves
/// with the next. Accept until there is none, then epoll_wait and recv, is two.
constexpr uint8_t kLongestRide = 2;
/// A step, of a program that does neither wait nor ask in vain.
constexpr Duration kRideStep = Duration::ms(1);
/// How often the kernel is asked again about a neighbour that does not answer, or to confirm one in
/// use.
constexpr Duration kAskAgain = Duration::ms(500);
/// The same of one that the kernel has no entry of: it may have lost that since, without a word.
constexpr Duration kAskAnew = Duration::ms(50);
/// A neighbour that is there answers sooner.
constexpr Duration kNeighbourAnswers = Duration::ms(200);
/// How long a connection waits for a neighbour before it fails, as Linux's three probes a second
/// apart.
constexpr Duration kNeighbourPatience = Duration::s(3);

/// Of Ethernet and two VLAN tags: what an MTU does not count.
constexpr uint32_t kLinkHeader = 22;

/// With fewer it costs more to look for them than their headers do.
constexpr uint32_t kLeastRun = 3;

/// With `plan`, more of what is to be said fits the path's longest segment.
[[gnu::cold, gnu::noinline]] bool may_join(TcpFlow& f, const tcp::Plan& plan, Instant now,
                                           tcp::Burst& b) {
  const DeviceCaps& caps = f.egress.port->device->caps();
  const auto head = static_cast<uint32_t>(f.egress.header.size() + plan.options_length);
  tcp::BurstLimits limits{tcp::may_join(f.tcb, now),
                          std::min(caps.max_body_slices, tcp::Burst::kMostSlices), UINT16_MAX};
  // The interface may take longer packets now than when the device was opened.
  limits.bytes = std::min(limits.bytes, caps.mtu + kLinkHeader - std::min(head, caps.mtu));
  return tcp::plan_burst(f.tcb, plan, limits, b);
}

/// More may leave right behind `plan`: `b` says what, at most `most` segments.
bool may_burst(TcpFlow& f, const tcp::Plan& plan, unsigned most, tcp::Burst& b) {
  const Port& port = *f.egress.port;
  if (!port.segments) {
    // Each of a run is paced by itself and says the same.
    if (tcp::unsent_bytes(f.tcb) < kLeastRun * plan.length || f.tcb.paced ||
        has(plan.flags, tcp::SegFlags::kCwr) || f.ip.mtu_discover == IP_PMTUDISC_DONT)
      return false;
  }
  tcp::BurstLimits limits = port.burst;
  limits.segments = static_cast<uint16_t>(most);
  return tcp::plan_burst(f.tcb, plan, limits, b);
}

wire::HeaderTemplate::TcpFields fields(const TcpFlow& f, const tcp::Plan& plan) {
  return {.seq = plan.seq.value(),
          .ack = plan.ack.value(),
          .flags = static_cast<uint8_t>(plan.flags),
          .window = plan.window,
          .urgent = plan.urgent,
          .options = {plan.options, plan.options_length},
          .payload_bytes = plan.length,
          .ip_id = f.next_ip_id,
          .ecn = plan.ecn};
}

using Room = std::byte[wire::HeaderTemplate::kMaxBytes];

/// Of text; that of whole frames is known.
checksum::Sum sum_of(const PacketSlice& s) {
  const PacketBuf& b = *s.packet;
  return s.length == b.length ? b.sum : checksum::sum(b.frame + s.at, s.length);
}

checksum::Sum sum_of(const tcp::Burst& burst) {
  checksum::Sum sum = 0;
  uint32_t done = 0;
  for (unsigned i = 0; i < burst.slice_count; ++i) {
    const PacketSlice& s = burst.slices[i];
    sum = checksum::combine(sum, sum_of(s), (done & 1) != 0);
    done += s.length;
  }
  return sum;
}

/// The headers of a plan's segments, of which each has its own number, flags and text.
class Heads {
 public:
  Heads(const TcpFlow& f, const tcp::Plan& plan) noexcept
      : header_(f.egress.header),
        plan_(plan),
        id_(f.next_ip_id),
        is_plain_(header_.is_plain_tcp() && f.ip.mtu_discover != IP_PMTUDISC_DONT &&
                  plan.options_length == 12 && word(0) == wire::kTimestampsWord &&
                  plan.urgent == 0 && plan.ecn == wire::Ecn::kNotEct) {}
  size_t size() const { return header_.size() + plan_.options_length; }
  void emit(std::byte* out, const tcp::Burst::Segment& s, checksum::Sum sum) const noexcept {
    const uint32_t seq = plan_.seq.value() + s.from;
    if (is_plain_) [[likely]] {
      header_.emit_plain_tcp(out, {.seq = seq,
                                   .ack = plan_.ack.value(),
                                   .flags = static_cast<uint8_t>(s.flags),
                                   .window = plan_.window,
                                   .ts_val = word(1),
                                   .ts_echo = word(2),
                                   .payload_bytes = s.text.length,
                                   .payload_sum = sum});
      return;
    }
    header_.emit_tcp(out, {.seq = seq,
                           .ack = plan_.ack.value(),
                           .flags = static_cast<uint8_t>(s.flags),
                           .window = plan_.window,
                           .urgent = plan_.urgent,
                           .options = {plan_.options, plan_.options_length},
                           .payload_bytes = s.text.length,
                           .payload_sum = sum,
                           .ip_id = id_,
                           .ecn = plan_.ecn});
  }

 private:
  /// Of the options, in the size that it was written in a moment ago.
  uint32_t word(unsigned i) const {
    be32 w;
    std::memcpy(static_cast<void*>(&w), plan_.options + size_t{4} * i, 4);
    return w;
  }
  const wire::HeaderTemplate& header_;
  const tcp::Plan& plan_;
  uint16_t id_;
  bool is_plain_;
};

/// Where a header goes: where the device would copy it, or right before the text, where the device
/// may leave it, unless it still reads that.
std::byte* place(const PacketSlice& text, size_t head_bytes, Room& room, const Queue& queue) {
  if (std::byte* const there = queue.head_place(); there != nullptr) return there;
  if (text.length == 0) return room;
  PacketBuf& b = *text.packet;
  if (text.at == b.data_at && b.device_refs == 0 && b.data_at >= sizeof room) [[likely]]
    return b.data() - head_bytes;
  return room;
}

/// @return false: the ring is full.
bool send_segment(Queue& queue, const Heads& heads, const tcp::Burst::Segment& s, Doorbell bell) {
  alignas(16) Room room;
  const size_t n = heads.size();
  std::byte* const head = place(s.text, n, room, queue);
  const bool has_text = s.text.length != 0;
  heads.emit(head, s, has_text ? sum_of(s.text) : 0);
  return queue.tx({{head, n}, {&s.text, has_text ? size_t{1} : size_t{0}}, 0}, bell);
}

}  // namespace

void Engine::want_transmit(TcpFlow& f) noexcept {
  lull_ = 0;
  deadlines_moved_ = true;  // whoever sleeps or helps must know that something waits
  if (f.pending_hook.is_linked()) {
    if (!f.is_riding || tcp::may_ride(f.tcb)) return;
    f.pending_hook.unlink();  // it has more to say now
  }
  f.is_riding = false;
  pending_.push_back(f);
}

/// @return false: the ring is full or the burst is over, and the flow has more to send.
bool Engine::transmit(TcpFlow& f, SendBy by, Instant now) noexcept {
  if (f.is_stalled) [[unlikely]]
    return true;
  f.pending_hook.unlink();
  f.is_riding = false;
  tcp::Plan plan;
  bool is_done = true;
  bool is_unrung = false;
  unsigned frames = 0;
  Doorbell last_bell = bell_;
  const bool may_share = by != SendBy::kTurn && bell_ == Doorbell::kNow && f.egress.port->corks;
  for (unsigned n = 0; tcp::has_output(f.tcb) && tcp::next_segment(f.tcb, now, plan);) {
    if (n == kSendBurst) {
      is_done = false;
      break;
    }
    if (f.egress.generation != static_cast<uint32_t>(reader_.generation())) [[unlikely]] {
      if (auto ok = refresh_egress(f, now); !ok) {
        stall(f, plan, ok.error(), now);
        break;
      }
    }
    // The last one rings at once, before the books are done: the reply is a microsecond away.
    // Behind a SYN nothing leaves in the same call.
    bool is_last = tcp::unsent_bytes(f.tcb) <= plan.length || has(plan.flags, tcp::SegFlags::kSyn);
    tcp::Burst burst;
    const bool is_joined = !is_last && f.egress.port->joins && may_join(f, plan, now, burst);
    const bool is_burst = is_joined || (!is_last && may_burst(f, plan, kSendBurst - n, burst));
    if (is_burst) is_last = tcp::unsent_bytes(f.tcb) <= burst.bytes;
    const unsigned all = is_burst && !is_joined ? burst.segments : 1;
    if (is_last && may_share) [[unlikely]]
      last_bell = bell_of_call(f, by, n + all, now);
    const Doorbell bell = is_last ? last_bell : Doorbell::kLater;
    const unsigned left = is_joined  ? send_joined(f, plan, burst, bell, now)
                          : is_burst ? send_burst(f, plan, burst, bell, now)
                                     : static_cast<unsigned>(emit(f, plan, bell));
    n += left;
    frames = n;
    if (left != all) [[unlikely]] {
      is_unrung |= left > 0;
      stats_.tx_ring_full.add();
      f.egress.port->queue().tx_reap();
      is_done = false;
      break;
    }
    is_unrung = !is_last;
    if (!is_burst) tcp::sent(f.tcb, plan, now);
  }
  if (is_unrung)
    ring_later(f, frames);
  else if (bell_ == Doorbell::kLater)
    unrung_ += frames;
  else if (frames != 0 && may_share) [[unlikely]]
    note_call(f, by, last_bell, frames, now);
  arm_timer(f);
  return is_done;
}

/// Whole segments of a stream of small writes, whose rest Nagle's algorithm holds: nothing is
/// complete at the peer before the ACK of what is in flight has come, so these need not ring each.
/// The next poll does, whoever's, or so many of them.
void Engine::ring_later(TcpFlow& f, unsigned frames) noexcept {
  unrung_ += frames;
  if (unrung_ < kMostUnrung && tcp::is_held_back(f.tcb)) return;
  ring_left();
}

bool Engine::emit(TcpFlow& f, const tcp::Plan& plan, Doorbell bell) noexcept {
  const Heads heads(f, plan);
  const tcp::Burst::Segment all{{plan.packet, plan.at, plan.length}, 0, plan.flags};
  if (!send_segment(f.egress.port->queue(), heads, all, bell)) return false;
  if (f.ip.mtu_discover == IP_PMTUDISC_DONT) [[unlikely]]
    ++f.next_ip_id;
  count_sent(f, 1, heads.size(), plan.length);
  if (plan.retransmission) [[unlikely]] {
    f.stats->retransmits.add();
    stats_.retransmits.add();
  }
  return true;
}

/// What may leave at once, with its books. @return segments that left; not all: the ring is full.
unsigned Engine::send_burst(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst,
                            Doorbell bell, Instant now) noexcept {
  if (!f.egress.port->segments) return emit_run(f, plan, burst, bell, now);
  if (!emit_burst(f, plan, burst, bell)) return 0;
  tcp::sent_burst(f.tcb, plan, burst, burst.segments, now);
  return burst.segments;
}

/// In one frame, which the device cuts; sums and lengths are its own to fill in.
bool Engine::emit_burst(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst,
                        Doorbell bell) noexcept {
  alignas(16) Room head;
  wire::HeaderTemplate::TcpFields what = fields(f, plan);
  what.flags = static_cast<uint8_t>(burst.flags(plan));
  what.payload_bytes = burst.bytes;
  const size_t n = f.egress.header.emit_tcp(head, what, wire::L4Sum::kPseudo);
  const TxFrame frame{{head, n}, {burst.slices, burst.slice_count}, plan.length};
  if (!f.egress.port->queue().tx(frame, bell)) return false;
  if (f.ip.mtu_discover == IP_PMTUDISC_DONT)
    f.next_ip_id = static_cast<uint16_t>(f.next_ip_id + burst.segments);
  count_sent(f, burst.segments, n, burst.bytes);
  return true;
}

/// All of it as one segment, whose frame the device gathers, with its books. @return 0: the ring is
/// full.
unsigned Engine::send_joined(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst,
                             Doorbell bell, Instant now) noexcept {
  alignas(16) Room head;
  wire::HeaderTemplate::TcpFields what = fields(f, plan);
  what.flags = static_cast<uint8_t>(burst.flags(plan));
  what.payload_bytes = burst.bytes;
  what.payload_sum = sum_of(burst);
  const size_t n = f.egress.header.emit_tcp(head, what);
  const TxFrame frame{{head, n}, {burst.slices, burst.slice_count}, 0};
  if (!f.egress.port->queue().tx(frame, bell)) return 0;
  if (f.ip.mtu_discover == IP_PMTUDISC_DONT) ++f.next_ip_id;
  count_sent(f, 1, n, burst.bytes);
  tcp::sent_joined(f.tcb, plan, burst, now);
  return 1;
}

/// Segment by segment, with its books. @return segments that left.
unsigned Engine::emit_run(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst, Doorbell bell,
                          Instant now) noexcept {
  const Heads heads(f, plan);
  Queue& queue = f.egress.port->queue();
  unsigned left = 0;
  uint32_t bytes = 0;
  burst.for_each(plan, [&](const tcp::Burst::Segment& s) {
    const bool is_last = left + 1U == burst.segments;
    if (!send_segment(queue, heads, s, is_last ? bell : Doorbell::kLater)) return false;
    ++left;
    bytes += s.text.length;
    return true;
  });
  if (left == 0) [[unlikely]]
    return 0;
  count_sent(f, left, heads.size(), bytes);
  tcp::sent_burst(f.tcb, plan, burst, left, now);
  return left;
}

/// One connection after the other goes the same way, and nothing has changed mostly.
Result<net::NextHop> Engine::next_hop(net::LookupKey key) noexcept {
  const net::Snapshot& snapshot = reader_.snapshot();
  if (!snapshot.by_ports) [[likely]]
    key.sport = key.dport = 0;
  const size_t place =
      size_t{key.dst.bytes()[15]} ^ key.sport ^ key.dport ^ (key.src.is_unspecified() ? 1U : 0U);
  Resolved& r = resolved_[place % resolved_.size()];
  if (r.hop.generation == snapshot.generation && r.key == key) return r.hop;
  auto hop = net::resolve(snapshot, key);
  if (hop) r = {key, *hop};
  return hop;
}

namespace {
Duration ask_interval(const net::NextHop& hop) {
  return hop.neighbour == net::NeighbourState::kNone ? kAskAnew : kAskAgain;
}
}  // namespace

/// Of all connections there, one asks: it is a system call, and wakes the helper.
void Engine::ask_for_neighbour(const net::NextHop& hop, Instant now) noexcept {
  Asked& last = asked_[hop.via.bytes()[15] % asked_.size()];
  const bool to_confirm = hop.is_resolved();
  if (last.via == hop.via && last.ifindex == hop.ifindex && last.to_confirm == to_confirm &&
      now - last.at < ask_interval(hop))
    return;
  last = {hop.via, hop.ifindex, now, to_confirm};
  mirror_.request_neighbour(hop.ifindex, hop.via);
}

/// It needs no asking: if the kernel forgets it again, it is asked at once.
void Engine::forget_asked(const net::NextHop& hop) noexcept {
  Asked& last = asked_[hop.via.bytes()[15] % asked_.size()];
  if (last.via == hop.via && last.ifindex == hop.ifindex) last = {};
}

uint8_t Engine::tag_priority(const net::NextHop& hop, const IpSettings& ip) const noexcept {
  if (hop.vlan == VlanId()) return 0;
  const net::Link* const link = reader_.snapshot().links->find(hop.ifindex);
  if (link == nullptr || ip.priority >= link->egress_qos.size()) return 0;
  return link->egress_qos[ip.priority];
}

/// Looks the way up again. Errors: EAGAIN the neighbour is not known, or did not answer and is
/// asked anew (but for datagrams: who gives them to the kernel's socket asks thereby), and those of
/// the look-up. `e.mtu` and `e.port` are set even if the neighbour is unknown.
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
  const auto hop = next_hop(key);
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
  const bool is_lost = e.generation != 0 && !hop->is_resolved();
  if (!net::wants_kick(hop->neighbour)) {
    forget_asked(*hop);
  } else if ((hop->is_resolved() || proto == IpProto::kTcp) &&
             (is_lost || now - e.asked >= ask_interval(*hop))) {
    e.asked = now;
    ask_for_neighbour(*hop, now);
  }
  if (!hop->is_resolved()) {
    e.generation = 0;
    return fail(EAGAIN, "neighbour");
  }
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
       .dont_fragment = proto == IpProto::kUdp || ip.mtu_discover != IP_PMTUDISC_DONT,
       .vlan_priority = tag_priority(*hop, ip)});
  e.generation = static_cast<uint32_t>(hop->generation);
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
/// while, as Linux's does; an established one goes on by TCP's own clock, for which a segment that
/// waits for long counts as sent and lost.
void Engine::stall(TcpFlow& f, const tcp::Plan& plan, const Err& why, Instant now) noexcept {
  if (f.stalled_since == Instant()) f.stalled_since = now;
  const tcp::State state = tcp::state(f.tcb);
  const bool is_opening = state == tcp::State::kSynSent || state == tcp::State::kSynReceived;
  const bool is_orphan = f.owner == nullptr && f.listener == kNoListener;
  const bool may_heal = why.code == EAGAIN || why.code == EHOSTUNREACH;
  if ((is_opening || is_orphan) && (!may_heal || now - f.stalled_since >= kNeighbourPatience)) {
    note_effects(f, tcp::fail(f.tcb, why.code == EAGAIN ? EHOSTUNREACH : why.code));
    return;
  }
  if (!is_opening && now - f.stalled_since >= kNeighbourAnswers) {
    const bool is_clocked = f.tcb.outstanding() != 0;
    const bool says_more = plan.length != 0 || has(plan.flags, tcp::SegFlags::kFin);
    if (!is_clocked && says_more && !has(plan.flags, tcp::SegFlags::kRst))
      tcp::sent(f.tcb, plan, now);
    if (now - f.stalled_since >= kNeighbourPatience)
      (void)tcp::icmp_error(f.tcb, f.tcb.snd_seq(f.tcb.snd_una), EHOSTUNREACH, false, now);
    arm_timer(f);
  }
  f.is_stalled = true;
  stalled_.push_back(f);
  deadlines_moved_ = true;
}

void Engine::flush_pending(Instant now) noexcept {
  TcpPending turn;
  turn.swap(riding_);
  turn.splice(turn.end(), pending_);
  transmit_all(turn, now);
}

/// Who owes no more than an ACK that may wait does so, for a while: until the program has waited
/// some times for all that it looks after, or has called again and again in vain.
void Engine::flush_pending_to_return(Instant now) noexcept {
  if (poll_of_ == PollOf::kWait || lull_ > 1 || now >= ride_until_) {
    ++ride_clock_;
    ride_until_ = now + std::min(kRideStep, config_.helper_grace);
  }
  TcpPending turn;
  while (!riding_.empty()) {
    TcpFlow& f = riding_.front();
    if (static_cast<uint8_t>(ride_clock_ - f.rides_from) <= kLongestRide) break;
    riding_.pop_front();
    turn.push_back(f);
  }
  while (!pending_.empty()) {
    TcpFlow& f = pending_.front();
    pending_.pop_front();
    f.is_riding = !f.is_stalled && tcp::may_ride(f.tcb);
    f.rides_from = ride_clock_;
    (f.is_riding ? riding_ : turn).push_back(f);
  }
  transmit_all(turn, now);
}

/// Those that are not done after their turn wait for the next poll.
void Engine::transmit_all(TcpPending& flows, Instant now) noexcept {
  if (flows.empty()) return;
  if (&flows.front() != &flows.back() || is_amid_answers()) bell_ = Doorbell::kLater;
  while (!flows.empty()) {
    TcpFlow& f = flows.front();
    flows.pop_front();
    if (!transmit(f, SendBy::kTurn, now)) want_transmit(f);
    if (f.owner == nullptr && f.listener == kNoListener && !f.notify_hook.is_linked()) [[unlikely]]
      orphan_effects(f, now);
    if (unrung_ >= kMostTogether) ring_left();
  }
  if (bell_ == Doorbell::kNow) return;
  bell_ = Doorbell::kNow;
  if (unrung_ != 0) ring_turn(now);
}

/// Neighbours or routes changed, or time passed: whoever waits for them tries again.
void Engine::retry_waiters(Instant now) noexcept {
  waiters_retried_ = now;
  for (TcpFlow& f : stalled_) f.is_stalled = false;
  pending_.splice(pending_.end(), stalled_);
  if (!pending_.empty()) flush_pending(now);
}

}  // namespace vireo
