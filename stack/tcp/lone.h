// What every message of a request and answer protocol meets: one small segment in flight, and its
// ACK. The short way of output.cpp for the one and of recovery.cpp for the other.
// Owner: a Tcb. Thread: holder of its engine's lock. Source: RFC 9293 §3.8, RFC 6298 §5,
// RFC 8985 §7.2.
#pragma once

#include <algorithm>

#include "core/checksum.h"
#include "stack/tcp/output.h"
#include "stack/tcp/recovery.h"

namespace vireo::tcp {

constexpr Duration kIdle = Duration::s(5);  ///< of silence, and the send ring is given back

/// An ACK of `ack`, without SACK blocks, covers the only segment in flight, that is a small one,
/// and nothing else waits.
inline bool is_lone(Tcb& t, StreamOffset ack) {
  const uint64_t flight = t.outstanding();
  const SendDesc& d = t.queue.front();
  return t.queue.count() == 1 && ack == t.snd_end && t.snd_nxt == t.snd_end && t.snd_una != 0 &&
         t.is_orderly() && !d.is_tainted() && d.packet != nullptr && !t.ecn_on &&
         !t.write_blocked && t.cc.kind != CcKind::kDctcp && flight < t.mss &&
         2 * flight < t.cc.cwnd && 2 * flight < t.snd_buf && 2ULL * t.cc.cwnd <= t.snd_buf;
}

/// All that on_ack() comes to for it.
inline void take_lone(Tcb& t, Instant now) {
  const Instant sent_at = t.queue.front().sent_at;
  t.queue.pop_front();
  t.snd_una = t.snd_end;
  t.rtt.sample(now - sent_at, t.config->rto_min, t.config->rto_max);
  t.backoff = 0;
  t.dupacks = 0;
  t.retransmits = 0;
  t.probe_due = false;
  t.tlp_due = false;
  t.partial_acked = false;
  Scoreboard& b = t.queue.board();
  t.delivery.on_ack(b.delivery, t.snd_una, t.snd_nxt, true, now);
  t.rtx_timer = RtxTimer::kNone;
  t.rtx_at = t.rto_at = Instant::never();
  b.idle_at = now + kIdle;
}

/// True if `n` bytes would leave at once as one segment, the only one in flight, and nothing else
/// waits to be said but an ACK, which rides on it.
inline bool may_send_lone(const Tcb& t, size_t n, Instant now) {
  return t.terse && !t.ack_bare && !t.tlp_due && t.queue.empty() && t.queue.has_ring() &&
         n - 1 < t.mss && t.snd_una == t.snd_end && t.snd_nxt + n <= t.snd_edge && n <= t.cc.cwnd &&
         n <= t.snd_buf && n <= t.pool->frame_bytes() - PacketPool::kHeadroom && t.backoff == 0 &&
         now - t.last_sent <= t.rtt.rto && t.pool->may_send(true);
}

/// Queues `n` bytes and says how they leave. Requires may_send_lone(). Then either sent_lone(), or
/// nothing: they wait as append() would have left them.
///
/// This and sent_lone() have one caller in the library and shall be part of it, whatever a compiler
/// thinks of it.
[[gnu::always_inline]] inline void append_lone(Tcb& t, const void* data, size_t n, Instant now,
                                               Plan& p) {
  PacketBuf* const b = t.pool->take();
  b->offset = t.snd_end;
  b->sum = checksum::copy_and_sum(b->data(), data, n);
  b->length = static_cast<uint16_t>(n);
  t.queue.push_back(t.snd_end, b);  // there is a ring, and nothing in it
  plan_plain(t, now, t.snd_end, p);
  p.flags |= SegFlags::kPsh;
  attach(b, 0, b->length, p);
  t.snd_end += n;
  t.more = false;
}

/// The segment left.
[[gnu::always_inline]] inline void sent_lone(Tcb& t, const Plan& p, Instant now) {
  ++t.segs_out;
  text_sent(t, p, t.mss, now);
  sent_up_to(t, t.snd_end, p);
  t.rto_at = now + std::min(t.rtt.rto, t.config->rto_max.get());
  t.rtx_timer = RtxTimer::kProbe;
  t.rtx_at = std::min(now + tlp_timeout(t, now), t.rto_at);
}

}  // namespace vireo::tcp
