// Header prediction: the next in-order data segment, or an ACK of new data, on a connection without
// unusual state. All other segments take input()'s full processing. Owner: a Tcb. Thread: holder of
// its engine's lock. Source: RFC 9293 §3.10.7.4 for the order of effects; the idea is Van
// Jacobson's.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "stack/tcp/delayed_ack.h"
#include "stack/tcp/fast_path/single_segment.h"
#include "stack/tcp/recovery.h"
#include "stack/tcp/tcb.h"
#include "stack/wire/tcp_options.h"

namespace vireo::tcp {

/// The fields that header prediction compares, of a segment with ACK, perhaps PSH, and no options
/// but timestamps.
struct PlainSegment {
  Seq32 seq;
  Seq32 ack;
  uint32_t ts_val = 0;
  uint32_t ts_echo = 0;
  uint32_t length = 0;  ///< payload bytes
  uint16_t window = 0;  ///< as on the wire, unscaled
  bool has_ts = false;
  bool is_marked = false;  ///< congestion experienced
};

/// True if `s` is the next expected segment and no state is unusual. Separate compares and jumps:
/// nearly all succeed, so the branches are well predicted.
inline bool is_predicted(const Tcb& t, const PlainSegment& s) {
  const auto acked = static_cast<uint32_t>(s.ack - t.snd_seq(t.snd_una));
  if (!t.predictable || s.seq != t.rcv_seq(t.rcv_nxt) || acked > t.snd_nxt - t.snd_una ||
      s.length > t.rcv_adv - t.rcv_nxt || (s.length | acked) == 0 || s.has_ts != t.ts_on)
    return false;
  if ((t.ecn_on || t.ecn_expect_ce) && (s.is_marked && t.ecn_on) != t.ecn_expect_ce) return false;
  return !s.has_ts || static_cast<int32_t>(s.ts_val - t.ts_recent) >= 0;
}

/// Appends payload at rcv_nxt to the unread data.
inline void queue_text(Tcb& t, PacketChain&& text) {
  const uint64_t pinned = uint64_t{t.recv_queue.buffers()} * t.pool->frame_bytes();
  if (pinned > t.rcv_buf) [[unlikely]]
    append_chain(t.recv_queue, std::move(text), true);
  else
    t.recv_queue.append(std::move(text));
}
[[gnu::always_inline]] inline void queue_text(Tcb& t, PacketRef&& text) {
  if (t.recv_queue.empty()) [[likely]]
    t.recv_queue.push_first(std::move(text));
  else
    queue_text(t, PacketChain(std::move(text)));
}

/// Processes `s`. Requires is_predicted(), and with kAnswersSingle answers_single(). `payload`, a
/// PacketChain or a PacketRef, is all of its `length`.
template <bool kAnswersSingle = false, class Payload>
[[gnu::always_inline]] inline Effects take_predicted(Tcb& t, const PlainSegment& s,
                                                     Payload&& payload, Instant now) {
  if (kAnswersSingle ||
      (t.ts_on && t.rcv_nxt == t.rcv_acked)) {  // RFC 7323 §4.3: SEG.SEQ <= Last.ACK.sent
    t.ts_recent = s.ts_val;
    t.ts_recent_s = seconds(now);
  }
  ++t.segs_in;
  t.last_ack = now;
  t.keep_probes = 0;
  Effects e = Effects::kNone;
  if constexpr (kAnswersSingle) {
    take_single_ack(t, now);
  } else {
    t.single_out = false;
    t.nagle_room = 0;  // computed for the old window
    const auto acked = static_cast<uint32_t>(s.ack - t.snd_seq(t.snd_una));
    if (acked != 0) {
      if (is_single_acked(t, acked)) [[likely]]
        take_single_ack(t, now);
      else
        e = on_ack(t, {.ack = t.snd_una + acked,
                       .sack = {},
                       .has_ts = t.ts_on,
                       .ts_echo = s.ts_echo,
                       .duplicate = false,
                       .now = now});
    }
  }
  const uint32_t window = static_cast<uint32_t>(s.window) << t.snd_wscale;
  t.snd_edge = t.snd_una + window;  // this ACK is the newest: RFC 9293 window update rule
  t.snd_wl1 = s.seq;
  t.snd_wl2 = s.ack;
  if (window > t.max_wnd) t.max_wnd = window;
  if (s.length != 0) {
    ++t.data_segs_in;
    t.last_received = now;
    if (s.length > t.rcv_mss)
      t.rcv_mss = static_cast<uint16_t>(std::min<uint32_t>(s.length, t.path_mss));
    if (t.ts_on && s.ts_echo != t.tuning.echo) measure_by_echo(t, s.ts_echo, now);
    t.rcv_nxt += s.length;
    queue_text(t, std::forward<Payload>(payload));
    schedule_ack(t, now);
    e |= Effects::kReadable;
  }
  if constexpr (kAnswersSingle) {
    if (t.acks_due == 0) [[likely]]
      return e;
  }
  if (t.snd_nxt == t.snd_una && (t.snd_end > t.snd_nxt || t.rtx_timer != RtxTimer::kNone))
    sync_timer(t, now);  // the window may have opened or closed
  if (t.single_ack && t.acks_due == 0 && t.snd_nxt == t.snd_end) [[likely]]
    return e;  // nothing else can be due, see prepare_single()
  return e | transmit_wish(t);
}

/// Processes an answer to the single segment whose bytes are copied to the program without being
/// queued, as far as the reply needs it: book_answer() does the rest. Requires answers_single(), at
/// most Scoreboard::answer_most bytes, and an empty recv_queue.
[[gnu::always_inline]] inline void take_answer(Tcb& t, uint32_t bytes, uint32_t ts_val,
                                               uint16_t window) {
  t.single_out = false;
  t.ts_recent = ts_val;
  t.rcv_nxt += bytes;
  t.snd_una = t.snd_end;
  t.snd_edge = t.snd_una + (uint32_t{window} << t.snd_wscale);
}

/// The rest of take_predicted() and consumed() for that answer, after take_answer() and
/// schedule_ack(). Requires that nothing happened since; a segment may have been sent that is not
/// queued yet.
inline void book_answer(Tcb& t, const AwaitedAnswer& a) {
  VIREO_DEBUG_ASSERT(t.snd_una == t.snd_end && t.recv_queue.empty() && a.bytes <= t.rcv_mss);
  take_single_ack(t, a.at);
  t.ts_recent_s = seconds(a.at);
  ++t.segs_in;
  t.last_ack = a.at;
  t.keep_probes = 0;
  t.snd_wl1 = t.rcv_seq(t.rcv_nxt - a.bytes);
  t.snd_wl2 = t.snd_seq(t.snd_una);
  t.max_wnd = std::max(t.max_wnd, static_cast<uint32_t>(t.snd_edge - t.snd_una));
  ++t.data_segs_in;
  t.last_received = a.at;
  if (a.ts_echo != t.tuning.echo) measure_by_echo(t, a.ts_echo, a.at);
  (void)consumed(t, a.bytes, a.at);  // a window update sets acks_due
}

/// First step of input(). @return the effects, or nullopt: nothing was changed, use full
/// processing.
inline std::optional<Effects> input_predicted(Tcb& t, Segment& s, Instant now) {
  if ((s.flags & ~SegFlags::kPsh) != SegFlags::kAck) return std::nullopt;
  PlainSegment plain{.seq = s.seq,
                     .ack = s.ack,
                     .length = s.payload.bytes(),
                     .window = s.window,
                     .has_ts = !s.options.empty(),
                     .is_marked = s.ecn == wire::Ecn::kCe};
  if (plain.has_ts && !wire::parse_aligned_timestamps(s.options, plain.ts_val, plain.ts_echo))
    return std::nullopt;
  if (!is_predicted(t, plain)) return std::nullopt;
  return take_predicted(t, plain, std::move(s.payload), now);
}

}  // namespace vireo::tcp
