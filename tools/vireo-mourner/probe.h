// The segment that makes the kernel reset a dead connection. A bare ACK whose sequence number lies
// outside the peer's window must be answered with an ACK (RFC 9293 §3.10.7.4). That answer finds no
// connection in our kernel, which sends a reset with exactly the sequence number that the peer
// expects (§3.10.7.1). So nothing is guessed, and a connection that lives after all (the 4-tuple
// was taken again) only sees a duplicate. Owner: the mourner. Thread: one.
#pragma once

#include "core/clock.h"
#include "core/last_will.h"

namespace vireo {

/// Sockets to send by, -1: the family is not there.
struct RawSockets {
  int v4;
  int v6;
};

/// Sends one. `round` 0, 1, ...: the sequence number is the first one and, in every other round,
/// half the circle further on, so that one of two lies outside the peer's window (at most 2^30
/// bytes, RFC 7323 §2.3) however far the connection had come. @return false: no room now, wait a
/// moment; every other failure is final and true.
bool send_probe(const RawSockets& sockets, const LastWillEntry& e, unsigned round, Instant now);

}  // namespace vireo
