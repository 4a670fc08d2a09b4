#include "stack/tcp/ecn.h"

#include <algorithm>

#include "stack/tcp/tcb.h"

namespace vireo::tcp {

namespace {

constexpr SegFlags kBoth = SegFlags::kEce | SegFlags::kCwr;

bool is_dctcp(const Config& c) { return c.congestion == CcKind::kDctcp; }
bool is_dctcp(const Tcb& t) { return is_dctcp(*t.config); }

}  // namespace

bool ecn_agrees(const Config& c, const Segment& syn) {
  // As Linux: a SYN with ECT was modified by the network, or is DCTCP's.
  const bool wanted = is_dctcp(c) || (c.ecn != EcnMode::kOff && syn.ecn == wire::Ecn::kNotEct);
  return wanted && (syn.flags & kBoth) == kBoth;
}

void ecn_settle(Tcb& t, bool on) {
  t.ecn_on = on;
  t.ecn_ect_all = on && is_dctcp(t);
}

void ecn_adopt_syn(Tcb& t, const Segment& syn) {
  if (has(syn.flags, SegFlags::kAck))
    ecn_settle(t, t.ecn.requested && (syn.flags & kBoth) == SegFlags::kEce);
  else
    ecn_settle(t, ecn_agrees(*t.config, syn));
}

void ecn_mark_syn(const Tcb& t, bool reply, Plan& p) {
  if (reply) {
    if (t.ecn_on) p.flags |= SegFlags::kEce;
    return;
  }
  if (p.retransmission || !(t.config->ecn == EcnMode::kRequest || is_dctcp(t))) return;
  p.flags |= kBoth;
  if (is_dctcp(t)) p.ecn = wire::Ecn::kEct0;  // RFC 8257 §3.5
}

void ecn_mark_data(const Tcb& t, Plan& p) {
  if (p.retransmission) return;  // RFC 3168 §6.1.5; DCTCP's is already marked
  p.ecn = wire::Ecn::kEct0;
  if (t.ecn_cwr_due) p.flags |= SegFlags::kCwr;
}

void ecn_on_data(Tcb& t, const Segment& s) {
  const bool ce = s.ecn == wire::Ecn::kCe;
  t.ecn.ect_seen |= s.ecn != wire::Ecn::kNotEct;
  if (is_dctcp(t)) {
    if (ce == t.ecn_expect_ce) return;
    // RFC 8257 §3.2: data before the change is acknowledged separately, with its own echo.
    if (t.rcv_acked < t.rcv_nxt && !t.ecn_old_due) {
      t.ecn_old_due = true;
      t.ecn_old_at = static_cast<uint32_t>(t.rcv_nxt);
      t.ecn.old_ece = t.ecn_ece;
    }
    t.ecn_expect_ce = t.ecn_ece = ce;
    ack_now(t, true);
    return;
  }
  if (has(s.flags, SegFlags::kCwr)) t.ecn_ece = false;
  if (!ce) return;
  if (!t.ecn_ece) ack_now(t, false);  // Linux: the sender is notified at once
  t.ecn_ece = true;
}

void ecn_on_ack(Tcb& t, uint32_t flight, Instant now) {
  EcnState& e = t.ecn;
  const bool passed = t.snd_una > t.queue.board().cwr_until;  // beyond it: the CWR has arrived
  if (passed && e.lowered) {
    e.lowered = false;
    if (t.recovery == Recovery::kOpen) cc_recovered(t.cc);
  }
  if (!t.ecn_echo || !passed || !t.queue.has_ring()) return;
  t.queue.board().cwr_until = t.snd_max;
  t.ecn_cwr_due = true;
  if (t.recovery != Recovery::kOpen) return;  // cwnd was lowered already
  cc_on_congestion(t.cc, CcEvent::kEcn, flight, t.mss, now);
  e.lowered = true;
}

}  // namespace vireo::tcp
