// Fast path for small writes held by Nagle's algorithm: they are appended to the waiting frame,
// which is sent when it is full or the data in flight is acknowledged. Also for data that the
// engine holds (Tcb::autocork). Replaces append() and the check of what may be sent, except for the
// first and the last write of a segment.
// Owner: a Tcb. Thread: holder of its engine's lock. Source: RFC 9293 §3.7.4, by Minshall's rule.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/assert.h"
#include "stack/tcp/tcb.h"
#include "stack/tcp/unsent.h"

namespace vireo::tcp {

/// A small segment waits for the ACK of another that is in flight.
inline bool is_nagled(const Tcb& t) { return !t.nodelay && t.queue.board().snd_sml > t.snd_una; }

/// Bytes that can be appended to the unsent data while it stays less than a segment and waits only
/// for an ACK (or for the engine).
inline uint16_t find_nagle_room(Tcb& t) {
  if (t.snd_nxt >= t.snd_end || !t.terse || !(t.autocork || is_nagled(t))) return 0;
  const SendDesc& d = t.queue.back();
  if (d.packet == nullptr || d.offset != t.snd_max || d.packet->refs != 1) return 0;
  if (t.snd_max != t.snd_nxt || t.more || t.push || t.tlp_due || t.probe_due || t.keep_due ||
      t.searches_mtu || t.config->notsent_lowat != UINT32_MAX)
    return 0;
  const int64_t frame = int64_t{fits_frame(t, t.mss)} - 1 - d.length;
  const auto window = static_cast<int64_t>(t.snd_edge - t.snd_end);
  const int64_t buffer = int64_t{t.snd_buf} - static_cast<int64_t>(t.snd_end - t.snd_una);
  return static_cast<uint16_t>(
      std::clamp<int64_t>(std::min({frame, window, buffer}), 0, UINT16_MAX));
}

/// True if `n` bytes are known to join the waiting frame, and no ACK is due that would have to be
/// sent.
inline bool fits_nagled(Tcb& t, size_t n) {
  if (n - 1 >= t.nagle_room) return false;  // n == 0 wraps
  VIREO_DEBUG_ASSERT(t.nagle_room <= find_nagle_room(t));
  return t.acks_due == 0;
}
/// As fits_nagled(), but computes the room if it is unknown.
inline bool may_append_nagled(Tcb& t, size_t n) {
  if (n - 1 >= t.nagle_room) [[unlikely]]
    t.nagle_room = find_nagle_room(t);
  return fits_nagled(t, n);
}

/// The unsent data is less than a segment, and is held.
inline bool is_held_back(const Tcb& t) {
  return t.snd_end - t.snd_nxt < t.mss && (t.autocork || is_nagled(t)) &&
         t.recovery == Recovery::kOpen && t.rtx_due == 0;
}

/// Appends them. Requires may_append_nagled(). Causes no output and no timer.
inline void append_nagled(Tcb& t, const void* data, size_t n) {
  SendDesc& d = t.queue.back();
  PacketBuf& b = *d.packet;
  add_text(b, data, static_cast<uint32_t>(n));
  d.length = b.length;
  t.snd_end += n;
  t.nagle_room = static_cast<uint16_t>(t.nagle_room - n);
}

/// The `n` bytes appended last made it nearly a full segment: it will be sent soon.
inline bool is_nearly_full(const Tcb& t, size_t n) {
  constexpr size_t kNearly = 128;  // 256 and 512 measured worse on shm
  return t.nagle_room < kNearly && t.nagle_room + n >= kNearly;
}

/// Two writes of `bytes` fit in a segment.
inline bool is_small(const Tcb& t, size_t bytes) { return 2 * bytes <= t.mss; }

/// `on`: data of less than a segment is held until the engine ends it
/// (stack/engine/back_to_back.cpp).
inline void set_autocork(Tcb& t, bool on) {
  t.autocork = on;
  t.nagle_room = 0;
}

}  // namespace vireo::tcp
