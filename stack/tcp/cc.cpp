#include "stack/tcp/cc.h"

#include <memory>

#include "stack/tcp/cc_kinds.h"

namespace vireo::tcp {

namespace {

constexpr double kRenoBetaEcn = 0.8;  // RFC 8511 §3

/// RFC 5681 §3.1 equation 4.
void reno_on_congestion(CongestionControl& c, CcEvent e, uint32_t flight, uint32_t mss) {
  const uint32_t rest =
      e == CcEvent::kEcn ? static_cast<uint32_t>(flight * kRenoBetaEcn) : flight / 2;
  c.ssthresh = std::max(rest, 2 * mss);
}

void begin_first_slow_start(CongestionControl& c) {
  c.first_slow_start = true;
  std::construct_at(&c.hystart);
}

void end_first_slow_start(CongestionControl& c) {
  c.first_slow_start = false;
  std::construct_at(&c.cubic);
}

void first_slow_start(CongestionControl& c, const CcAck& a) {
  const auto step = c.hystart.on_ack(a.acked, a.mss, a.rtt, a.snd_una, a.snd_nxt);
  grow(c, step.grow);
  if (!step.leave) return;
  c.ssthresh = c.cwnd;
  end_first_slow_start(c);
}

}  // namespace

void cc_start(CongestionControl& c, CcKind kind, uint32_t mss, bool syn_lost) {
  c = {};
  c.cwnd = syn_lost ? mss : initial_window(mss);
  c.ssthresh = CongestionControl::kMaxWindow;
  cc_change(c, kind);
}

void cc_change(CongestionControl& c, CcKind kind) {
  c.kind = kind;
  c.first_slow_start = false;
  switch (kind) {
    case CcKind::kReno:
      break;
    case CcKind::kCubic:
      std::construct_at(&c.cubic);
      if (c.ssthresh == CongestionControl::kMaxWindow) begin_first_slow_start(c);
      break;
    case CcKind::kDctcp:
      std::construct_at(&c.dctcp);
      break;
    case CcKind::kNone:
      c.cwnd = c.ssthresh = CongestionControl::kMaxWindow;
      break;
  }
}

void cc_on_ack(CongestionControl& c, const CcAck& a, Instant now) {
  if (c.kind == CcKind::kDctcp) dctcp_learn(c, a);
  if (a.recovering || a.ece || !a.cwnd_limited) return;  // RFC 3168 §6.1.2: no growth on an echo
  if (c.kind != CcKind::kNone && c.in_slow_start()) {
    if (c.first_slow_start)
      first_slow_start(c, a);
    else
      slow_start(c, a.acked, a.mss);
    return;
  }
  switch (c.kind) {
    case CcKind::kReno:
    case CcKind::kDctcp:
      reno_avoid(c, a.acked, a.mss);
      break;
    case CcKind::kCubic:
      cubic_avoid(c, a, now);
      break;
    case CcKind::kNone:
      c.cwnd = c.ssthresh;
      break;
  }
}

void cc_on_congestion(CongestionControl& c, CcEvent e, uint32_t flight, uint32_t mss, Instant) {
  if (c.kind == CcKind::kNone) return;
  if (!c.in_episode) {
    c.in_episode = true;
    c.prior_cwnd = c.cwnd;
    c.prior_ssthresh = c.ssthresh;
    // Data that SACK allowed beyond the window while the loss was uncertain does not show that the
    // path has more capacity (RFC 5681 §3.2 step 1).
    flight = std::min(flight, c.cwnd);
    switch (c.kind) {
      case CcKind::kReno:
        reno_on_congestion(c, e, flight, mss);
        break;
      case CcKind::kCubic:
        if (c.first_slow_start) end_first_slow_start(c);
        cubic_on_congestion(c, e, flight, mss);
        break;
      case CcKind::kDctcp:
        dctcp_on_congestion(c, e, flight, mss);
        break;
      case CcKind::kNone:
        break;
    }
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
  if (c.kind != CcKind::kCubic) return;
  if (c.ssthresh == CongestionControl::kMaxWindow)
    begin_first_slow_start(c);
  else
    cubic_undo(c);
}

void cc_on_idle(CongestionControl& c, uint32_t mss, Duration idle, Duration rto) {
  if (c.kind == CcKind::kNone) return;
  // Linux (tcp_slow_start_after_idle) and RFC 2861: halve the window for each RTO instead of all at
  // once, and let slow start return to three quarters of it.
  const uint32_t restart = std::min(c.cwnd, initial_window(mss));
  c.ssthresh = std::max(c.ssthresh, c.cwnd / 4 * 3);
  for (Duration left = idle; left > rto && c.cwnd > restart; left = left - rto) c.cwnd /= 2;
  c.cwnd = std::max(c.cwnd, restart);
  c.acked = 0;
}

}  // namespace vireo::tcp
