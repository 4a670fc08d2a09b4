// The segment that makes the kernel reset a dead connection. The peer must answer a bare ACK with a
// sequence number outside its window by an ACK (RFC 9293 §3.10.7.4). Our kernel has no connection
// for that answer, so it sends a reset with exactly the sequence number that the peer expects
// (§3.10.7.1). Nothing is guessed, and a live connection (the 4-tuple was reused) only sees a
// duplicate.
// Owner: the mourner. Thread: one.
#pragma once

#include "core/clock.h"
#include "core/last_will.h"

namespace vireo {

/// Raw sockets for sending; -1: the address family is not available.
struct RawSockets {
  int v4;
  int v6;
};

/// Sends one probe. `round` 0, 1, ...: the sequence number is the initial one; in every other round
/// half the sequence space is added, so that one of two is outside the peer's window (at most 2^30
/// bytes, RFC 7323 §2.3) wherever the connection was. @return false: no buffer space now, retry
/// shortly; all other failures are final and give true.
bool send_probe(const RawSockets& sockets, const LastWillEntry& e, unsigned round, Instant now);

}  // namespace vireo
