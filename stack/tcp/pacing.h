// A bound on how fast one connection's payload leaves: each segment books its time on the wire, and
// the next waits for it. A late wake-up (a timer's tick, a busy thread) is caught up with, up to
// kCredit. Owner: a Tcb. Thread: holder of its engine's lock.
// Source: socket(7) SO_MAX_PACING_RATE; the credit is sch_fq's idea.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/clock.h"

namespace vireo::tcp {

class Pacer {
 public:
  static constexpr uint64_t kUnlimited = UINT64_MAX;
  static constexpr Duration kCredit = Duration::ms(1);

  /// Bytes a second; 0 is no bound, as on Linux.
  void set_rate(uint64_t rate) { rate_ = rate == 0 ? kUnlimited : rate; }
  uint64_t rate() const { return rate_; }
  bool is_on() const { return rate_ != kUnlimited; }
  /// When the next segment may leave.
  Instant next() const { return next_; }
  void spend(uint32_t bytes, Instant now) {
    const auto time = static_cast<unsigned __int128>(bytes) * 1'000'000'000 / rate_;
    constexpr uint64_t kMost = 3'600'000'000'000;
    const auto wait = static_cast<int64_t>(std::min<unsigned __int128>(time, kMost));
    next_ = std::max(next_, now - kCredit) + Duration::ns(wait);
  }

 private:
  uint64_t rate_ = kUnlimited;
  Instant next_;
};

}  // namespace vireo::tcp
