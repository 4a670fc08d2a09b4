// Header prediction: the next in-order data segment, or an ACK of new data, on a connection where
// nothing unusual is going on. One branch admits it; everything else takes input()'s full walk.
// Owner: a Tcb. Thread: holder of its engine's lock. Source: RFC 9293 §3.10.7.4 for the order of
// effects; the idea is Van Jacobson's.
#pragma once

#include <algorithm>
#include <optional>

#include "stack/tcp/recovery.h"
#include "stack/tcp/tcb.h"
#include "stack/wire/tcp_options.h"

namespace vireo::tcp {

/// Acknowledges `unacked` in-order bytes now or later (RFC 9293 §3.8.6.3, RFC 5681 §4.2).
inline void schedule_ack(Tcb& t, Instant now) {
  const uint64_t unacked = t.rcv_nxt - t.rcv_acked;
  bool at_once = unacked >= 2ULL * t.rcv_mss || t.config.quickack;
  if (t.quick_acks > 0) {
    --t.quick_acks;
    at_once |= !t.interactive;
  }
  if (at_once) {
    if (t.acks_due == 0) t.acks_due = 1;
    return;
  }
  if (t.delack_at.is_never()) {
    const Duration wait =
        std::min(std::max(t.rtt.srtt / 2, Duration::ms(1)), t.config.delack_max.get());
    t.delack_at = now + wait;
  }
}

/// @return the effects, or nullopt: nothing was changed, walk the full way.
inline std::optional<Effects> input_predicted(Tcb& t, Segment& s, Instant now) {
  const uint32_t length = s.payload.bytes();
  const auto acked = static_cast<uint32_t>(s.ack - t.snd_seq(t.snd_una));
  // Differences, all zero on a hit: one branch.
  const uint32_t miss =
      (static_cast<uint32_t>(s.flags & ~SegFlags::kPsh) ^ static_cast<uint32_t>(SegFlags::kAck)) |
      (s.seq.value() ^ t.rcv_seq(t.rcv_nxt).value()) |
      static_cast<uint32_t>(acked > t.snd_nxt - t.snd_una) |
      static_cast<uint32_t>(length > t.rcv_adv - t.rcv_nxt) |
      static_cast<uint32_t>((length | acked) == 0) |
      static_cast<uint32_t>(((s.ecn == wire::Ecn::kCe) & t.ecn_on) != t.ecn_expect_ce) |
      (static_cast<uint32_t>(s.options.size()) ^ (t.ts_on ? 12U : 0U));
  if (!t.predictable || miss != 0) return std::nullopt;
  uint32_t ts_echo = 0;
  if (t.ts_on) {
    uint32_t ts_val;
    if (!wire::parse_aligned_timestamps(s.options, ts_val, ts_echo) ||
        static_cast<int32_t>(ts_val - t.ts_recent) < 0)
      return std::nullopt;
    if (t.rcv_nxt == t.rcv_acked) {  // RFC 7323 §4.3: SEG.SEQ <= Last.ACK.sent
      t.ts_recent = ts_val;
      t.ts_recent_s = seconds(now);
    }
  }
  ++t.segs_in;
  t.last_ack = now;
  t.keep_probes = 0;
  Effects e = Effects::kNone;
  if (acked != 0)
    e = on_ack(t, {.ack = t.snd_una + acked,
                   .sack = {},
                   .has_ts = t.ts_on,
                   .ts_echo = ts_echo,
                   .duplicate = false,
                   .now = now});
  const uint32_t window = static_cast<uint32_t>(s.window) << t.snd_wscale;
  t.snd_edge = t.snd_una + window;  // this ACK is the newest there is: RFC 9293 window update rule
  t.snd_wl1 = s.seq;
  t.snd_wl2 = s.ack;
  if (window > t.max_wnd) t.max_wnd = window;
  if (length != 0) {
    ++t.data_segs_in;
    t.last_received = now;
    if (length > t.rcv_mss)
      t.rcv_mss = static_cast<uint16_t>(std::min<uint32_t>(length, t.config.mss));
    if (t.ts_on && ts_echo != t.tuning.echo) measure_by_echo(t, ts_echo, now);
    t.rcv_nxt += length;
    const uint64_t pinned = uint64_t{t.recv_queue.buffers()} * t.pool->frame_bytes();
    append_chain(t.recv_queue, std::move(s.payload), pinned > t.config.rcv_buf);
    schedule_ack(t, now);
    e |= Effects::kReadable;
  }
  if (t.snd_nxt == t.snd_una && (t.snd_end > t.snd_nxt || t.rtx_timer != RtxTimer::kNone))
    sync_timer(t, now);  // the window may have opened or shut
  return e | transmit_wish(t);
}

}  // namespace vireo::tcp
