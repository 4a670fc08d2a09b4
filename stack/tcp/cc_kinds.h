// The algorithms behind cc.h, one file each. Private to cc*.cpp.
// Owner: a Tcb. Thread: holder of its engine's lock.
#pragma once

#include "stack/tcp/cc.h"

namespace vireo::tcp {

/// cwnd + bytes, within what the arithmetic holds.
inline void grow(CongestionControl& c, uint32_t bytes) {
  c.cwnd = std::min(c.cwnd + bytes, CongestionControl::kMaxWindow);
}

/// RFC 3465 §2.2, L = 2: an ACK that covers much (or many tiny ACKs that cover one segment) grows
/// the window by what was acknowledged, never by more than two segments.
inline void slow_start(CongestionControl& c, uint32_t acked, uint32_t mss) {
  grow(c, std::min(acked, 2 * mss));
}

/// RFC 5681 §3.1 congestion avoidance, byte counted: a segment for each window acknowledged.
void reno_avoid(CongestionControl& c, uint32_t acked, uint32_t mss);

/// RFC 9438 congestion avoidance. These three need Cubic alive.
void cubic_avoid(CongestionControl& c, const CcAck& a, Instant now);
/// Lowers ssthresh, remembers the plateau.
void cubic_on_congestion(CongestionControl& c, CcEvent e, uint32_t flight, uint32_t mss);
void cubic_undo(CongestionControl& c);

/// RFC 8257 §3.3: the marked fraction, once a window. These need Dctcp alive.
void dctcp_learn(CongestionControl& c, const CcAck& a);
void dctcp_on_congestion(CongestionControl& c, CcEvent e, uint32_t flight, uint32_t mss);

}  // namespace vireo::tcp
