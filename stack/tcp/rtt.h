// Round-trip estimator and retransmission timeout, in nanoseconds.
// Owner: a Tcb. Thread: holder of its engine's lock. Source: RFC 6298 (alpha 1/8, beta 1/4, K 4);
// the caller applies Karn's rule to samples.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/clock.h"

namespace vireo::tcp {

struct RttEstimator {
  Duration srtt{};  ///< zero: no sample yet
  Duration rttvar{};
  Duration min_rtt{};  ///< smallest sample seen, zero: none
  Duration rto{};      ///< without backoff

  static constexpr Duration kGranularity = Duration::us(4);  ///< RFC 6298 G: a tick of the wheel

  void start(Duration initial) {
    srtt = rttvar = min_rtt = Duration{};
    rto = initial;
  }
  bool has_sample() const { return srtt > Duration{}; }

  /// RFC 6298 §2.2, §2.3. A sample below 1 us (same tick, loopback) counts as 1 us, so that a round
  /// trip is never zero, which would be a divisor.
  void sample(Duration r, Duration rto_min, Duration rto_max) {
    r = std::max(r, Duration::us(1));
    if (r < min_rtt || !has_sample()) min_rtt = r;
    if (!has_sample()) [[unlikely]] {
      srtt = r;
      rttvar = r / 2;
    } else {
      const Duration ahead = r - srtt;
      rttvar = rttvar + (Duration::ns(std::abs(ahead.ns())) - rttvar) / 4;
      srtt = srtt + ahead / 8;  // never below the smaller of the two
    }
    rto = timeout(rto_min, rto_max);
  }

  /// RFC 6298 §2.3. The margin is at least a quarter of the minimum (by default 50 ms, the time
  /// that a peer may delay its ACK): otherwise a long path with a steady round trip has random
  /// timeouts.
  Duration timeout(Duration rto_min, Duration rto_max) const {
    return std::clamp(srtt + std::max({kGranularity, rttvar * 4, rto_min / 4}), rto_min, rto_max);
  }

  /// RFC 6298 §5.5: doubled for each expiry, at most `rto_max`.
  Duration backed_off(unsigned times, Duration rto_max) const {
    Duration d = rto;
    while (times-- > 0 && d < rto_max) d = d * 2;
    return std::min(d, rto_max);
  }
};

}  // namespace vireo::tcp
