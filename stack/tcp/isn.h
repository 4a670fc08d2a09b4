// Initial sequence numbers: a clock plus a keyed hash of the connection's four-tuple, so that an
// outsider cannot guess them and a reincarnation of the same tuple starts above its former life.
// Owner: none (pure functions). Thread: any. Source: RFC 6528 §3; SipHash-2-4 (Aumasson, Bernstein
// 2012).
#pragma once

#include <cstdint>
#include <span>

#include "core/address.h"
#include "core/clock.h"
#include "core/flow_hash.h"
#include "core/seq.h"
#include "core/tuple_bytes.h"

namespace vireo::tcp {

/// Secret of the process, drawn once from the kernel's generator by the caller.
using IsnSecret = FlowHashKey;

/// SipHash-2-4 of `data`: its values are seen on the wire.
inline uint64_t siphash(const IsnSecret& key, std::span<const uint8_t> data) {
  return vireo::siphash<2, 4>(key, data.data(), data.size());
}

/// Keyed hash of the tuple, independent of time.
inline uint64_t tuple_hash(const IsnSecret& key, const Endpoint& local, const Endpoint& remote) {
  const TupleBytes tuple(local.addr, local.port, remote.addr, remote.port);
  return siphash(key, tuple.span());
}

/// ISN = M + F(tuple, secret), of its tuple_hash(); M advances every 64 ns (once round in 275 s:
/// faster than any connection that sends below 500 Mbit/s can wrap it, RFC 6528 §3 asks 4 us or
/// less).
inline Seq32 initial_sequence(uint64_t tuple_hash, Instant now) {
  return Seq32(static_cast<uint32_t>(tuple_hash) +
               static_cast<uint32_t>(static_cast<uint64_t>(now.ns()) >> 6));
}
inline Seq32 initial_sequence(const IsnSecret& key, const Endpoint& local, const Endpoint& remote,
                              Instant now) {
  return initial_sequence(tuple_hash(key, local, remote), now);
}

/// The ISN of a connection that follows one in TIME-WAIT, which ended with `snd_nxt`: beyond what
/// that one could have had in flight without scaling (RFC 6191 §4, and Linux).
inline Seq32 beyond_old_window(Seq32 isn, Seq32 snd_nxt) {
  const Seq32 least = snd_nxt + (65'535 + 2);
  return isn.before(least) ? least : isn;
}

/// Offset of the timestamp clock of this tuple (RFC 7323 §5.4): constant for the tuple, so that a
/// TIME-WAIT reuse sees it advance (RFC 6191).
inline uint32_t timestamp_offset(uint64_t tuple_hash) {
  return static_cast<uint32_t>(tuple_hash >> 32);
}

}  // namespace vireo::tcp
