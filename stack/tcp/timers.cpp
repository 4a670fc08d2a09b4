// Handles deadlines: retransmission and persist (one timer, as they exclude each other), delayed
// ACK, keepalive, cork, the end of orphans and of TIME-WAIT.
#include <algorithm>
#include <cerrno>

#include "stack/tcp/delayed_ack.h"
#include "stack/tcp/recovery.h"
#include "stack/tcp/tcb.h"

namespace vireo::tcp {

namespace {

constexpr uint8_t kOrphanRetries = 8;                    // as Linux tcp_orphan_retries 0
constexpr Duration kMaxProbeInterval = Duration::s(60);  // RFC 9293 §3.8.6.1 asks for backoff

bool past(const Tcb& t, Instant since, Instant now) {
  return t.config->user_timeout > Duration{} && now - since >= t.config->user_timeout;
}

int timeout_error(const Tcb& t) { return t.soft_error != 0 ? t.soft_error : ETIMEDOUT; }

void back_off(Tcb& t) {
  if (t.backoff < 30) ++t.backoff;
}

/// The backoff was that of window probes, and is not evidence about the path (Linux tcp_ack_probe).
void end_persist(Tcb& t) {
  if (t.rtx_timer != RtxTimer::kPersist) return;
  t.rtx_timer = RtxTimer::kNone;
  t.backoff = 0;
}

/// Varies a repeated timeout by up to 5 % by connection and attempt, so that connections stalled by
/// one outage do not all retransmit at the same times. At most rto_max.
Duration spread(const Tcb& t, Duration d) {
  if (!t.config->spread_rto) return d;
  uint32_t h = (t.ts_offset + t.retransmits) * 0x9e3779b1U;
  h = (h ^ h >> 15) * 0x85ebca77U;
  const int64_t share = int64_t{h >> 16} - 32'768;  // scale of the 5 %
  const Duration s = d + d / 20 * share / 32'768;
  const Duration most = t.config->rto_max;
  return s > most ? most * 2 - s : s;
}

Instant clamp_to_user_timeout(const Tcb& t, Instant at) {
  if (t.config->user_timeout == Duration{} || t.retransmits == 0) return at;
  return std::min(at, t.stuck_since + t.config->user_timeout);
}

/// `overdue`: past the user timeout, which replaces the retry limit. For an orphan both apply, so
/// that a long user timeout does not keep it.
bool gives_up(const Tcb& t, bool overdue) {
  if (overdue) return true;
  if (t.orphan) return t.retransmits > kOrphanRetries;
  return t.config->user_timeout == Duration{} && t.retransmits > t.config->retries2;
}

Effects on_retransmit_timer(Tcb& t, Instant now) {
  if (t.retransmits == 0) t.stuck_since = t.last_sent;
  if (t.retransmits < 255) ++t.retransmits;
  if (t.state == State::kSynSent || t.state == State::kSynReceived) {
    const unsigned tries =
        t.state == State::kSynSent ? t.config->syn_retries : t.config->synack_retries;
    if (t.retransmits > tries || past(t, t.stuck_since, now)) return finish(t, timeout_error(t));
    t.syn_due = true;
    // Not if the SYN was not lost but met an older connection (in_syn_sent()).
    if (t.state != State::kSynSent || t.retransmits > 1 || now - t.stuck_since >= t.rtt.rto) {
      t.syn_retried = true;
      back_off(t);
    }
    t.rto_at = clamp_to_user_timeout(t, now + t.rtt.backed_off(t.backoff, t.config->rto_max));
    t.rtx_at = t.rto_at;
    return Effects::kTransmit;
  }
  // A peer that answers but shrank its window is alive: its ACKs keep the connection while a
  // program owns it (Linux tcp_retransmit_timer).
  const bool closed_by_peer = !t.orphan && t.snd_edge <= t.snd_una && t.last_ack > t.stuck_since;
  if (closed_by_peer && t.retransmits > 1) {
    t.stuck_since = t.last_ack;
    t.retransmits = 1;
  }
  if (gives_up(t, past(t, t.stuck_since, now)))
    return t.orphan ? reset(t, 0) : finish(t, timeout_error(t));
  suspect_black_hole(t, now);
  lose_all(t, now);
  back_off(t);
  const Duration wait = spread(t, t.rtt.backed_off(t.backoff, t.config->rto_max));
  t.rto_at = clamp_to_user_timeout(t, now + wait);
  choose_timer(t, now);
  return Effects::kTransmit;
}

/// Minimum wait for the answer to a window probe (Linux TCP_TIMEOUT_MIN, two jiffies).
constexpr Duration kMinProbeWait = Duration::ms(2);

Effects on_persist_timer(Tcb& t, Instant now) {
  // A peer that acknowledges probes may keep its window closed indefinitely (RFC 1122 §4.2.2.17).
  if (t.retransmits == 0 || t.last_ack > t.stuck_since) {
    t.stuck_since = std::max(t.last_ack, t.last_sent);
    t.retransmits = 0;
  }
  ++t.retransmits;
  // An orphan whose peer answers but never reads would stay for as long as the peer wants.
  const Duration most = std::min(t.config->rto_max.get(), kMaxProbeInterval);
  const bool is_pinned =
      t.orphan && t.backoff >= kOrphanRetries && t.rtt.backed_off(t.backoff, most) >= most;
  if (is_pinned || gives_up(t, t.retransmits > 1 && past(t, t.stuck_since, now)))
    return t.orphan ? reset(t, 0) : finish(t, timeout_error(t));
  t.probe_due = true;
  back_off(t);
  // Even if the user timeout ends earlier.
  t.rtx_at = std::max(clamp_to_user_timeout(t, now + t.rtt.backed_off(t.backoff, most)),
                      now + kMinProbeWait);
  return Effects::kTransmit;
}

Effects on_keepalive_timer(Tcb& t, Instant now) {
  const Config& c = *t.config;
  if (t.outstanding() > 0 || t.unsent() > 0) {  // other timers are active
    t.life_at = now + c.keep_idle;
    return Effects::kNone;
  }
  const Instant heard = std::max(t.last_ack, t.last_received);
  if (t.keep_probes == 0 && heard + c.keep_idle > now) {
    t.life_at = heard + c.keep_idle;
    return Effects::kNone;
  }
  const bool dead = c.user_timeout > Duration{} ? t.keep_probes > 0 && past(t, heard, now)
                                                : t.keep_probes >= c.keep_count;
  if (dead) return reset(t, timeout_error(t));
  ++t.keep_probes;
  t.keep_due = true;
  t.life_at = now + c.keep_interval;
  return Effects::kTransmit;
}

}  // namespace

void refresh_prediction(Tcb& t) {
  t.predictable = t.state == State::kEstablished && !t.orphan && t.reassembly == nullptr &&
                  t.is_orderly() && !t.fin_seen && !t.reset_due && t.urgent == Urgent::kNone &&
                  !t.watched;
  t.terse = t.predictable && t.sack_on && t.config->tlp && t.config->notsent_lowat != 0 &&
            !t.fin_queued && !t.paced && !t.cork && !t.ecn_on && !t.ecn_ect_all && !t.urgent_mode;
  forget_single(t);
}

void challenge_ack(Tcb& t, Instant now) {
  constexpr uint32_t kIntervalMs = 500;
  const uint32_t ms = timestamp_clock(now, 0);
  if (t.challenge_ms != 0 && ms - t.challenge_ms < kIntervalMs) return;
  t.challenge_ms = std::max(ms, 1U);
  ack_now(t, false);
}

void note_duplicate(Tcb& t, Seq32 left, Seq32 right) {
  // One ACK answers the duplicates of a burst: it reports adjacent ones as one block (as Linux does
  // for segments that GRO merged), otherwise the last.
  const bool joins = t.dsack && left == t.dsack_right;
  t.dsack = t.sack_on;
  if (!joins) t.dsack_left = left;
  t.dsack_right = right;
}

Effects transmit_wish(const Tcb& t) { return has_output(t) ? Effects::kTransmit : Effects::kNone; }

void restart_timer(Tcb& t, Instant now) {
  end_persist(t);
  if (t.outstanding() == 0) {
    sync_timer(t, now);
    return;
  }
  t.rto_at = now + t.rtt.backed_off(t.backoff, t.config->rto_max);
  choose_timer(t, now);
}

void choose_timer(Tcb& t, Instant now) {
  if (t.outstanding() == 0) {
    sync_timer(t, now);
  } else if (tlp_allowed(t)) [[likely]] {
    t.rtx_timer = RtxTimer::kProbe;
    t.rtx_at = std::min(now + tlp_timeout(t, now), t.rto_at);
  } else if (t.suspects && t.queue.board().reorder_at < t.rto_at) {
    t.rtx_timer = RtxTimer::kReorder;
    t.rtx_at = t.queue.board().reorder_at;
  } else {
    t.rtx_timer = RtxTimer::kRetransmit;
    t.rtx_at = t.rto_at;
  }
}

void sync_timer(Tcb& t, Instant now) {
  if (t.outstanding() > 0) {
    if (t.rtx_timer == RtxTimer::kNone || t.rtx_timer == RtxTimer::kPersist) restart_timer(t, now);
    return;
  }
  t.rto_at = Instant::never();
  const bool wants = (t.snd_nxt < t.snd_end || t.fin_unsent()) && t.state >= State::kEstablished;
  if (wants && window_blocks(t)) {
    if (t.rtx_timer == RtxTimer::kPersist) return;
    t.rtx_timer = RtxTimer::kPersist;
    t.backoff = 0;
    t.retransmits = 0;
    t.rtx_at = now + std::min(t.rtt.rto, kMaxProbeInterval);
    return;
  }
  end_persist(t);
  t.rtx_timer = RtxTimer::kNone;
  t.rtx_at = Instant::never();
  t.probe_due = false;
}

Instant deadline(const Tcb& t) {
  const Scoreboard& b = t.queue.board();
  return std::min({t.rtx_at, t.delack_at, t.life_at, b.cork_at, b.idle_at, b.pace_at});
}

namespace {

/// Deadlines that are kept with the ring.
void on_queue_deadline(Tcb& t, Instant now) {
  Scoreboard& b = t.queue.board();
  if (b.cork_at <= now) {
    b.cork_at = Instant::never();
    t.push = t.snd_nxt < t.snd_end;
  }
  if (b.pace_at <= now) b.pace_at = Instant::never();
  if (b.idle_at > now) return;
  b.idle_at = Instant::never();
  t.queue.shrink();
  if (!t.queue.has_ring()) t.tlp_out = false;
  refresh_prediction(t);
}

}  // namespace

Effects on_deadline(Tcb& t, Instant now) {
  Effects e = Effects::kNone;
  forget_single(t);
  if (t.life_at <= now && (t.orphan || t.state == State::kTimeWait)) return finish(t, 0);
  if (t.delack_at <= now) on_delayed_ack(t);
  if (t.queue.has_ring()) on_queue_deadline(t, now);
  if (t.rtx_at <= now) {
    switch (t.rtx_timer) {
      case RtxTimer::kRetransmit:
        e |= on_retransmit_timer(t, now);
        break;
      case RtxTimer::kProbe:
        t.tlp_due = true;
        restart_timer(t, now);
        break;
      case RtxTimer::kReorder:
        on_reorder_timer(t, now);
        break;
      case RtxTimer::kPersist:
        e |= on_persist_timer(t, now);
        break;
      case RtxTimer::kNone:
        t.rtx_at = Instant::never();
        break;
    }
    if (t.state == State::kClosed || t.reset_due) return e;
  }
  if (t.life_at <= now) e |= on_keepalive_timer(t, now);
  return e | transmit_wish(t);
}

}  // namespace vireo::tcp
