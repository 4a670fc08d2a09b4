// Joins several segments into one longer segment, where the path MTU is larger than our frames
// (jumbo frames). Each part of Tcb::mss bytes is in its own buffer, and the device gathers them.
// Retransmissions are sent one by one.
//
// A path may carry single segments but silently drop joined ones (RFC 2923 §2.1); each flight would
// then be lost once. So one joined frame at a time is watched: after three in a row that needed
// retransmission, joining is off for 60 s.
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
  StreamOffset begin = 0;  ///< the watched frame
  StreamOffset end = 0;    ///< 0: none
  unsigned lost = 0;       ///< in a row
  Instant off_until;
};

/// Payload that may be sent in one frame now; at most Tcb::mss: nothing is joined.
uint32_t may_join(Tcb& t, Instant now);
/// As sent_burst(), for a burst sent as one segment.
void sent_jumbo(Tcb& t, const Plan& plan, const Burst& b, Instant now);
/// Data at `offset` was lost and is retransmitted.
void jumbo_lost(Tcb& t, StreamOffset offset, Instant now);

}  // namespace vireo::tcp
