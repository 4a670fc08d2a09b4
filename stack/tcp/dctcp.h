// DCTCP's state: the marked fraction of the traffic. Owner: a CongestionControl. Thread: holder of
// its engine's lock. Source: RFC 8257 §3.3.
#pragma once

#include <cstdint>

#include "core/seq.h"

namespace vireo::tcp {

struct Dctcp {
  static constexpr double kGain = 1.0 / 16;  ///< g

  double alpha = 1;             ///< estimate of the marked fraction
  StreamOffset window_end = 0;  ///< WindowEnd; 0: no observation window yet
  uint32_t acked = 0;           ///< bytes acknowledged in this window
  uint32_t marked = 0;          ///< of these, acknowledged with ECE
};

}  // namespace vireo::tcp
