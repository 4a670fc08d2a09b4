// Which connection sends what, and when.
#include <algorithm>

#include "stack/engine/hub.h"

namespace vireo {
namespace {

/// Frames that one connection may send before others have their turn.
constexpr unsigned kSendBurst = 64;
/// How many ticks of TcpOutput's ACK clock a delayed ACK may wait; it leaves with the next. Two:
/// accept until there is none, then epoll_wait and recv.
constexpr uint8_t kMaxAckTicks = 2;
/// Length of a tick if the program neither waits nor polls in vain.
constexpr Duration kAckTick = Duration::ms(1);
/// A neighbour that is up answers within this time.
constexpr Duration kNeighbourAnswers = Duration::ms(200);
/// How long a connection waits for a neighbour before it fails: Linux sends three probes, one a
/// second.
constexpr Duration kNeighbourPatience = Duration::s(3);
/// Interval of retries for stalled flows, besides each change of the kernel's tables.
constexpr Duration kRetryStalled = Duration::ms(50);

/// Ethernet and two VLAN tags, which an MTU does not count.
constexpr uint32_t kLinkHeader = 22;

/// For fewer segments the search costs more than it saves.
constexpr uint32_t kMinRun = 3;

/// More data than that of `plan` fits the path's longest segment.
[[gnu::cold, gnu::noinline]] bool may_join(TcpFlow& f, const tcp::Plan& plan, Instant now,
                                           tcp::Burst& b) {
  const DeviceCaps& caps = f.egress.port->device->caps();
  const auto head = static_cast<uint32_t>(f.egress.header.size() + plan.options_length);
  tcp::BurstLimits limits{tcp::may_join(f.tcb, now),
                          std::min(caps.max_body_slices, tcp::Burst::kMaxSlices), UINT16_MAX};
  // The interface's MTU may have changed since the device was opened.
  limits.bytes = std::min(limits.bytes, caps.mtu + kLinkHeader - std::min(head, caps.mtu));
  return tcp::plan_burst(f.tcb, plan, limits, b);
}

/// More segments may leave right behind `plan`: `b`, at most `most`.
bool may_burst(TcpFlow& f, const tcp::Plan& plan, unsigned most, tcp::Burst& b) {
  const Port& port = *f.egress.port;
  if (!port.segments) {
    // A run excludes pacing, and flags or IP IDs that differ between segments.
    if (tcp::unsent_bytes(f.tcb) < kMinRun * plan.length || f.tcb.paced ||
        has(plan.flags, tcp::SegFlags::kCwr) || f.ip.mtu_discover == IP_PMTUDISC_DONT)
      return false;
  }
  tcp::BurstLimits limits = port.burst;
  limits.segments = static_cast<uint16_t>(most);
  return tcp::plan_burst(f.tcb, plan, limits, b);
}

}  // namespace

void TcpOutput::want(TcpFlow& f) noexcept {
  hub().turn.note_work();  // sleepers and the helper must know that something waits
  if (f.pending_hook.is_linked()) {
    if (!f.is_ack_delayed || tcp::may_delay_ack(f.tcb)) return;
    f.pending_hook.unlink();  // it has more to send now
  }
  f.is_ack_delayed = false;
  pending_.push_back(f);
}

bool TcpOutput::transmit(TcpFlow& f, SendBy by, Instant now) noexcept {
  if (f.is_stalled | f.is_watched) [[unlikely]]
    return f.is_stalled || transmit_watched(f, by, now);
  return transmit_as<false>(f, by, now);
}

[[gnu::noinline]] bool TcpOutput::transmit_watched(TcpFlow& f, SendBy by, Instant now) noexcept {
  return transmit_as<true>(f, by, now);
}

template <bool kWatched>
[[gnu::always_inline]] inline bool TcpOutput::transmit_as(TcpFlow& f, SendBy by,
                                                          Instant now) noexcept {
  f.pending_hook.unlink();
  f.is_ack_delayed = false;
  tcp::Plan plan;
  bool is_done = true;
  bool is_unrung = false;
  unsigned frames = 0;
  const Doorbell turn_bell = hub().doorbells.bell_of_turn();
  Doorbell last_bell = turn_bell;
  const bool may_share = by != SendBy::kTurn && turn_bell == Doorbell::kNow && f.egress.port->corks;
  for (unsigned n = 0; tcp::has_output(f.tcb) && tcp::next_segment(f.tcb, now, plan);) {
    if (n == kSendBurst) {
      is_done = false;
      break;
    }
    if (!hub().is_current(f.egress)) [[unlikely]] {
      if (auto ok = hub().next_hops.refresh(f, now); !ok) {
        stall(f, plan, ok.error(), now);
        break;
      }
    }
    // The last segment rings at once, before the accounting: the reply is a microsecond away.
    // Behind a SYN nothing leaves in the same call.
    bool is_last = tcp::unsent_bytes(f.tcb) <= plan.length || has(plan.flags, tcp::SegFlags::kSyn);
    tcp::Burst burst;
    const bool is_jumbo = !is_last && f.egress.port->joins && may_join(f, plan, now, burst);
    const bool is_burst = is_jumbo || (!is_last && may_burst(f, plan, kSendBurst - n, burst));
    if (is_burst) is_last = tcp::unsent_bytes(f.tcb) <= burst.bytes;
    const unsigned all = is_burst && !is_jumbo ? burst.segments : 1;
    if (is_last && may_share) [[unlikely]]
      last_bell = hub().doorbells.bell_of_call(f, by, n + all, now);
    const Doorbell bell = is_last ? last_bell : Doorbell::kLater;
    [[maybe_unused]] const int64_t left_at = kWatched ? Clock::wall_ns() : 0;
    const unsigned left = is_jumbo   ? send_jumbo(f, plan, burst, bell, now)
                          : is_burst ? send_burst(f, plan, burst, bell, now)
                                     : static_cast<unsigned>(emit(f, plan, bell));
    if constexpr (kWatched) {
      const uint32_t bytes =
          is_burst ? (left == all ? burst.bytes : left * plan.length) : left * plan.length;
      if (bytes != 0 && f.owner != nullptr)
        tell_left(f, plan, is_burst ? &burst : nullptr, bytes, left_at);
    }
    n += left;
    frames = n;
    if (left != all) [[unlikely]] {
      is_unrung |= left > 0;
      hub().stats.tx_ring_full.add();
      f.egress.port->queue().tx_reap();
      is_done = false;
      break;
    }
    is_unrung = !is_last;
    if (!is_burst) tcp::sent(f.tcb, plan, now);
  }
  if (is_unrung)
    hub().doorbells.ring_unless_held(f, frames);
  else if (turn_bell == Doorbell::kLater)
    hub().doorbells.leave_unrung(frames);
  else if (frames != 0 && may_share) [[unlikely]]
    hub().doorbells.note_call(f, by, last_bell, frames, now);
  hub().timers.arm(f);
  return is_done;
}

/// No next hop known: waits for the kernel's answer. A connection being opened fails after a while,
/// as on Linux; an established one goes on by TCP's own timers, for which a segment that waits long
/// counts as sent and lost.
void TcpOutput::stall(TcpFlow& f, const tcp::Plan& plan, const Err& why, Instant now) noexcept {
  if (f.stalled_since == Instant()) f.stalled_since = now;
  const tcp::State state = tcp::state(f.tcb);
  const bool is_opening = state == tcp::State::kSynSent || state == tcp::State::kSynReceived;
  const bool is_orphan = f.owner == nullptr && f.listener == kNoListener;
  const bool may_heal = why.code == EAGAIN || why.code == EHOSTUNREACH;
  if ((is_opening || is_orphan) && (!may_heal || now - f.stalled_since >= kNeighbourPatience)) {
    hub().notifications.note(f, tcp::fail(f.tcb, why.code == EAGAIN ? EHOSTUNREACH : why.code));
    return;
  }
  if (!is_opening && now - f.stalled_since >= kNeighbourAnswers) {
    const bool is_clocked = f.tcb.outstanding() != 0;
    const bool says_more = plan.length != 0 || has(plan.flags, tcp::SegFlags::kFin);
    if (!is_clocked && says_more && !has(plan.flags, tcp::SegFlags::kRst))
      tcp::sent(f.tcb, plan, now);
    if (now - f.stalled_since >= kNeighbourPatience)
      (void)tcp::icmp_error(f.tcb, f.tcb.snd_seq(f.tcb.snd_una), EHOSTUNREACH, false, now);
    hub().timers.arm(f);
  }
  f.is_stalled = true;
  stalled_.push_back(f);
  hub().turn.move_deadline();
}

void TcpOutput::flush(Instant now) noexcept {
  Waiting turn;
  turn.swap(delayed_acks_);
  turn.splice(turn.end(), pending_);
  transmit_all(turn, now);
}

void TcpOutput::flush_to_return(Instant now) noexcept {
  if (hub().turn.of() == PollOf::kWait || hub().turn.idle_turns() > 1 || now >= next_ack_tick_) {
    ++ack_clock_;
    next_ack_tick_ = now + std::min(kAckTick, hub().config.helper_grace);
  }
  Waiting turn;
  while (!delayed_acks_.empty()) {
    TcpFlow& f = delayed_acks_.front();
    if (static_cast<uint8_t>(ack_clock_ - f.ack_delayed_at) <= kMaxAckTicks) break;
    delayed_acks_.pop_front();
    turn.push_back(f);
  }
  while (!pending_.empty()) {
    TcpFlow& f = pending_.front();
    pending_.pop_front();
    f.is_ack_delayed = !f.is_stalled && tcp::may_delay_ack(f.tcb);
    f.ack_delayed_at = ack_clock_;
    (f.is_ack_delayed ? delayed_acks_ : turn).push_back(f);
  }
  transmit_all(turn, now);
}

/// Connections with more to send wait for the next poll.
void TcpOutput::transmit_all(Waiting& flows, Instant now) noexcept {
  if (flows.empty()) return;
  const bool is_batch = &flows.front() != &flows.back() || hub().doorbells.is_amid_answers();
  if (is_batch) hub().doorbells.begin_batch();
  while (!flows.empty()) {
    TcpFlow& f = flows.front();
    flows.pop_front();
    if (!transmit(f, SendBy::kTurn, now)) want(f);
    if (f.owner == nullptr && f.listener == kNoListener && !f.notify_hook.is_linked()) [[unlikely]]
      hub().tcp.orphan_effects(f, now);
    hub().doorbells.ring_if_many();
  }
  if (is_batch) hub().doorbells.end_batch(now);
}

void TcpOutput::retry_stalled(Instant now) noexcept {
  stalled_retried_ = now;
  for (TcpFlow& f : stalled_) f.is_stalled = false;
  pending_.splice(pending_.end(), stalled_);
  if (!pending_.empty()) flush(now);
}

void TcpOutput::retry_stalled_if_due(Instant now) noexcept {
  if (now - stalled_retried_ >= kRetryStalled) retry_stalled(now);
}

Instant TcpOutput::deadline(Instant now) const noexcept {
  Instant d = Instant::never();
  if (!stalled_.empty()) d = std::min(d, stalled_retried_ + kRetryStalled);
  if (!delayed_acks_.empty()) d = std::min(d, now + hub().config.helper_grace);
  return d;
}

}  // namespace vireo
