// Explicit congestion notification: marking, echo and reaction.
//
//   sender    ECT(0) on new data; an echo lowers cwnd once a window of data, and the next new
//             segment has CWR set
//   receiver  after a CE mark every ACK has ECE set, until a segment with CWR arrives. DCTCP: an
//             ACK has ECE set if its data was marked; a change is acknowledged at once
//
// The flags that the hot path reads are in Tcb; the rest of the state is here. Owner: a Tcb.
// Thread: holder of its engine's lock. Source: RFC 3168 §6.1, RFC 8257 §3.2 and §3.5.
#pragma once

#include <cstdint>

#include "core/clock.h"
#include "core/seq.h"

namespace vireo::tcp {

struct Tcb;
struct Segment;
struct Plan;
struct Config;

struct EcnState {
  bool old_ece : 1 = false;    ///< ECE value of the ACK of Tcb::ecn_old_at
  bool requested : 1 = false;  ///< our SYN requested ECN
  bool ect_seen : 1 = false;   ///< data from the peer had ECT or CE
  bool lowered : 1 = false;    ///< an echo lowered cwnd; the episode is not over
};

/// True if a listener with `c` accepts the ECN request of this SYN (RFC 3168 §6.1.1).
bool ecn_agrees(const Config& c, const Segment& syn);
/// Negotiates ECN from the peer's SYN or SYN-ACK (RFC 3168 §6.1.1).
void ecn_adopt_syn(Tcb& t, const Segment& syn);
/// Sets the negotiated result.
void ecn_settle(Tcb& t, bool on);
/// Sets the flags and codepoint of our SYN or SYN-ACK. A repeated SYN requests no ECN: some paths
/// drop such SYNs (RFC 3168 §6.1.1.1).
void ecn_mark_syn(const Tcb& t, bool reply, Plan& p);
/// New data: ECT(0), and CWR if due. Requires Tcb::ecn_on.
void ecn_mark_data(const Tcb& t, Plan& p);
/// A segment with data arrived and is not queued yet: echoes its mark. Requires Tcb::ecn_on.
void ecn_on_data(Tcb& t, const Segment& s);
/// New data was acknowledged: reacts to the echo, once a window. Requires Tcb::ecn_on.
void ecn_on_ack(Tcb& t, uint32_t flight, Instant now);

}  // namespace vireo::tcp
