#include "stack/tcp/delayed_ack.h"

namespace vireo::tcp {

void ack_now(Tcb& t, bool bare) {
  // A sender without SACK counts each duplicate ACK. Limited, as a burst may be long.
  if (bare) {
    t.ack_bare = true;
    if (t.acks_due < 16) ++t.acks_due;
  } else if (t.acks_due == 0) {
    t.acks_due = 1;
  }
}

void on_delayed_ack(Tcb& t) {
  t.delack_at = Instant::never();
  t.interactive = false;
  t.ack_patience = 0;
  ack_now(t, false);
}

void set_quickack(Tcb& t, bool on, Instant) {
  t.interactive = !on;
  if (on && t.rcv_acked != t.rcv_nxt && t.state >= State::kEstablished) ack_now(t, false);
}

bool is_quick(const Tcb& t) { return !t.interactive; }

void set_delack_max(Tcb& t, Duration d) {
  t.config.change([&](Config& c) { c.delack_max = d; });
  t.ack_patience = 0;  // it may exceed that
}

}  // namespace vireo::tcp
