// Adapts to a path that carries smaller segments than assumed: reported by a router (RFC 1191, RFC
// 8201), or inferred from timeouts (RFC 4821 §7.7, as Linux's tcp_mtu_probing).
#include <algorithm>

#include "stack/tcp/tcb.h"

namespace vireo::tcp {

Effects path_shrunk(Tcb& t, uint16_t mss, Instant now) {
  const uint16_t before = t.mss;
  set_mss(t, mss);
  if (t.state == State::kSynSent && t.syn_data && !t.syn_retried) {
    t.syn_due = t.syn_retried = true;  // too large with its data (Linux)
    return Effects::kTransmit;
  }
  const bool is_of_probe = t.searches_mtu && t.mtu_search->probe_size > mss;
  if ((t.mss >= before && !is_of_probe) || t.state < State::kEstablished || t.outstanding() == 0 ||
      t.reset_due)
    return Effects::kNone;
  lose_oversized(t, now);
  refresh_prediction(t);
  return transmit_wish(t);
}

void suspect_black_hole(Tcb& t, Instant now) {
  const Config& c = *t.config;
  if (c.mtu_probing == MtuProbing::kOff || t.retransmits < c.retries1) return;
  // First the base size, then halves of it: almost any path carries packets of that size.
  if (!t.searches_mtu) {
    begin_mtu_search(t, now);
    return;
  }
  const int half = (t.mtu_search->search_low - plain_options(t)) / 2;
  const int next = std::max({std::min(half, int{c.mtu_base}), int{c.mtu_floor}, int{kMinMss}});
  t.mtu_search->search_low = static_cast<uint16_t>(next + plain_options(t));
  update_mss(t);
}

}  // namespace vireo::tcp
