// Initial sequence numbers: a clock plus a keyed hash of the connection's four-tuple. Others cannot
// guess them, and a new connection of the same tuple starts above the old one. Owner: none (pure
// functions). Thread: any. Source: RFC 6528 §3; SipHash-2-4 (Aumasson, Bernstein 2012).
#pragma once

#include <cstdint>
#include <span>

#include "core/address.h"
#include "core/clock.h"
#include "core/flow_hash.h"
#include "core/seq.h"
#include "core/tuple_bytes.h"

namespace vireo::tcp {

/// Secret of the process; the caller reads it once from the kernel's random number generator.
using IsnSecret = FlowHashKey;

/// SipHash-2-4 of `data`, for values that are visible on the wire.
inline uint64_t siphash(const IsnSecret& key, std::span<const uint8_t> data) {
  return vireo::siphash<2, 4>(key, data.data(), data.size());
}

/// Keyed hash of the tuple, independent of time.
inline uint64_t tuple_hash(const IsnSecret& key, const Endpoint& local, const Endpoint& remote) {
  const TupleBytes tuple(local.addr, local.port, remote.addr, remote.port);
  return siphash(key, tuple.span());
}

/// ISN = M + F(tuple, secret), F being tuple_hash(). M advances every 64 ns and wraps in 275 s,
/// which outpaces any connection that sends below 125 Mbit/s (RFC 6528 §3 asks for 4 us or less).
inline Seq32 initial_sequence(uint64_t tuple_hash, Instant now) {
  return Seq32(static_cast<uint32_t>(tuple_hash) +
               static_cast<uint32_t>(static_cast<uint64_t>(now.ns()) >> 6));
}
inline Seq32 initial_sequence(const IsnSecret& key, const Endpoint& local, const Endpoint& remote,
                              Instant now) {
  return initial_sequence(tuple_hash(key, local, remote), now);
}

/// The ISN of a connection that replaces one in TIME-WAIT that ended with `snd_nxt`: beyond its
/// largest unscaled window (RFC 6191 §4, and Linux).
inline Seq32 beyond_old_window(Seq32 isn, Seq32 snd_nxt) {
  const Seq32 least = snd_nxt + (65'535 + 2);
  return isn.before(least) ? least : isn;
}

/// Offset of the timestamp clock of this tuple (RFC 7323 §5.4): constant per tuple, so that the
/// clock advances across a TIME-WAIT reuse (RFC 6191).
inline uint32_t timestamp_offset(uint64_t tuple_hash) {
  return static_cast<uint32_t>(tuple_hash >> 32);
}

}  // namespace vireo::tcp
