// Shared by all send paths, the full one (output.cpp), the fast ones (fast_path) and bursts
// (burst.cpp): whether a segment may leave, its Plan, and the bookkeeping after it was sent.
// Private to stack/tcp. Owner: a Tcb. Thread: holder of its engine's lock. Source: RFC 9293 §3.8,
// RFC 7323 §3.2.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stack/tcp/delayed_ack.h"
#include "stack/tcp/tcb.h"
#include "stack/tcp/window.h"
#include "stack/wire/tcp_options.h"

namespace vireo::tcp {

// ---- before: what may leave

/// Payload of a full segment next to the current SACK blocks, as Linux's tcp_current_mss().
uint32_t mss_beside_blocks(const Tcb& t);
inline uint32_t current_mss(const Tcb& t) {
  return t.reassembly == nullptr ? t.mss : mss_beside_blocks(t);
}

inline bool sws_allows(const Tcb& t, uint32_t usable) {
  return usable >= current_mss(t) || usable >= t.max_wnd / 2;
}

/// Bytes of `d` from `at`, never sent before, that may leave now in one segment of at most `mss`;
/// 0: none. `flight`: bytes in the network; `snd_sml`: end of the last small segment. Requires at <
/// snd_end.
inline uint32_t may_leave(const Tcb& t, const SendDesc& d, StreamOffset at, uint32_t mss,
                          uint64_t flight, StreamOffset snd_sml) {
  auto length = static_cast<uint32_t>(std::min<uint64_t>(d.end() - at, mss));
  if (flight > 0 && flight + length > t.cc.cwnd && !t.tlp_due) return 0;
  const auto usable = static_cast<int64_t>(t.snd_edge - at);
  if (usable < static_cast<int64_t>(length)) [[unlikely]] {
    if (usable <= 0) return 0;
    const auto fits = static_cast<uint32_t>(usable);
    if (!t.probe_due && !sws_allows(t, fits)) return 0;  // RFC 9293 §3.8.6.2.1
    length = fits;
  }
  const bool urgent =
      t.urgent_mode && t.queue.board().snd_up > t.snd_una;  // sent at once, cork or not (Linux)
  if (at + length == t.snd_end && length < mss && !t.fin_queued && !t.push && !t.probe_due &&
      !urgent) {
    if (t.cork || t.more || t.autocork) return 0;
    if (!t.nodelay && snd_sml > t.snd_una) return 0;  // Nagle, by Minshall's rule
  }
  return length;
}

/// Flags of the last segment of the queued data: PSH, and FIN if the window has room for it.
inline SegFlags tail_flags(const Tcb& t, StreamOffset end) {
  if (end != t.snd_end) return SegFlags::kNone;
  const bool fin = t.fin_queued && static_cast<int64_t>(t.snd_edge - end) > 0;
  return fin ? SegFlags::kPsh | SegFlags::kFin : SegFlags::kPsh;
}

// ---- before: filling the plan

/// A segment at `offset` with ACK, window and timestamps only.
inline void plan_plain(const Tcb& t, Instant now, StreamOffset offset, Plan& p) {
  p.seq = t.snd_seq(offset);
  p.ack = t.rcv_seq(t.rcv_nxt);
  p.window = window_field(t);
  p.flags = SegFlags::kAck;
  p.ecn = wire::Ecn::kNotEct;
  p.urgent = 0;
  p.options_length = 0;
  if (t.ts_on) [[likely]] {
    wire::TcpOptionWriter w(p.options);
    w.timestamps(timestamp(t, now), t.ts_recent);
    p.options_length = w.size();
  }
  p.packet = nullptr;
  p.at = 0;
  p.length = 0;
  p.retransmission = false;
  p.offset = offset;
}

/// Payload: the `length` bytes of `b` from its byte `skip`.
inline void attach(PacketBuf* b, uint64_t skip, uint32_t length, Plan& p) {
  p.packet = b;
  p.at = static_cast<uint16_t>(b->data_at + skip);
  p.length = static_cast<uint16_t>(length);
}

// ---- after: the segment was sent

/// For its payload, from the descriptor next(); `mss`: size of a full segment.
inline void text_sent(Tcb& t, const Plan& p, uint32_t mss, Instant now) {
  const StreamOffset end = p.offset + p.length;
  SendDesc& d = t.queue.next();
  d.sent_at = now;
  if (end >= d.end()) t.queue.pass_next();
  if (p.length < mss) t.queue.board().snd_sml = end;
  ++t.data_segs_out;
  t.bytes_sent += p.length;
  t.last_sent = now;
  note_answer(t, now);
}

/// For its ACK and window field, scaled by `shift` (0 for a SYN).
inline void ack_sent(Tcb& t, uint16_t window, unsigned shift) {
  t.rcv_acked = t.rcv_nxt;
  t.rcv_adv = std::max(t.rcv_adv, t.rcv_nxt + (uint64_t{window} << shift));
  t.delack_at = Instant::never();
}

/// For the FIN, the descriptor next().
inline void fin_sent(Tcb& t, Instant now) {
  SendDesc& fin = t.queue.next();
  fin.sent_at = now;
  if (t.snd_max > t.snd_end) ++fin.retransmits;
  t.queue.pass_next();
}

/// Data was sent: starts the timer, or restarts the wait for the tail loss probe (RFC 8985 §7.2).
void data_sent_timer(Tcb& t, Instant now);

/// Bookkeeping of one sent segment: `n` bytes, never sent before and the last queued, with this
/// window field, an ACK and nothing else.
[[gnu::always_inline]] inline void book_last(Tcb& t, uint16_t window, uint32_t n, Instant now) {
  if (n < t.mss) t.queue.board().snd_sml = t.snd_end;
  ++t.segs_out;
  ++t.data_segs_out;
  t.bytes_sent += n;
  t.last_sent = now;
  note_answer(t, now);
  t.snd_nxt = t.snd_max = t.snd_end;
  t.push = false;
  ack_sent(t, window, t.rcv_wscale);
  t.acks_due = 0;
}

/// For all of it: sent data now ends at `end`.
inline void sent_up_to(Tcb& t, StreamOffset end, const Plan& p) {
  t.nagle_room = 0;
  t.snd_nxt = end;
  t.snd_max = std::max(t.snd_max, end);
  if (end >= t.snd_end) t.push = false;
  t.probe_due = t.keep_due = false;
  ack_sent(t, p.window, t.rcv_wscale);
  t.acks_due = 0;
}

}  // namespace vireo::tcp
