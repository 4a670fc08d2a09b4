// Fast path for small writes that are each sent at once while others are in flight (TCP_NODELAY).
// Replaces append(), the check of what may be sent, and sent().
// Owner: a Tcb. Thread: holder of its engine's lock. Source: RFC 9293 §3.8, RFC 8985 §7.2.
#pragma once

#include <algorithm>

#include "core/assert.h"
#include "core/checksum.h"
#include "stack/tcp/output.h"
#include "stack/tcp/recovery.h"

namespace vireo::tcp {

/// True if `n` bytes would be sent at once as one segment, others are in flight, and nothing else
/// is to be sent but an ACK, which is piggybacked.
inline bool may_send_nodelay(Tcb& t, size_t n) {
  if (!t.nodelay || !t.terse || t.snd_nxt != t.snd_end || t.queue.empty()) return false;
  const Scoreboard& b = t.queue.board();
  const uint64_t used = t.snd_end - t.snd_una + n;
  const uint64_t frames = uint64_t{b.count} * t.pool->frame_bytes();  // as in buffer_room()
  return n - 1 < t.mss && used <= t.cc.cwnd && used <= t.snd_buf && t.snd_nxt + n <= t.snd_edge &&
         (frames < 262144 || frames < 4ULL * t.snd_buf) && b.count <= b.mask &&
         t.rtx_timer == RtxTimer::kProbe && t.snd_max == t.snd_nxt && t.snd_una != 0 &&
         !(t.ack_bare || t.tlp_due || t.probe_due || t.keep_due || t.reset_reply) &&
         !(t.searches_mtu || t.write_blocked) && t.pool->may_send(false);
}

/// Queues a buffer of fill_segment(). Requires may_send_nodelay(). Call sent_nodelay() if it was
/// sent; otherwise it waits as after append().
inline void queue_nodelay(Tcb& t, PacketBuf* b, uint64_t sum) {
  b->sum = checksum::fold(sum);
  t.queue.push_back(b->offset, b);  // there is room
  t.snd_end += b->length;
  t.more = false;
  forget_single(t);
}

/// The segment of `n` bytes was sent with this window field: equivalent to sent().
[[gnu::always_inline]] inline void sent_nodelay(Tcb& t, uint16_t window, uint32_t n, Instant now) {
  t.queue.next().sent_at = now;
  t.queue.pass_next();
  book_last(t, window, n, now);
  t.rtx_at = std::min(now + tlp_timeout(t, now), t.rto_at);
}

}  // namespace vireo::tcp
