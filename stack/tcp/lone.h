// What every message of a request and answer protocol meets: one small segment in flight, and its
// ACK. The short way of output.cpp for the one and of recovery.cpp for the other.
// Owner: a Tcb. Thread: holder of its engine's lock. Source: RFC 9293 §3.8, RFC 6298 §5,
// RFC 8985 §7.2.
#pragma once

#include <algorithm>
#include <cstring>

#include "core/checksum.h"
#include "stack/tcp/recovery.h"
#include "stack/tcp/tcb.h"
#include "stack/tcp/window.h"
#include "stack/wire/tcp_options.h"

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
         2 * flight < t.cc.cwnd && 2 * flight < t.config.snd_buf &&
         2ULL * t.cc.cwnd <= t.config.snd_buf;
}

/// All that on_ack() comes to for it.
inline void take_lone(Tcb& t, Instant now) {
  const Instant sent_at = t.queue.front().sent_at;
  t.queue.pop_front();
  t.snd_una = t.snd_end;
  t.rtt.sample(now - sent_at, t.config.rto_min, t.config.rto_max);
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
         n <= t.config.snd_buf && n <= t.pool->frame_bytes() - PacketPool::kHeadroom &&
         t.backoff == 0 && now - t.last_sent <= t.rtt.rto && t.pool->may_send(true);
}

/// Queues `n` bytes and says how they leave. Requires may_send_lone(). Then either sent_lone(), or
/// nothing: they wait as append() would have left them.
inline void append_lone(Tcb& t, const void* data, size_t n, Instant now, Plan& p) {
  PacketBuf* const b = t.pool->take();
  t.queue.push_back(t.snd_end, b);  // there is a ring, and nothing in it
  b->offset = t.snd_end;
  b->sum = checksum::copy_and_sum(b->data(), data, n);
  b->length = static_cast<uint16_t>(n);
  t.queue.back().length = static_cast<uint32_t>(n);
  t.snd_end += n;
  p.seq = t.snd_seq(t.snd_nxt);
  p.ack = t.rcv_seq(t.rcv_nxt);
  p.window = window_field(t);
  p.flags = SegFlags::kAck | SegFlags::kPsh;
  p.urgent = 0;
  p.options_length = 0;
  if (t.ts_on) [[likely]] {
    wire::TcpOptionWriter w(p.options);
    w.timestamps(timestamp(t, now), t.ts_recent);
    p.options_length = w.size();
  }
  p.packet = b;
  p.at = b->data_at;
  p.length = b->length;
  p.sum = b->sum;
  p.sum_known = true;
  p.retransmission = false;
  p.ecn = wire::Ecn::kNotEct;
}

/// The segment left.
inline void sent_lone(Tcb& t, const Plan& p, Instant now) {
  SendDesc& d = t.queue.next();
  d.sent_at = now;
  t.queue.pass_next();
  Scoreboard& b = t.queue.board();
  if (p.length < t.mss) b.snd_sml = t.snd_end;
  ++t.segs_out;
  ++t.data_segs_out;
  t.bytes_sent += p.length;
  t.last_sent = now;
  // An answer within the time of a delayed ACK, whether or not that was still owed (Linux).
  if (now - t.last_received < t.config.delack_max && t.data_segs_in > 0) t.interactive = true;
  t.snd_nxt = t.snd_end;
  t.snd_max = std::max(t.snd_max, t.snd_end);
  t.push = t.more = t.probe_due = t.keep_due = false;
  t.rto_at = now + std::min(t.rtt.rto, t.config.rto_max.get());
  t.rtx_timer = RtxTimer::kProbe;
  t.rtx_at = std::min(now + tlp_timeout(t, now), t.rto_at);
  t.rcv_acked = t.rcv_nxt;
  t.rcv_adv = std::max(t.rcv_adv, t.rcv_nxt + (uint64_t{p.window} << t.rcv_wscale));
  t.delack_at = Instant::never();
  t.acks_due = 0;
}

}  // namespace vireo::tcp
