// What holds of a control block after every step, whatever arrived and whatever the program did.
// Owner: one run of a fuzzer. Thread: one.
#pragma once

#include "stack/tcp/tcb.h"

namespace vireo::fuzz {

/// What only moves one way: the highest seen so far. One for each Tcb.
struct Watch {
  StreamOffset rcv_adv = 0;
  StreamOffset snd_una = 0;
  StreamOffset snd_edge = 0;   ///< right edge of the peer's window
  StreamOffset wire_edge = 0;  ///< right edge that our segments told, RSTs and SYNs aside
};

/// The control block by itself: order of the pointers, timers, queues, reassembly.
void check(tcp::Tcb& t, Watch& w);
/// A segment that next_segment() gave, before sent(): its options, payload, window and place.
void check(tcp::Tcb& t, Watch& w, const tcp::Plan& p, unsigned side);
/// next_segment() said that nothing is to be sent: something else must then wake the connection.
void check_idle(const tcp::Tcb& t);

}  // namespace vireo::fuzz
