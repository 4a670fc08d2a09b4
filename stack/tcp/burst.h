// Plans several segments of new data that leave at the same instant as one burst: for a device that
// cuts them on the wire (TSO); elsewhere so that their header is built once.
//
// Nothing waits for a burst to fill: it is what the windows, the pacer and Nagle's algorithm allow
// now. On the wire the segments are the same as if each had been planned and sent by itself. The
// payload lies where append() put it, and each frame stays a descriptor of its own, with its own
// marks and times: retransmissions go as before.
// Owner: a Tcb. Thread: holder of its engine's lock. Source: RFC 9293 §3.8; Linux's
// tcp_tso_autosize() for paced connections.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/clock.h"
#include "core/packet.h"
#include "stack/tcp/tcp.h"

namespace vireo::tcp {

/// What one frame of a device may hold.
struct BurstLimits {
  uint32_t bytes = 0;   ///< of payload
  uint16_t slices = 0;  ///< of packets
  uint16_t segments = 0;
};

/// `segments` of Plan::length bytes each, but for the last, which may have less.
struct Burst {
  static constexpr uint16_t kMaxSlices = 64;

  uint32_t bytes;
  uint16_t segments;
  uint16_t slice_count;
  SegFlags last_flags;  ///< of the last segment
  PacketSlice slices[kMaxSlices];

  /// What one of them has of its own; the rest is as the first Plan says.
  struct Segment {
    PacketSlice text;
    uint32_t from;  ///< bytes of the burst before it
    SegFlags flags;
  };

  /// What all of them say together: PSH and FIN are for the last, CWR for the first.
  SegFlags flags(const Plan& first) const { return first.flags | last_flags; }

  /// Calls fn(const Segment&) for each segment of the burst that `first` leads, as on the wire,
  /// until it says false.
  template <class F>
  void for_each(const Plan& first, F&& fn) const;
  /// As next_segment() would have said it.
  Plan plan(const Plan& first, const Segment& s) const;
};

/// `plan` is what next_segment() just gave. @return true: more segments may leave behind it now,
/// and the burst of them is `b`; then sent_burst() commits it instead of sent(). False: it goes
/// alone. Changes nothing.
bool plan_burst(Tcb& t, const Plan& plan, const BurstLimits& most, Burst& b);
/// The first `segments` of it left: as sent() for one after the other.
void sent_burst(Tcb& t, const Plan& plan, const Burst& b, unsigned segments, Instant now);

template <class F>
void Burst::for_each(const Plan& first, F&& fn) const {
  Segment s{slices[0], 0, first.flags};
  uint32_t of_slice = 0;
  for (const PacketSlice* slice = slices;;) {
    s.text.length = static_cast<uint16_t>(std::min<uint32_t>(first.length, bytes - s.from));
    const uint32_t end = s.from + s.text.length;
    if (end == bytes) s.flags |= last_flags;
    if (!fn(std::as_const(s)) || end == bytes) return;
    s.from = end;
    s.flags &= ~SegFlags::kCwr;
    of_slice += s.text.length;
    if (of_slice == slice->length) {  // a segment never lies in two
      s.text.packet = (++slice)->packet;
      s.text.at = slice->at;
      of_slice = 0;
    } else {
      s.text.at = static_cast<uint16_t>(s.text.at + s.text.length);
    }
  }
}

}  // namespace vireo::tcp
