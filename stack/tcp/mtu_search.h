// Packetization layer path MTU discovery: the largest segment that the path carries is found by
// sending one and seeing whether it is acknowledged; no router has to tell. Between search_low,
// which goes through, and search_high lies what is not known.
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
  Instant begun;  ///< when the range was last as wide as it can be
  uint16_t search_low = 0;
  uint16_t search_high = 0;
  uint16_t probe_size = 0;  ///< in flight, 0: none is
};

/// From Config::mtu_base upwards. Without memory for it nothing changes.
void begin_mtu_search(Tcb& t, Instant now);
/// What the next segment of new data may hold: Tcb::mss; or more, it is a probe and next() of the
/// queue has just that; or 0: soon it will be one, wait. Requires Tcb::searches_mtu, as the others.
uint32_t plan_mtu_probe(Tcb& t, Instant now);
/// Until something is acknowledged or the time of the search comes, no segment will be a probe.
bool is_mtu_settled(const Tcb& t);
void mtu_probe_sent(Tcb& t, const Plan& p);
/// Something is taken for lost. @return true: it is the probe alone, which is not congestion; it is
/// to be sent again in smaller segments (RFC 4821 §7.6.2).
bool mtu_probe_lost(Tcb& t);
/// Something is sent again: of a probe that was not acknowledged yet nothing can be told (RFC 4821
/// §7.6.4; Linux).
void settle_mtu_probe(Tcb& t);

}  // namespace vireo::tcp
