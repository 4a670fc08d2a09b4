// Segments of new data that leave at the same instant, planned as one: for a device that cuts them
// on the wire (TSO); elsewhere for a header that is built once.
//
// Nothing waits for a burst to fill: it is what the windows, the pacer and Nagle let go now, and on
// the wire the same segments as if each had been planned and sent by itself. The payload lies where
// append() put it, and each of the frames stays a descriptor of its own, with its own marks and
// times: what is sent again goes as before.
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
  static constexpr uint16_t kMostSlices = 64;

  uint32_t bytes;
  uint16_t segments;
  uint16_t slice_count;
  SegFlags last_flags;  ///< of the last segment
  PacketSlice slices[kMostSlices];

  /// What all of them say together: PSH and FIN are for the last, CWR for the first.
  SegFlags flags(const Plan& first) const { return first.flags | last_flags; }

  /// Calls fn(const Plan&) for each segment of the burst that `first` leads, as on the wire, until
  /// it says false.
  template <class F>
  void for_each(const Plan& first, F&& fn) const;
};

/// `plan` is what next_segment() just gave. @return true: more segments may leave behind it now,
/// and the burst of them is `b`; then sent_burst() commits it instead of sent(). False: it goes
/// alone. Changes nothing.
bool plan_burst(Tcb& t, const Plan& plan, const BurstLimits& most, Burst& b);
/// As sent() for one after the other.
void sent_burst(Tcb& t, const Plan& plan, const Burst& b, Instant now);

template <class F>
void Burst::for_each(const Plan& first, F&& fn) const {
  Plan p = first;
  const PacketSlice* slice = slices;
  unsigned of_slice = 0;
  for (uint32_t done = 0;;) {
    if (!fn(std::as_const(p))) return;
    done += p.length;
    if (done >= bytes) return;
    p.seq = p.seq + p.length;
    p.offset += p.length;
    p.at = static_cast<uint16_t>(p.at + p.length);
    of_slice += p.length;
    if (of_slice == slice->length) {  // a segment never lies in two
      p.packet = (++slice)->packet;
      p.at = slice->at;
      of_slice = 0;
    }
    p.length = static_cast<uint16_t>(std::min<uint32_t>(first.length, bytes - done));
    p.sum = p.packet->sum;
    p.sum_known = p.length == p.packet->length;
    p.flags &= ~SegFlags::kCwr;
    if (done + p.length == bytes) p.flags |= last_flags;
  }
}

}  // namespace vireo::tcp
