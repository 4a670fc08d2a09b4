// Congestion control: a small state and a switch over the algorithms (not virtual: the choice is
// one predicted branch). Windows are in bytes. Owner: a Tcb. Thread: holder of its engine's lock.
// Source: RFC 5681, RFC 3465 (byte counting, L = 2), RFC 6928 (initial window).
#pragma once

#include <cstdint>

namespace vireo::tcp {

enum class CcKind : uint8_t { kNewReno };

struct CongestionControl {
  uint32_t cwnd = 0;
  uint32_t ssthresh = 0;
  uint32_t acked = 0;  ///< bytes acknowledged since cwnd last grew, in congestion avoidance
  CcKind kind = CcKind::kNewReno;
};

/// The connection is established; `mss` payload bytes a segment. `syn_lost`: RFC 5681 §3.1, one
/// segment.
void cc_start(CongestionControl& c, uint32_t mss, bool syn_lost);
/// `bytes` of new data acknowledged outside of recovery while the window was in full use.
void cc_on_ack(CongestionControl& c, uint32_t bytes, uint32_t mss);
/// A loss seen by duplicate ACKs with `flight` bytes outstanding: lowers ssthresh.
void cc_on_loss(CongestionControl& c, uint32_t flight, uint32_t mss);
/// The retransmission timer expired. `first`: not a repeat for the same data (RFC 5681 §3.1: a
/// repeat leaves ssthresh).
void cc_on_timeout(CongestionControl& c, uint32_t flight, uint32_t mss, bool first);
/// Nothing was sent for a retransmission timeout (RFC 5681 §4.1 restart window).
void cc_on_idle(CongestionControl& c, uint32_t mss);

/// RFC 6928 §2: min(10 MSS, max(2 MSS, 14600)).
constexpr uint32_t initial_window(uint32_t mss) {
  const uint32_t ten = 10 * mss;
  const uint32_t floor = 2 * mss > 14600 ? 2 * mss : 14600;
  return ten < floor ? ten : floor;
}

}  // namespace vireo::tcp
