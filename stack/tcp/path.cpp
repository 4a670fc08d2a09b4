// A path that carries smaller segments than was thought: told by a router (RFC 1191, RFC 8201), or
// concluded from silence (RFC 4821 §7.7, as Linux's tcp_mtu_probing does it).
#include <algorithm>

#include "stack/tcp/tcb.h"

namespace vireo::tcp {

Effects path_shrunk(Tcb& t, uint16_t mss, Instant now) {
  const uint16_t before = t.mss;
  set_mss(t, mss);
  if (t.state == State::kSynSent && t.syn_data && !t.syn_retried) {
    t.syn_due = t.syn_retried = true;  // it was too large with its data (Linux)
    return Effects::kTransmit;
  }
  if (t.mss >= before || t.state < State::kEstablished || t.outstanding() == 0 || t.reset_due)
    return Effects::kNone;
  lose_oversized(t, now);
  refresh_prediction(t);
  return transmit_wish(t);
}

void suspect_black_hole(Tcb& t) {
  const Config& c = t.config;
  if (c.black_hole_mss == 0 || t.retransmits < c.retries1) return;
  // First the base, then halves of it: packets of that size go through almost anywhere.
  constexpr uint16_t kFloor = 48;
  const uint16_t next = t.hole_mss == 0 ? c.black_hole_mss : static_cast<uint16_t>(t.hole_mss / 2);
  t.hole_mss = std::max(next, kFloor);
  update_mss(t);
}

}  // namespace vireo::tcp
