// Explicit congestion notification: who marks, who echoes, who reacts.
//
//   sender    ECT(0) on new data; an echo lowers the window once a window of data, and the next new
//             segment says CWR
//   receiver  from a CE mark on, every ACK says ECE, until a segment says CWR. DCTCP: an ACK says
//             ECE if what it acknowledges was marked, and a change of that is acknowledged at once
//
// The flags that the hot path looks at are Tcb's; here is the rest. Owner: a Tcb. Thread: holder of
// its engine's lock. Source: RFC 3168 §6.1, RFC 8257 §3.2 and §3.5.
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
  bool old_ece : 1 = false;    ///< echo of what Tcb::ecn_old_at has
  bool requested : 1 = false;  ///< our SYN asked for it
  bool ect_seen : 1 = false;   ///< the peer's data came marked ECT or CE
  bool lowered : 1 = false;    ///< an echo lowered the window; its episode is not over
};

/// A listener with `c` agrees to what this SYN asks (RFC 3168 §6.1.1).
bool ecn_agrees(const Config& c, const Segment& syn);
/// The peer's SYN or SYN-ACK settles whether ECN is in use (RFC 3168 §6.1.1).
void ecn_adopt_syn(Tcb& t, const Segment& syn);
/// As settled, `on` or not.
void ecn_settle(Tcb& t, bool on);
/// Flags and codepoint of our SYN or SYN-ACK. A repeated SYN asks no more: some path may drop it
/// (RFC 3168 §6.1.1.1).
void ecn_mark_syn(const Tcb& t, bool reply, Plan& p);
/// New data: ECT(0), and CWR if due. Requires Tcb::ecn_on.
void ecn_mark_data(const Tcb& t, Plan& p);
/// A segment with data arrived, before it is taken: echoes its mark. Requires Tcb::ecn_on.
void ecn_on_data(Tcb& t, const Segment& s);
/// New data was acknowledged: reacts to the echo, once a window. Requires Tcb::ecn_on.
void ecn_on_ack(Tcb& t, uint32_t flight, Instant now);

}  // namespace vireo::tcp
