// RACK-TLP, RFC 8985: a transmission is lost when one sent sufficiently later is delivered; an
// unacknowledged tail is probed before the retransmission timeout. Names are the RFC's.
#include <algorithm>

#include "stack/tcp/recovery.h"

namespace vireo::tcp {

namespace {

constexpr uint8_t kPersistRecoveries = 16;  // §6.2 step 4

bool has_reordered(const Tcb& t) { return t.reord_seen > 0; }

/// §6.2 step 4.
Duration reordering_window(Tcb& t) {
  if (!has_reordered(t) &&
      (t.recovery != Recovery::kOpen || t.queue.board().sacked_count >= kDupThresh))
    return Duration{};
  return std::min(t.rtt.min_rtt * t.reo_wnd_mult / 4, t.rtt.srtt);
}

enum class Verdict : uint8_t { kLost, kSuspect, kNewer };

/// For an unacknowledged transmission. kSuspect: it was sent before one that was delivered.
Verdict judge(const Scoreboard& b, const SendDesc& s, Duration patience, Instant now) {
  // A batch has one time stamp. First transmissions of the same time were sent in stream order; the
  // order of a retransmission among them is unknown.
  if (s.sent_at > b.rack_sent) return Verdict::kNewer;
  if (s.sent_at == b.rack_sent && (s.retransmits > 0 || s.end() >= b.rack_end))
    return Verdict::kNewer;
  return now - s.sent_at >= patience ? Verdict::kLost : Verdict::kSuspect;
}

}  // namespace

void rack_delivered(Tcb& t, const SendDesc& s, const AckEvent& a) {
  Scoreboard& b = t.queue.board();
  const Duration rtt = a.now - s.sent_at;
  if (s.retransmits > 0) {
    // Not the latest transmission if the echo is older or the ACK came too early.
    if (t.ts_on && a.has_ts && static_cast<int32_t>(a.ts_echo - timestamp(t, s.sent_at)) < 0)
      return;
    if (rtt < t.rtt.min_rtt) return;
  } else if (!s.is(kWasSacked) && s.end() < b.fack) {  // step 3: below the highest delivered
    ++t.reord_seen;
    const uint64_t distance = (b.fack - s.offset + t.mss - 1) / t.mss;
    t.reordering =
        static_cast<uint16_t>(std::max<uint64_t>(t.reordering, std::min<uint64_t>(distance, 300)));
  }
  b.fack = std::max(b.fack, s.end());
  if (s.sent_at > b.rack_sent || (s.sent_at == b.rack_sent && s.end() > b.rack_end)) {
    b.rack_sent = s.sent_at;
    b.rack_end = s.end();
    b.rack_rtt = std::max(rtt, Duration::us(1));
  }
}

void rack_adapt(Tcb& t, const Delivered& d) {
  Scoreboard& b = t.queue.board();
  if (b.dsack_round != 0 && t.snd_una >= b.dsack_round) b.dsack_round = 0;
  if (!d.dsack || b.dsack_round != 0) return;
  b.dsack_round = t.snd_nxt;
  if (t.reo_wnd_mult < UINT8_MAX) ++t.reo_wnd_mult;
  t.reo_wnd_persist = kPersistRecoveries;
}

void rack_recovered(Tcb& t) {
  if (t.reo_wnd_persist > 0 && --t.reo_wnd_persist == 0) t.reo_wnd_mult = 1;
}

void rack_forget(Tcb& t) {
  Scoreboard& b = t.queue.board();
  b.rack_sent = Instant{};
  b.rack_end = 0;
  b.rack_rtt = Duration{};
}

Duration rack_patience(Tcb& t) {
  // If only SND.UNA advanced, RACK.rtt was not updated; use SRTT instead.
  const Duration latest = t.queue.board().rack_rtt;
  return (latest > Duration{} ? latest : t.rtt.srtt) + reordering_window(t);
}

void rack_detect_loss(Tcb& t, Instant now) {
  SendQueue& q = t.queue;
  Scoreboard& b = q.board();
  t.suspects = false;
  if (b.rack_rtt == Duration{} || t.outstanding() == 0) return;
  const Duration patience = rack_patience(t);
  const auto suspect = [&](const SendDesc& s) {
    const Instant at = s.sent_at + patience;
    b.reorder_at = t.suspects ? std::min(b.reorder_at, at) : at;
    t.suspects = true;
  };
  // The ring has first transmissions in the order they were sent.
  const bool partly = q.has_next() && q.next().offset < t.snd_nxt;
  const uint32_t end = q.next_index() + (partly ? 1 : 0);
  if (SendQueue::before(b.rack_next, q.first())) b.rack_next = q.first();
  for (; SendQueue::before(b.rack_next, end); ++b.rack_next) {
    const SendDesc& s = q[b.rack_next];
    if (s.is(kSacked | kLost | kRetransmitted)) continue;
    const Verdict v = judge(b, s, patience, now);
    if (v == Verdict::kSuspect) suspect(s);
    if (v != Verdict::kLost) break;
    mark_lost(t, b.rack_next);
  }
  // The FIFO has the retransmissions.
  while (const SendDesc* s = q.oldest_retransmission()) {
    const Verdict v = judge(b, *s, patience, now);
    if (v == Verdict::kSuspect) suspect(*s);
    if (v != Verdict::kLost) break;
    const uint32_t index = q.oldest_retransmission_index();
    q.pop_retransmission();
    mark_lost(t, index);
  }
}

bool tlp_allowed(const Tcb& t) {
  return t.sack_on && t.config->tlp && t.state > State::kSynReceived && t.backoff == 0 &&
         !t.tlp_due && t.is_orderly();
}

void tlp_judge_delay(Tcb& t, const Delivered& d) {
  // If the segment sent right after it had arrived too, the receiver would have acknowledged both
  // at once (RFC 5681 §4.2). A receiver that acknowledges each segment at once does not delay the
  // next ACK either.
  if (t.outstanding() > 0 && d.once && t.last_sent - d.sent_at <= t.rtt.srtt / 8)
    t.queue.board().tlp_prompt = t.snd_nxt;
}

void tlp_sent(Tcb& t, StreamOffset end, bool retransmitted) {
  Scoreboard& b = t.queue.board();
  t.tlp_due = false;
  t.tlp_out = true;
  b.tlp_end = end;
  b.tlp_retransmitted = retransmitted;
  if (t.tlp_probes < UINT16_MAX) ++t.tlp_probes;
  refresh_prediction(t);
}

bool tlp_on_ack(Tcb& t, const AckEvent& a, const Delivered& d, bool advanced) {
  if (!t.tlp_out) return false;
  const Scoreboard& b = t.queue.board();
  if (a.ack < b.tlp_end) return false;
  const bool echoed = d.dsack && d.dsack_end == b.tlp_end;  // original and probe both arrived
  const bool duplicate = !advanced && a.duplicate && a.sack.empty();  // the same, without DSACK
  const bool repaired = b.tlp_retransmitted && !echoed && a.ack > b.tlp_end;
  if (!b.tlp_retransmitted || echoed || duplicate || repaired) t.tlp_out = false;
  return repaired;
}

}  // namespace vireo::tcp
