// Computes the receive window that we advertise.
// Owner: a Tcb. Thread: holder of its engine's lock. Source: RFC 9293 §3.8.6.2.2, RFC 7323 §2.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stack/tcp/tcb.h"

namespace vireo::tcp {

/// Bytes from rcv_nxt that the receive buffer allows now; the edge may be left of rcv_adv.
inline uint64_t receive_room(const Tcb& t) {
  uint64_t room = t.rcv_buf;
  if (!t.recv_queue.empty()) {
    const uint32_t queued = t.recv_queue.bytes();
    room = room > queued ? room - queued : 0;
    // Frames pinned by small payloads count, too: the window closes when frames take twice the
    // buffer.
    if (t.pool != nullptr &&
        uint64_t{t.recv_queue.buffers()} * t.pool->frame_bytes() >= 2ULL * t.rcv_buf) [[unlikely]]
      room = 0;
  }
  room = std::min(room, uint64_t{65535} << t.rcv_wscale);  // maximum of the field
  if (t.config->window_clamp != 0) [[unlikely]]
    room = std::min<uint64_t>(room, t.config->window_clamp);
  if (t.pool != nullptr && t.pool->window_share() != PacketPool::kNoShare) [[unlikely]]
    room = std::min(room, uint64_t{t.pool->window_share()} * t.path_mss);
  return room;
}

/// Window field for a segment sent now (not for a SYN).
[[gnu::always_inline]] inline uint16_t window_field(const Tcb& t) {
  // RFC 9293 §3.8.6.2.2: the edge advances by a segment or half the buffer, or not at all.
  VIREO_DEBUG_ASSERT(t.rcv_adv >= t.rcv_nxt);
  const uint64_t keep = t.rcv_adv - t.rcv_nxt;
  const uint64_t room = receive_room(t);
  const uint64_t step = std::min<uint32_t>(t.path_mss, t.rcv_buf / 2);
  const uint64_t unit = 1ULL << t.rcv_wscale;
  uint64_t field = keep >> t.rcv_wscale;
  // Rounding must not move the advertised edge left, so round up. Small segments would then move it
  // past the buffer one unit at a time, so by one unit at most. RFC 7323 §2.4 lets the peer see an
  // edge that falls back by less than a unit; we still accept what was advertised.
  if (room < keep + step) [[likely]] {
    const uint64_t rest = keep & (unit - 1);
    if (rest != 0 && keep - rest < room) ++field;
  } else {
    field = room >> t.rcv_wscale;
    if (field * unit < keep) ++field;  // by less than a unit
  }
  VIREO_DEBUG_ASSERT(field <= 65535);  // neither `room` nor `keep` exceeds the field's maximum
  return static_cast<uint16_t>(field);
}

}  // namespace vireo::tcp
