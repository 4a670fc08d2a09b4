// What an ACK acknowledges, and what was lost. Today: NewReno (RFC 6582) and the retransmission
// timeout; the lost range is always a prefix of what is outstanding. The SACK scoreboard, RACK-TLP
// and PRR come here: marks in SendDesc::flags will replace [rtx_next, rtx_end).
#include <algorithm>

#include "stack/tcp/tcb.h"

namespace vireo::tcp {

namespace {

constexpr uint8_t kDuplicateThreshold = 3;  // RFC 5681 §3.2

/// Marks the segment at snd_una lost; it is sent again whatever cwnd says.
void lose_head(Tcb& t) {
  StreamOffset end = t.snd_una + 1;  // a FIN alone
  if (!t.queue.empty() && t.snd_una < t.snd_end) {
    const SendDesc& d = t.queue.front();
    end = std::min({d.end(), t.snd_una + t.mss, t.snd_nxt});
    if (end == t.snd_end && t.snd_nxt > t.snd_end) ++end;  // with its FIN
  }
  t.rtx_next = t.snd_una;
  t.rtx_end = end;
  t.rtx_force = true;
}

/// RFC 6582 §3.2 step 3: an ACK of new data in fast recovery.
void ack_in_recovery(Tcb& t, uint32_t acked, Instant now) {
  if (t.snd_una >= t.recover) {  // full
    const auto flight = static_cast<uint32_t>(t.outstanding());
    t.cc.cwnd = std::min(t.cc.ssthresh, std::max<uint32_t>(flight, t.mss) + t.mss);
    t.recovery = Recovery::kOpen;
    t.recover = 0;
    t.dupacks = 0;
    cc_recovered(t.cc);
    return;
  }
  // Partial: the next hole is at snd_una.
  t.cc.cwnd -= std::min(acked, t.cc.cwnd);
  if (acked >= t.mss) t.cc.cwnd += t.mss;
  t.cc.cwnd = std::max<uint32_t>(t.cc.cwnd, t.mss);
  lose_head(t);
  if (!t.partial_acked) {
    t.partial_acked = true;
    t.rtx_at = now + t.rtt.backed_off(t.backoff, t.config.rto_max);
  }
}

/// Frees what is wholly acknowledged. @return when the newest of it was sent, if Karn's rule lets
/// its round trip count.
struct Freed {
  Instant sent_at;
  bool any = false;
  bool retransmitted = false;
};
Freed free_acknowledged(Tcb& t) {
  Freed f;
  while (!t.queue.empty()) {
    const SendDesc& d = t.queue.front();
    if (d.end() > t.snd_una) {
      if (d.offset < t.snd_una && d.retransmits > 0) f.retransmitted = true;
      break;
    }
    f.any = true;
    f.sent_at = d.sent_at;
    if (d.retransmits > 0) f.retransmitted = true;
    t.queue.pop_front();
  }
  return f;
}

/// @return the sample, zero: none.
Duration measure(Tcb& t, const Freed& f, bool syn, bool has_ts, uint32_t ts_echo, Instant now) {
  const Config& c = t.config;
  Duration r{};
  if ((f.any && !f.retransmitted) || (syn && !t.syn_retried)) {
    r = std::max(now - (syn ? t.last_sent : f.sent_at), Duration::us(1));
    t.rtt.sample(r, c.rto_min, c.rto_max);
    t.backoff = 0;
  } else if (t.ts_on && has_ts && ts_echo != 0) {
    // The echo tells which transmission was answered (RFC 7323 §4.1); coarse, so only when the
    // finer clock cannot tell.
    const auto ms = static_cast<int32_t>(timestamp(t, now) - ts_echo);
    if (ms < 0 || Duration::ms(ms) > c.rto_max) return r;
    r = std::max(Duration::ms(ms), t.rtt.srtt / 2);
    t.rtt.sample(r, c.rto_min, c.rto_max);
    t.backoff = 0;
  } else if (syn) {
    t.rtt.rto = std::max(t.rtt.rto, Duration::s(3));  // RFC 6298 §5.7
    t.backoff = 0;
  }
  return r;
}

}  // namespace

Effects acknowledge(Tcb& t, StreamOffset ack, bool has_ts, uint32_t ts_echo, Instant now) {
  const bool syn = t.snd_una == 0;
  const uint32_t room_before = send_room(t);
  const auto acked = static_cast<uint32_t>(ack - t.snd_una);
  const uint64_t flight = t.in_flight();
  t.snd_una = ack;
  if (ack > t.snd_nxt) {  // a probe beyond the window was taken
    t.snd_nxt = ack;
    while (t.queue.has_next() && t.queue.next().end() <= ack) t.queue.pass_next();
  }
  t.rtx_next = std::max(t.rtx_next, ack);
  t.rtx_end = std::max(t.rtx_end, t.rtx_next);
  if (t.rtx_next == t.rtx_end) t.rtx_next = t.rtx_end = ack;
  const Freed freed = free_acknowledged(t);
  CcAck ca;
  ca.rtt = measure(t, freed, syn, has_ts, ts_echo, now);
  ca.acked = acked;
  ca.flight = static_cast<uint32_t>(flight);
  ca.mss = t.mss;
  ca.srtt = t.rtt.srtt;
  ca.min_rtt = t.rtt.min_rtt;
  ca.snd_una = t.snd_una;
  ca.snd_nxt = t.snd_nxt;
  t.retransmits = 0;
  t.probe_due = false;
  switch (t.recovery) {
    case Recovery::kOpen:
      t.dupacks = 0;
      ca.cwnd_limited = !syn && 2 * flight >= t.cc.cwnd;  // RFC 7661: only a used window grows
      cc_on_ack(t.cc, ca, now);
      break;
    case Recovery::kFast:
      ca.recovering = true;
      cc_on_ack(t.cc, ca, now);
      ack_in_recovery(t, acked, now);
      break;
    case Recovery::kLoss:
      t.dupacks = 0;
      ca.cwnd_limited = true;
      cc_on_ack(t.cc, ca, now);
      if (t.snd_una >= t.recover) {
        t.recovery = Recovery::kOpen;
        cc_recovered(t.cc);
      }
      break;
  }
  if (t.recovery != Recovery::kFast || t.snd_una >= t.recover) {
    t.rtx_timer = RtxTimer::kNone;
    restart_timer(t, now);
  }
  if (t.queue.empty()) t.idle_at = now + Duration::s(5);
  // As Linux's sk_stream_write_space: a third free again.
  const uint32_t room = send_room(t);
  const uint32_t third = t.config.snd_buf / 3;
  if (room >= third && (t.write_blocked || room_before < third)) {
    t.write_blocked = false;
    return Effects::kWritable;
  }
  return Effects::kNone;
}

void duplicate_ack(Tcb& t, Instant now) {
  if (t.dupacks < 255) ++t.dupacks;
  if (t.recovery == Recovery::kFast) {
    t.cc.cwnd += t.mss;  // a segment left the network; bounded by what is outstanding
    const uint64_t most = t.cc.ssthresh + t.outstanding() + t.mss;
    t.cc.cwnd = static_cast<uint32_t>(std::min<uint64_t>(t.cc.cwnd, most));
    return;
  }
  // RFC 6582 §4: not for duplicates that the retransmissions after a timeout caused.
  if (t.dupacks != kDuplicateThreshold || t.recovery == Recovery::kLoss || t.snd_una <= t.recover)
    return;
  cc_on_congestion(t.cc, CcEvent::kLoss, static_cast<uint32_t>(t.in_flight()), t.mss, now);
  t.recover = t.snd_nxt;
  t.recovery = Recovery::kFast;
  t.partial_acked = false;
  t.cc.cwnd = t.cc.ssthresh + kDuplicateThreshold * t.mss;
  lose_head(t);
  t.rtx_at = now + t.rtt.backed_off(t.backoff, t.config.rto_max);
  refresh_prediction(t);
}

void lose_all(Tcb& t, Instant now) {
  cc_on_congestion(t.cc, CcEvent::kTimeout, static_cast<uint32_t>(t.in_flight()), t.mss, now);
  t.recovery = Recovery::kLoss;
  t.recover = t.snd_nxt;
  t.dupacks = 0;
  t.rtx_next = t.snd_una;
  t.rtx_end = t.snd_nxt;
  t.rtx_force = true;
  refresh_prediction(t);
}

}  // namespace vireo::tcp
