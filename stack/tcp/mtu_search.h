// Packetization layer path MTU discovery: finds the largest segment that the path carries by
// sending a probe and seeing whether it is acknowledged, without ICMP. search_low is known to work;
// sizes between search_low and search_high are unknown.
// Names are the RFC's; sizes count payload and TCP options, as Config::mss does.
// Exists only for connections that search (Config::mtu_probing). Owner: a Tcb. Thread: holder of
// its engine's lock. Source: RFC 4821 §7; where it leaves a choice, Linux's tcp_mtu_probe().
#pragma once

#include <cstdint>

#include "core/clock.h"
#include "core/seq.h"

namespace vireo::tcp {

struct Tcb;
struct Plan;

struct MtuSearch {
  StreamOffset probe_begin = 0;
  StreamOffset probe_end = 0;
  Instant begun;  ///< when the range was last reset to its full width
  uint16_t search_low = 0;
  uint16_t search_high = 0;
  uint16_t probe_size = 0;  ///< size of the probe in flight, 0: none
};

/// Starts from Config::mtu_base. Does nothing if out of memory.
void begin_mtu_search(Tcb& t, Instant now);
/// Payload of the next segment of new data. Tcb::mss: an ordinary one. More: a probe, and next() of
/// the queue has just this size. 0: wait, a probe will be sent soon. Requires Tcb::searches_mtu, as
/// do the functions below.
uint32_t plan_mtu_probe(Tcb& t, Instant now);
/// No segment will be a probe until an ACK arrives or the search interval has passed.
bool is_mtu_settled(const Tcb& t);
void mtu_probe_sent(Tcb& t, const Plan& p);
/// Data was marked lost. @return true: only the probe, which is not a sign of congestion; it is
/// sent again in smaller segments (RFC 4821 §7.6.2).
bool mtu_probe_lost(Tcb& t);
/// Data is retransmitted: the result of an unacknowledged probe is inconclusive (RFC 4821 §7.6.4;
/// Linux).
void settle_mtu_probe(Tcb& t);

}  // namespace vireo::tcp
