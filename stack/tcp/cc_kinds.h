// The algorithms of cc.h, one file each. Private to cc*.cpp.
// Owner: a Tcb. Thread: holder of its engine's lock.
#pragma once

#include "stack/tcp/cc.h"

namespace vireo::tcp {

/// Adds bytes to cwnd, up to kMaxWindow, which the arithmetic can hold.
inline void grow(CongestionControl& c, uint32_t bytes) {
  c.cwnd = std::min(c.cwnd + bytes, CongestionControl::kMaxWindow);
}

/// RFC 3465 §2.2, L = 2: an ACK grows the window by the bytes that it acknowledges, by two segments
/// at most.
inline void slow_start(CongestionControl& c, uint32_t acked, uint32_t mss) {
  grow(c, std::min(acked, 2 * mss));
}

/// RFC 5681 §3.1 congestion avoidance, by bytes: one segment per acknowledged window.
void reno_avoid(CongestionControl& c, uint32_t acked, uint32_t mss);

/// RFC 9438 congestion avoidance. These three require Cubic as the active member.
void cubic_avoid(CongestionControl& c, const CcAck& a, Instant now);
/// Lowers ssthresh, saves W_max.
void cubic_on_congestion(CongestionControl& c, CcEvent e, uint32_t flight, uint32_t mss);
void cubic_undo(CongestionControl& c);

/// RFC 8257 §3.3: updates the marked fraction once a window. These require Dctcp as the active
/// member.
void dctcp_learn(CongestionControl& c, const CcAck& a);
void dctcp_on_congestion(CongestionControl& c, CcEvent e, uint32_t flight, uint32_t mss);

}  // namespace vireo::tcp
