#include <algorithm>

#include "stack/tcp/cc.h"

namespace vireo::tcp {

namespace {
constexpr uint32_t kMaxWindow = 1U << 30;

void newreno_on_ack(CongestionControl& c, uint32_t bytes, uint32_t mss) {
  if (c.cwnd < c.ssthresh) {
    // RFC 3465 §2.2, L = 2: an ACK that covers much (or many tiny ACKs that cover one segment)
    // grows the window by what was acknowledged, never by more than two segments.
    c.cwnd = std::min(c.cwnd + std::min(bytes, 2 * mss), kMaxWindow);
    return;
  }
  c.acked += bytes;
  if (c.acked >= c.cwnd) {
    c.acked -= c.cwnd;
    c.cwnd = std::min(c.cwnd + mss, kMaxWindow);
  }
}
}  // namespace

void cc_start(CongestionControl& c, uint32_t mss, bool syn_lost) {
  c.cwnd = syn_lost ? mss : initial_window(mss);
  c.ssthresh = kMaxWindow;
  c.acked = 0;
}

void cc_on_ack(CongestionControl& c, uint32_t bytes, uint32_t mss) {
  switch (c.kind) {
    case CcKind::kNewReno:
      newreno_on_ack(c, bytes, mss);
      break;
  }
}

void cc_on_loss(CongestionControl& c, uint32_t flight, uint32_t mss) {
  c.ssthresh = std::max(flight / 2, 2 * mss);
  c.acked = 0;
}

void cc_on_timeout(CongestionControl& c, uint32_t flight, uint32_t mss, bool first) {
  if (first) cc_on_loss(c, flight, mss);
  c.cwnd = mss;
  c.acked = 0;
}

void cc_on_idle(CongestionControl& c, uint32_t mss) {
  c.cwnd = std::min(c.cwnd, initial_window(mss));
  c.acked = 0;
}

}  // namespace vireo::tcp
