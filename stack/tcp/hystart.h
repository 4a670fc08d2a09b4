// HyStart++: leaves the first slow start when the round trip grows, before a queue overflows.
// If a round's minimum RTT is well above the last round's, slow start becomes conservative slow
// start (a quarter of the growth); after five such rounds congestion avoidance begins. If the RTT
// falls back, slow start resumes. Owner: a CongestionControl. Thread: holder of its engine's lock.
// Source: RFC 9406 and its constants; only for the first slow start (§4.3).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/clock.h"
#include "core/seq.h"

namespace vireo::tcp {

class HyStart {
 public:
  static constexpr uint32_t kMinThreshold = 4'000'000;  ///< MIN_RTT_THRESH, ns
  static constexpr uint32_t kMaxThreshold = 16'000'000;
  static constexpr uint32_t kDivisor = 8;  ///< MIN_RTT_DIVISOR
  static constexpr uint8_t kSamples = 8;   ///< N_RTT_SAMPLE
  static constexpr uint32_t kGrowthDivisor = 4;
  static constexpr uint8_t kRounds = 5;
  static constexpr uint32_t kLimit = 8;  ///< L: most segments that one ACK counts for, unpaced

  struct Step {
    uint32_t grow;  ///< bytes to add to cwnd
    bool leave;     ///< slow start is over: ssthresh = cwnd
  };

  /// `acked` bytes were acknowledged, up to `snd_una`. `rtt`: the ACK's sample, zero: none.
  Step on_ack(uint32_t acked, uint32_t mss, Duration rtt, StreamOffset snd_una,
              StreamOffset snd_nxt) {
    if (round_end_ == 0) round_end_ = snd_nxt;
    if (rtt > Duration{}) {
      this_min_ = std::min(this_min_, clamp(rtt));
      if (samples_ < kSamples) ++samples_;
    }
    if (samples_ == kSamples) judge();
    const uint32_t most = std::min(acked, kLimit * mss);
    Step s{is_conservative() ? most / kGrowthDivisor : most, false};
    if (snd_una >= round_end_) {
      round_end_ = snd_nxt;
      last_min_ = this_min_;
      this_min_ = kNone;
      samples_ = 0;
      if (is_conservative()) s.leave = ++css_rounds_ >= kRounds;
    }
    return s;
  }
  /// In conservative slow start.
  bool is_conservative() const { return baseline_ != kNone; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  static uint32_t clamp(Duration d) {
    return static_cast<uint32_t>(std::min<int64_t>(d.ns(), kNone - 1));
  }
  void judge() {
    if (is_conservative()) {
      if (this_min_ < baseline_) baseline_ = kNone;  // the rise was noise
      return;
    }
    if (last_min_ == kNone) return;
    const uint32_t threshold = std::clamp(last_min_ / kDivisor, kMinThreshold, kMaxThreshold);
    if (this_min_ < uint64_t{last_min_} + threshold) return;
    baseline_ = this_min_;
    css_rounds_ = 0;
  }

  StreamOffset round_end_ = 0;  ///< 0: no round yet
  uint32_t last_min_ = kNone;   ///< minimum RTT of the last round, ns
  uint32_t this_min_ = kNone;
  uint32_t baseline_ = kNone;  ///< RTT when the rise was detected
  uint8_t samples_ = 0;
  uint8_t css_rounds_ = 0;
};

}  // namespace vireo::tcp
