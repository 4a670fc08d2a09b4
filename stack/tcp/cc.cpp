#include "stack/tcp/cc.h"

#include "stack/tcp/cc_kinds.h"

namespace vireo::tcp {

namespace {

/// What ssthresh becomes (RFC 5681 §3.1 equation 4).
uint32_t lowered(const CongestionControl&, CcEvent, uint32_t flight, uint32_t mss) {
  return std::max(flight / 2, 2 * mss);
}

}  // namespace

void cc_start(CongestionControl& c, CcKind kind, uint32_t mss, bool syn_lost) {
  c = {};
  c.kind = kind;
  c.cwnd = syn_lost ? mss : initial_window(mss);
  c.ssthresh = CongestionControl::kMaxWindow;
}

void cc_on_ack(CongestionControl& c, const CcAck& a, Instant) {
  if (a.recovering || !a.cwnd_limited) return;
  if (c.in_slow_start()) {
    slow_start(c, a.acked, a.mss);
    return;
  }
  switch (c.kind) {
    case CcKind::kReno:
      reno_avoid(c, a.acked, a.mss);
      break;
  }
}

void cc_on_congestion(CongestionControl& c, CcEvent e, uint32_t flight, uint32_t mss, Instant) {
  if (!c.in_episode) {
    c.in_episode = true;
    c.prior_cwnd = c.cwnd;
    c.prior_ssthresh = c.ssthresh;
    c.ssthresh = lowered(c, e, flight, mss);
    if (e == CcEvent::kEcn) c.cwnd = std::min(c.cwnd, c.ssthresh);
  }
  if (e == CcEvent::kTimeout) c.cwnd = mss;
  c.acked = 0;
}

void cc_recovered(CongestionControl& c) { c.in_episode = false; }

void cc_undo(CongestionControl& c) {
  if (c.prior_cwnd == 0) return;
  c.cwnd = std::max(c.cwnd, c.prior_cwnd);
  c.ssthresh = std::max(c.ssthresh, c.prior_ssthresh);
  c.prior_cwnd = 0;
  c.in_episode = false;
}

void cc_on_idle(CongestionControl& c, uint32_t mss, Duration, Duration) {
  c.cwnd = std::min(c.cwnd, initial_window(mss));
  c.acked = 0;
}

}  // namespace vireo::tcp
