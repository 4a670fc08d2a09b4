// CUBIC's own state: the curve of the current congestion avoidance stage.
//
//   W(t) = C (t - K)^3 + W_max         C = 0.4 segments/s^3, K: time to climb back to W_max
//
// w_est is Reno's window at the same time; cwnd follows the larger of both. Double arithmetic: one
// cube and one division an ACK, a cube root a stage. Owner: a CongestionControl. Thread: holder of
// its engine's lock. Source: RFC 9438.
#pragma once

#include <cstdint>

#include "core/clock.h"

namespace vireo::tcp {

struct Cubic {
  static constexpr double kC = 0.4;
  static constexpr double kBeta = 0.7;
  static constexpr double kBetaEcn = 0.85;  ///< RFC 8511 §3
  static constexpr double kAlpha = 3 * (1 - kBeta) / (1 + kBeta);

  Instant epoch;             ///< when the stage began, less idle time; zero: not begun
  Instant last_ack;          ///< the latest ACK that changed the window
  double w_est = 0;          ///< bytes
  float k = 0;               ///< seconds
  float fraction = 0;        ///< fraction of a byte by which cwnd has grown, too
  uint32_t w_max = 0;        ///< bytes; 0: unknown
  uint32_t prior_w_max = 0;  ///< before the latest congestion episode
};

}  // namespace vireo::tcp
