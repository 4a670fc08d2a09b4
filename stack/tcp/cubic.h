// CUBIC's own state: the curve of the current congestion avoidance stage.
//
//   W(t) = C (t - K)^3 + W_max         C = 0.4 segments/s^3, K: time to climb back to W_max
//
// Beside it runs what Reno would have (w_est), and cwnd follows the larger. Double arithmetic: one
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

  Instant epoch;     ///< when the stage began, time with nothing to send left out; zero: not begun
  Instant last_ack;  ///< the latest that moved the window
  double w_est = 0;  ///< bytes
  float k = 0;       ///< seconds
  float fraction = 0;        ///< of a byte, that cwnd has grown besides
  uint32_t w_max = 0;        ///< bytes; 0: unknown
  uint32_t prior_w_max = 0;  ///< before the latest episode
};

}  // namespace vireo::tcp
