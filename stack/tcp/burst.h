// Plans several segments of new data that are sent together as one burst: a device with TSO splits
// it; for others the header is built once.
//
// Nothing waits for a burst to fill: it is what the windows, the pacer and Nagle's algorithm allow
// now. The segments on the wire are the same as if each had been planned and sent alone. The
// payload stays where append() put it, and each frame keeps its own descriptor, marks and times, so
// retransmission does not change.
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

/// Limits of one frame of a device.
struct BurstLimits {
  uint32_t bytes = 0;   ///< of payload
  uint16_t slices = 0;  ///< of packets
  uint16_t segments = 0;
};

/// `segments` segments of Plan::length bytes each; the last may be shorter.
struct Burst {
  static constexpr uint16_t kMaxSlices = 64;

  uint32_t bytes;
  uint16_t segments;
  uint16_t slice_count;
  SegFlags last_flags;  ///< of the last segment
  PacketSlice slices[kMaxSlices];

  /// The fields in which a segment differs from the first Plan.
  struct Segment {
    PacketSlice text;
    uint32_t from;  ///< bytes of the burst before it
    SegFlags flags;
  };

  /// Flags of the whole burst: PSH and FIN apply to the last segment, CWR to the first.
  SegFlags flags(const Plan& first) const { return first.flags | last_flags; }

  /// Calls fn(const Segment&) for each segment of the burst that `first` leads, in wire order,
  /// until it returns false.
  template <class F>
  void for_each(const Plan& first, F&& fn) const;
  /// The Plan that next_segment() would have returned for it.
  Plan plan(const Plan& first, const Segment& s) const;
};

/// `plan` was just returned by next_segment(). @return true: more segments may leave with it now,
/// `b` is the burst, and sent_burst() commits it instead of sent(). False: it is sent alone.
/// Changes nothing.
bool plan_burst(Tcb& t, const Plan& plan, const BurstLimits& most, Burst& b);
/// The first `segments` of it were sent: as sent() for each of them.
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
    if (of_slice == slice->length) {  // a segment never spans two slices
      s.text.packet = (++slice)->packet;
      s.text.at = slice->at;
      of_slice = 0;
    } else {
      s.text.at = static_cast<uint16_t>(s.text.at + s.text.length);
    }
  }
}

}  // namespace vireo::tcp
