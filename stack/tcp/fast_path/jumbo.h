// Joins segments to one frame, as one longer segment: where the path takes more than one of our
// frames holds (jumbo frames). Each segment of Tcb::mss bytes lies in a buffer of its own, and the
// device gathers them. Retransmissions go one by one.
//
// A path that takes single segments but drops joined ones, and does not say so (RFC 2923 §2.1),
// would lose each flight once. So one joined frame at a time is watched: after three in a row of
// which a part was sent again, frames are not joined for a while.
// Owner: a Tcb's Scoreboard. Thread: holder of its engine's lock.
#pragma once

#include <cstdint>

#include "core/clock.h"
#include "core/seq.h"

namespace vireo::tcp {

struct Tcb;
struct Plan;
struct Burst;

struct JumboWatch {
  StreamOffset begin = 0;  ///< the frame that is watched
  StreamOffset end = 0;    ///< 0: none
  unsigned lost = 0;       ///< on end
  Instant off_until;
};

/// Payload that may leave in one frame now; no more than Tcb::mss: nothing is joined.
uint32_t may_join(Tcb& t, Instant now);
/// As sent_burst(), for a burst that left as one segment.
void sent_jumbo(Tcb& t, const Plan& plan, const Burst& b, Instant now);
/// What begins at `offset` is sent again because it was lost.
void jumbo_lost(Tcb& t, StreamOffset offset, Instant now);

}  // namespace vireo::tcp
