// Delayed ACK: when in-order data is acknowledged.
//
//   at once   the first segments of a connection, with TCP_QUICKACK, and two full segments
//   delayed   otherwise: a segment of ours carries the ACK, or a timer sends it after half a round
//             trip: at least 1 ms, longer if its last answer took longer, at most delack_max
//
// Other causes of an ACK call ack_now(). Private to stack/tcp and the engine's fast path. Owner: a
// Tcb. Thread: holder of its engine's lock. Source: RFC 9293 §3.8.6.3, RFC 5681 §4.2; Linux
// net/ipv4/tcp_input.c __tcp_ack_snd_check().
#pragma once

#include <algorithm>
#include <cstdint>

#include "stack/tcp/tcb.h"

namespace vireo::tcp {

constexpr uint8_t kQuickAcks = 16;                  ///< segments acknowledged at once after open
constexpr Duration kMinAckDelay = Duration::ms(1);  ///< minimum delay, but at most delack_max
constexpr unsigned kMaxPatience = 7;                ///< Tcb::ack_patience

/// Minimum time that a delayed ACK waits for the program's answer.
inline Duration least_ack_delay(unsigned patience) {
  return Duration::ns(kMinAckDelay.ns() << patience);
}

/// Data is sent: was it an answer within the time of a delayed ACK, whether or not an ACK was still
/// pending (Linux)? If so, the next ACK waits as long as that answer took, within the limits. When
/// a delayed ACK is sent without data, the peer may have waited for it: on_delayed_ack() resets the
/// delay.
inline void note_answer(Tcb& t, Instant now) {
  if (t.interactive) [[likely]]
    return;
  const Duration took = now - t.last_received;
  if (took >= t.config->delack_max || t.data_segs_in == 0) return;
  t.interactive = true;
  unsigned patience = 0;
  while (least_ack_delay(patience) <= took) ++patience;
  const bool may = patience <= kMaxPatience && least_ack_delay(patience) <= t.config->delack_max;
  t.ack_patience = (may ? patience : 0) & kMaxPatience;
}

/// In-order data arrived: it is acknowledged now or later (RFC 9293 §3.8.6.3, RFC 5681 §4.2).
inline void schedule_ack(Tcb& t, Instant now) {
  const uint64_t unacked = t.rcv_nxt - t.rcv_acked;
  bool at_once = unacked >= 2ULL * t.rcv_mss || t.config->quickack;
  if (t.quick_acks > 0) {
    --t.quick_acks;
    at_once |= !t.interactive;
  }
  if (at_once) {
    if (t.acks_due == 0) t.acks_due = 1;
    return;
  }
  if (t.delack_at.is_never()) {
    const Duration half = Duration::ns(t.rtt.srtt.ns() >> 1);
    const Duration least = least_ack_delay(t.ack_patience);
    t.delack_at = now + std::min(std::max(half, least), t.config->delack_max.get());
  }
}

/// The delayed ACK timer expired: no data was sent in time to carry the ACK.
void on_delayed_ack(Tcb& t);

}  // namespace vireo::tcp
