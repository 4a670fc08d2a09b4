// Processes ACKs for the sender: round trips, loss episodes, windows.
//
//              losses found                      all up to `recover` acknowledged
//     kOpen ------------------> kFast ------------------------------------------> kOpen
//       |                         |                                                 ^
//       |   retransmission timeout|                                                 |
//       +-------------------------+-------> kLoss ----------------------------------+
//
// An episode that proves spurious (DSACK, timestamps, F-RTO) is undone at once.
#include "stack/tcp/recovery.h"

#include <algorithm>

#include "stack/tcp/fast_path/single_segment.h"
#include "stack/tcp/prr.h"

namespace vireo::tcp {

namespace {

/// @return the sample, zero: none.
Duration measure(Tcb& t, const AckEvent& a, const Delivered& d, bool syn, bool advanced) {
  const Config& c = *t.config;
  Duration r{};
  const bool bare_syn = syn && (t.data_segs_out == 0 || t.syn_data);  // RFC 7413: data may follow
  if ((d.once && !d.twice) || (bare_syn && !t.syn_retried)) {
    r = std::max(a.now - (bare_syn ? t.last_sent : d.sent_at), Duration::us(1));
  } else if (t.ts_on && a.has_ts && a.ts_echo != 0 && advanced) {
    // The echo identifies the transmission (RFC 7323 §4.1). It is coarse, so it is used only if the
    // finer clock is ambiguous.
    const auto ms = static_cast<int32_t>(timestamp(t, a.now) - a.ts_echo);
    if (ms < 0 || Duration::ms(ms) > c.rto_max) return r;
    r = std::max({Duration::ms(ms), t.rtt.srtt / 2, Duration::us(1)});
  } else if (bare_syn) {
    t.rtt.rto = std::max(t.rtt.rto, Duration::s(3));  // RFC 6298 §5.7
    t.backoff = 0;
    return r;
  } else {
    return r;
  }
  t.rtt.sample(r, c.rto_min, c.rto_max);
  t.backoff = 0;
  return r;
}

// ---- episodes

void begin_episode(Tcb& t) {
  Scoreboard& b = t.queue.board();
  b.undo_marker = t.snd_una;
  b.undo_retrans = 0;
  b.undo_any = false;
  for (StreamOffset& offset : b.undo_log) offset = 0;
  b.rtx_stamp = 0;
  b.frto = false;
  t.tlp_due = t.tlp_out = false;
  t.partial_acked = false;
}

void enter_fast(Tcb& t, const Delivered& d, Instant now) {
  if (t.searches_mtu && mtu_probe_lost(t)) return;
  const auto flight = static_cast<uint32_t>(t.outstanding());
  cc_on_congestion(t.cc, CcEvent::kLoss, flight, t.mss, now);
  t.recovery = Recovery::kFast;
  t.queue.board().recover = t.snd_nxt;
  begin_episode(t);
  Scoreboard& b = t.queue.board();
  b.prr_delivered = 0;
  b.prr_out = 0;
  // Includes what the ACK that starts recovery delivered, and nothing delivered before (RFC 9937
  // §6).
  b.recover_fs = std::max(1U, flight - (t.sacked_out - d.sacked) + (d.bytes - d.sacked));
  t.rtx_force = true;
}

void leave(Tcb& t) {
  if (t.recovery == Recovery::kFast) {
    t.cc.cwnd = std::max<uint32_t>(t.cc.ssthresh, t.mss);
    t.queue.board().recover = 0;
  }
  t.recovery = Recovery::kOpen;
  t.dupacks = 0;
  t.new_first = false;
  if (!t.sack_on) t.sacked_out = 0;
  t.queue.board().frto = false;
  cc_recovered(t.cc);
}

void undo(Tcb& t) {
  clear_lost(t);
  cc_undo(t.cc);
  if (t.undos < UINT16_MAX) ++t.undos;
  t.queue.board().undo_marker = 0;
  t.rtx_force = false;
  if (t.recovery == Recovery::kOpen) return;
  if (t.recovery == Recovery::kLoss) rack_forget(t);  // it took the original for the retransmission
  const uint32_t cwnd = t.cc.cwnd;
  leave(t);
  t.cc.cwnd = cwnd;
}

/// F-RTO (RFC 5682): after a timeout, data arrives that was not retransmitted.
bool frto_says_spurious(Tcb& t, const Delivered& d, bool advanced) {
  Scoreboard& b = t.queue.board();
  if (t.recovery != Recovery::kLoss || !b.frto) return false;
  // Without SACK, an ACK that covers a retransmission proves nothing about the data behind it.
  if (d.original && (t.sack_on || !d.twice)) return true;
  if (t.snd_nxt > t.queue.board().recover) {  // step 3: new data was sent
    if (!advanced || d.sacked > 0) b.frto = false;
    return false;
  }
  if (!advanced) {
    if (!t.sack_on) b.frto = false;  // step 2a
    return false;
  }
  // Step 2b: send new data, if there is any; otherwise conventional recovery.
  t.new_first = t.unsent() > 0 && t.snd_edge > t.snd_nxt;
  b.frto = t.new_first;
  return false;
}

bool is_spurious(Tcb& t, const AckEvent& a, const Delivered& d, bool advanced,
                 StreamOffset una_before) {
  const Scoreboard& b = t.queue.board();
  if (b.undo_marker == 0) return false;
  if (frto_says_spurious(t, d, advanced)) return true;
  // Marked lost but delivered before it was retransmitted: within one burst of ACKs, or with a full
  // ring.
  if (advanced && t.recovery != Recovery::kOpen && !b.undo_any && !d.twice) return true;
  // RFC 3522 §3.2: the first ACK of new data is for a segment sent before the retransmission.
  if (advanced && t.recovery != Recovery::kOpen && una_before == b.undo_marker && t.ts_on &&
      a.has_ts && b.rtx_stamp != 0 && static_cast<int32_t>(a.ts_echo - b.rtx_stamp) < 0)
    return true;
  return d.dsack && b.undo_any && b.undo_retrans == 0;  // all retransmissions were unnecessary
}

// ---- without SACK: RFC 6582, with the pipe estimated from duplicate ACKs

/// A duplicate ACK means that one more segment arrived; an ACK of new data identifies it.
void estimate_delivery(Tcb& t, const AckEvent& a, Delivered& d, bool advanced) {
  // In kLoss, duplicates count only for new data that F-RTO sent.
  const bool counts = t.recovery != Recovery::kLoss || t.snd_nxt > t.queue.board().recover;
  if (advanced && t.recovery == Recovery::kLoss) {
    t.sacked_out = 0;
  } else if (advanced) {
    const uint32_t beyond = d.bytes > t.mss ? d.bytes - t.mss : 0;  // one filled the hole
    const uint32_t known = std::min(t.sacked_out, beyond);
    t.sacked_out -= known;
    d.bytes -= known;
  } else if (a.duplicate && t.outstanding() > 0 && counts) {
    const uint32_t sent = std::max(1U, t.queue.next_index() - t.queue.first());
    const auto segment =
        static_cast<uint32_t>(std::clamp<uint64_t>(t.outstanding() / sent, 1, t.mss));
    d.bytes += segment;
    d.sacked += segment;
    t.sacked_out += segment;
  }
  const auto most = static_cast<uint32_t>(t.outstanding() - t.lost_out);
  if (t.sacked_out > most) t.sacked_out = most;
}

void find_loss_by_duplicates(Tcb& t, const AckEvent& a, bool advanced) {
  if (advanced) {
    t.dupacks = 0;
    // A partial ACK: the next hole is at snd_una.
    if (t.recovery == Recovery::kFast && !t.queue.front().is(kRetransmitted)) {
      t.sacked_out = static_cast<uint32_t>(std::min<uint64_t>(
          t.sacked_out,
          t.outstanding() - std::min<uint64_t>(t.outstanding(), t.queue.front().length)));
      mark_lost(t, t.queue.first());
      t.rtx_force = true;
    }
    return;
  }
  if (!a.duplicate || t.outstanding() == 0) return;
  if (t.dupacks < UINT8_MAX) ++t.dupacks;
  // RFC 6582 §4: not for duplicates caused by the retransmissions after a timeout.
  if (t.dupacks != kDupThresh || t.recovery != Recovery::kOpen ||
      t.snd_una <= t.queue.board().recover)
    return;
  const uint64_t head = std::min<uint64_t>(t.outstanding(), t.queue.front().length);
  t.sacked_out = static_cast<uint32_t>(std::min<uint64_t>(t.sacked_out, t.outstanding() - head));
  mark_lost(t, t.queue.first());
}

// ---- the uncommon case

void recover(Tcb& t, const AckEvent& a, Delivered& d, bool advanced, StreamOffset una_before) {
  bool repaired = false;
  t.new_first = t.suspects = false;
  if (t.sack_on) {
    rack_adapt(t, d);
    repaired = tlp_on_ack(t, a, d, advanced);
  } else {
    estimate_delivery(t, a, d, advanced);
  }
  if (is_spurious(t, a, d, advanced, una_before)) {
    undo(t);
  } else if (repaired && t.recovery == Recovery::kOpen) {
    // The probe repaired a loss; congestion control must still react (RFC 8985 §7.4.2).
    cc_on_congestion(t.cc, CcEvent::kLoss, static_cast<uint32_t>(t.outstanding()) + d.bytes, t.mss,
                     a.now);
    t.cc.cwnd = std::max<uint32_t>(std::min(t.cc.cwnd, t.cc.ssthresh), t.mss);
    cc_recovered(t.cc);
  }
  if (t.recovery != Recovery::kOpen && t.snd_una >= t.queue.board().recover) {
    leave(t);
    rack_recovered(t);
  }
  if (t.queue.empty()) return;
  const uint32_t due = t.rtx_due;
  if (t.sack_on)
    rack_detect_loss(t, a.now);
  else
    find_loss_by_duplicates(t, a, advanced);
  const bool more_lost = t.rtx_due > due;
  if (t.recovery == Recovery::kOpen && t.rtx_due > 0) enter_fast(t, d, a.now);
  if (t.recovery == Recovery::kFast && (d.bytes > 0 || t.rtx_force))
    t.cc.cwnd = std::max<uint32_t>(prr_on_ack(t.queue.board(), d.bytes, t.in_flight(),
                                              t.cc.ssthresh, t.mss, advanced && !more_lost),
                                   t.mss);
}

/// Maximum in flight in this round, which ends when data sent by now is acknowledged. `flight`:
/// before this ACK.
uint64_t used_window(Tcb& t, uint64_t flight) {
  if (!t.queue.has_ring()) return flight;
  Scoreboard& b = t.queue.board();
  if (flight > b.used || t.snd_una > b.used_end) {
    b.used = static_cast<uint32_t>(flight);
    b.used_end = t.snd_nxt;
  }
  return b.used;
}

void grow(Tcb& t, const AckEvent& a, const Delivered& d, Recovery before, uint64_t flight,
          uint32_t acked, Duration rtt, bool syn) {
  CcAck ca;
  ca.rtt = rtt;
  ca.flight = static_cast<uint32_t>(flight);
  ca.mss = t.mss;
  ca.srtt = t.rtt.srtt;
  ca.min_rtt = t.rtt.min_rtt;
  ca.snd_una = t.snd_una;
  ca.snd_nxt = t.snd_nxt;
  ca.acked = acked;
  if (before == Recovery::kOpen && t.recovery == Recovery::kOpen) {
    // RFC 7661 §4.2: the window grows if more than half of it was used in the latest round.
    ca.cwnd_limited = !syn && 2 * used_window(t, flight) > t.cc.cwnd;
  } else {
    ca.acked = d.bytes;
    ca.cwnd_limited = before == Recovery::kLoss;
    ca.recovering = before != Recovery::kLoss;
  }
  ca.ece = t.ecn_echo;
  if (ca.cwnd_limited || t.cc.kind == CcKind::kDctcp) cc_on_ack(t.cc, ca, a.now);
  if (t.ecn_on) [[unlikely]]
    ecn_on_ack(t, ca.flight, a.now);
  if (t.queue.has_ring())
    t.delivery.on_ack(t.queue.board().delivery, t.snd_una, t.snd_nxt, t.snd_nxt == t.snd_end,
                      a.now);
  if (t.snd_buf < t.config->snd_buf_max) tune_send(t);
}

/// As Linux's sk_stream_write_space: a third free again.
Effects writable(Tcb& t, uint32_t room_before) {
  const uint32_t third = t.snd_buf / 3;
  if (!t.write_blocked && room_before >= third) return Effects::kNone;
  if (buffer_room(t) < third) return Effects::kNone;
  t.write_blocked = false;
  return Effects::kWritable;
}

}  // namespace

Effects on_ack(Tcb& t, const AckEvent& a) {
  if (!a.duplicate && a.sack.empty() && is_single_in_flight(t, a.ack)) {
    t.backoff = t.dupacks = t.retransmits = 0;
    t.probe_due = t.tlp_due = t.partial_acked = false;
    take_single_ack(t, a.now);
    return Effects::kNone;
  }
  forget_single(t);
  const bool syn = t.snd_una == 0;
  const bool advanced = a.ack > t.snd_una;
  const StreamOffset una_before = t.snd_una;
  const auto acked = static_cast<uint32_t>(a.ack - t.snd_una);
  const uint32_t room_before = advanced ? buffer_room(t) : 0;
  const uint64_t flight = t.in_flight();
  const Recovery before = t.recovery;
  Delivered d;
  if (advanced) advance(t, a, d);
  if (!a.sack.empty()) take_sack(t, a, d);
  const Duration rtt = measure(t, a, d, syn, advanced);
  const bool common = t.is_orderly() && !a.duplicate && !d.dsack && d.sacked == 0;
  if (!common && t.queue.has_ring()) [[unlikely]]
    recover(t, a, d, advanced, una_before);
  else
    t.dupacks = 0;
  if (!advanced) {
    if (d.sacked > 0) t.tlp_due = false;  // the probe timeout restarts (RFC 8985 §7.2)
    if (!common) choose_timer(t, a.now);
    return Effects::kNone;
  }
  t.retransmits = 0;
  t.probe_due = false;
  t.tlp_due = false;
  grow(t, a, d, before, flight, acked, rtt, syn);
  if (acked == t.mss) tlp_judge_delay(t, d);
  // RFC 6582 §3.2: without SACK only the first partial ACK restarts the timer.
  const bool partial = !t.sack_on && t.recovery == Recovery::kFast;
  if (partial && t.partial_acked) {
    choose_timer(t, a.now);
  } else {
    t.partial_acked = partial;
    restart_timer(t, a.now);
  }
  if (t.queue.empty() && t.queue.has_ring()) t.queue.board().idle_at = a.now + kIdle;
  return writable(t, room_before);
}

void note_retransmission(Tcb& t, StreamOffset offset, uint32_t bytes, Instant now) {
  Scoreboard& b = t.queue.board();
  if (t.recovery == Recovery::kFast) b.prr_out += bytes;
  if (b.undo_marker == 0) return;
  b.undo_any = true;
  ++b.undo_retrans;
  for (StreamOffset& free : b.undo_log) {
    if (free != 0) continue;
    free = offset;
    break;
  }
  if (b.rtx_stamp == 0) b.rtx_stamp = timestamp(t, now);
}

void on_reorder_timer(Tcb& t, Instant now) {
  rack_detect_loss(t, now);
  if (t.recovery == Recovery::kOpen && t.rtx_due > 0) enter_fast(t, {}, now);
  if (t.recovery == Recovery::kFast)
    t.cc.cwnd = std::max<uint32_t>(
        prr_on_ack(t.queue.board(), 0, t.in_flight(), t.cc.ssthresh, t.mss, false), t.mss);
  choose_timer(t, now);
  refresh_prediction(t);
}

void lose_oversized(Tcb& t, Instant) {
  bool any = false;
  const bool partly = t.queue.has_next() && t.queue.next().offset < t.snd_nxt;
  const uint32_t end = t.queue.next_index() + (partly ? 1 : 0);
  for (uint32_t i = t.queue.first(); i != end; ++i) {
    const SendDesc& s = t.queue[i];
    if (s.length <= t.mss || s.is(kSacked)) continue;
    mark_lost(t, i);
    any = true;
  }
  if (any) resend_uncongested(t);
}

void resend_uncongested(Tcb& t) {
  t.queue.forget_stale();  // their next retransmissions are queued behind the existing ones
  if (t.recovery == Recovery::kOpen) begin_episode(t);
  if (t.recovery == Recovery::kFast) t.cc.cwnd = std::max<uint32_t>(t.cc.ssthresh, t.mss);
  t.queue.board().undo_marker = 0;  // nothing to undo: cwnd is unchanged
  t.recovery = Recovery::kLoss;
  t.queue.board().recover = t.snd_nxt;
  t.dupacks = 0;
  t.rtx_force = true;
}

void lose_all(Tcb& t, Instant now) {
  Scoreboard& b = t.queue.board();
  const bool fresh = t.recovery == Recovery::kOpen || t.snd_una >= t.queue.board().recover;
  cc_on_congestion(t.cc, CcEvent::kTimeout, static_cast<uint32_t>(t.outstanding()), t.mss, now);
  if (fresh) begin_episode(t);
  b.frto = t.config->frto && (fresh || t.retransmits > 1);
  const bool timed = t.sack_on && t.rtt.has_sample();
  lose_outstanding(t, timed ? now - rack_patience(t) : now);
  if (!t.sack_on) t.sacked_out = 0;
  t.recovery = Recovery::kLoss;
  t.queue.board().recover = t.snd_nxt;
  t.dupacks = 0;
  t.rtx_force = true;
  t.suspects = t.tlp_due = t.tlp_out = t.new_first = false;
  refresh_prediction(t);
}

}  // namespace vireo::tcp
