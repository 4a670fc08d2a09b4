// Fast path for request-response protocols: one small segment in flight, and its ACK. Replaces
// output.cpp for the segment and recovery.cpp for the ACK.
// Owner: a Tcb. Thread: holder of its engine's lock. Source: RFC 9293 §3.8, RFC 6298 §5, RFC 8985
// §7.2.
#pragma once

#include <algorithm>

#include "core/assert.h"
#include "core/checksum.h"
#include "stack/tcp/delayed_ack.h"
#include "stack/tcp/output.h"
#include "stack/tcp/recovery.h"
#include "stack/wire/tcp.h"

namespace vireo::tcp {

constexpr Duration kIdle = Duration::s(5);  ///< idle time after which the send ring is freed

/// An ACK of `ack`, without SACK blocks, covers the only segment in flight, a small one, and
/// nothing else is waiting.
inline bool is_single_in_flight(Tcb& t, StreamOffset ack) {
  const uint64_t flight = t.outstanding();
  const SendDesc& d = t.queue.front();
  return t.queue.count() == 1 && ack == t.snd_end && t.snd_nxt == t.snd_end && t.snd_una != 0 &&
         t.is_orderly() && !d.is_tainted() && d.packet != nullptr && !t.ecn_on &&
         !t.write_blocked && t.cc.kind != CcKind::kDctcp && flight < t.mss &&
         2 * flight < t.cc.cwnd && 2 * flight < t.snd_buf && 2ULL * t.cc.cwnd <= t.snd_buf;
}

/// Equivalent to on_ack() for it, less what is zero since prepare_single().
[[gnu::always_inline]] inline void take_single_ack(Tcb& t, Instant now) {
  Scoreboard& b = t.queue.board();
  const Instant sent_at = t.queue.front().sent_at;
  t.queue.pop_single();
  t.snd_una = t.snd_end;
  t.rtt.sample(now - sent_at, t.config->rto_min, t.config->rto_max);
  t.delivery.on_single_ack(b.delivery, t.snd_una, now);
  t.single_out = false;
  t.rtx_timer = RtxTimer::kNone;
  t.rtx_at = t.rto_at = Instant::never();
  b.idle_at = now + kIdle;
}

/// Checks whether the fast paths may be used while nothing is in flight: sets Tcb::single_send and
/// single_ack, valid until forget_single(). Allocates the ring for the first segment.
bool prepare_single(Tcb& t);

/// True if `n` bytes would be sent at once as the only segment in flight, and nothing else is to be
/// sent but an ACK, which is piggybacked.
inline bool may_send_single(Tcb& t, size_t n, Instant now) {
  if (t.snd_una != t.snd_end || n - 1 >= t.mss || !(t.single_send || prepare_single(t)))
    return false;
  VIREO_DEBUG_ASSERT(t.terse && !t.ack_bare && !t.tlp_due && t.queue.has_ring() && t.backoff == 0 &&
                     t.mss <= t.cc.cwnd && t.mss <= t.snd_buf);
  return t.snd_nxt + n <= t.snd_edge && now - t.last_sent <= t.rtt.rto && t.pool->may_send(true);
}

/// True if an ACK of `acked` bytes (not 0) acknowledges the single segment in flight.
inline bool is_single_acked(Tcb& t, uint32_t acked) {
  if (!t.single_ack || acked >= t.mss || t.snd_una + acked != t.snd_end) return false;
  VIREO_DEBUG_ASSERT(is_single_in_flight(t, t.snd_end) && t.backoff == 0 && t.dupacks == 0 &&
                     t.retransmits == 0 && !t.probe_due && !t.tlp_due && !t.partial_acked);
  return true;
}

/// True if a segment with these wire::segment_numbers() and no options but timestamps answers or
/// acknowledges the single segment in flight: next in order, within our window, acknowledging all.
/// Implies is_predicted() and is_single_acked().
inline bool answers_single(Tcb& t, uint64_t numbers, uint32_t length, uint32_t ts_val) {
  if (!t.single_out || t.queue.board().answer.numbers() != numbers ||
      length > t.rcv_adv - t.rcv_nxt || static_cast<int32_t>(ts_val - t.ts_recent) < 0)
    return false;
  VIREO_DEBUG_ASSERT(is_single_in_flight(t, t.snd_end) && t.predictable && t.ts_on &&
                     !t.ecn_expect_ce && t.rcv_acked == t.rcv_nxt &&
                     numbers == wire::segment_numbers(t.rcv_seq(t.rcv_nxt), t.snd_seq(t.snd_end)));
  return true;
}

// The functions below have one caller in the library and must be inlined there.

/// Copies `n` bytes to send into a free buffer. @return their unfolded sum. Requires
/// may_send_single().
[[gnu::always_inline]] inline uint64_t fill_segment(const Tcb& t, PacketBuf* b, const void* data,
                                                    size_t n) {
  b->offset = t.snd_end;
  b->length = static_cast<uint16_t>(n);
  return checksum::copy_and_sum_here(b->data(), data, n);
}

/// Queues the buffer. Call sent_single() if it was sent; otherwise it waits as after append().
[[gnu::always_inline]] inline void queue_single(Tcb& t, PacketBuf* b, uint64_t sum) {
  b->sum = checksum::fold(sum);
  t.queue.push_single(b);
  t.snd_end += b->length;
  t.more = false;
}

/// Sets the path from which answers come, once for the life of the connection.
inline void know_answers_path(Tcb& t, const wire::PlainPath<false>& path) {
  t.queue.board().answer.set(path);
}

/// Fills in its plan.
inline void plan_single(const Tcb& t, PacketBuf* b, Instant now, Plan& p) {
  plan_plain(t, now, b->offset, p);
  p.flags |= SegFlags::kPsh;
  attach(b, 0, b->length, p);
}

/// The segment of `n` bytes was sent with this window field: equivalent to sent().
[[gnu::always_inline]] inline void sent_single(Tcb& t, uint16_t window, uint32_t n, Instant now) {
  t.queue.pass_single(now);
  book_last(t, window, n, now);
  t.probe_due = t.keep_due = false;
  t.rto_at = now + std::min(t.rtt.rto, t.config->rto_max.get());
  t.rtx_timer = RtxTimer::kProbe;
  t.rtx_at = std::min(now + tlp_timeout(t, now), t.rto_at);
  t.single_out = t.single_ack && t.ts_on && n < t.mss;
  Scoreboard& b = t.queue.board();
  b.answer.expect(wire::segment_numbers(t.rcv_seq(t.rcv_nxt), t.snd_seq(t.snd_end)));
  b.answer_most = 0;
  if (t.single_out && b.answer.is_set() && t.quick_acks == 0 && !t.config->quickack &&
      t.config->delack_max >= kMinAckDelay) [[likely]]
    b.answer_most = std::min<uint32_t>(t.rcv_mss, static_cast<uint32_t>(t.rcv_adv - t.rcv_nxt));
}

}  // namespace vireo::tcp
