#include "stack/tcp/cc_kinds.h"

namespace vireo::tcp {

void dctcp_learn(CongestionControl& c, const CcAck& a) {
  Dctcp& d = c.dctcp;
  if (d.window_end == 0) d.window_end = a.snd_nxt;
  d.acked += a.acked;
  if (a.ece) d.marked += a.acked;
  if (a.snd_una < d.window_end) return;
  const double fraction = d.acked == 0 ? 0 : static_cast<double>(d.marked) / d.acked;
  d.alpha += Dctcp::kGain * (fraction - d.alpha);
  d.window_end = a.snd_nxt;
  d.acked = d.marked = 0;
}

void dctcp_on_congestion(CongestionControl& c, CcEvent e, uint32_t flight, uint32_t mss) {
  // §3.3 for marks; §3.5: a loss halves the window, as without ECN.
  const double rest = e == CcEvent::kEcn ? c.cwnd * (1 - c.dctcp.alpha / 2) : flight * 0.5;
  c.ssthresh = std::max(static_cast<uint32_t>(rest), 2 * mss);
}

}  // namespace vireo::tcp
