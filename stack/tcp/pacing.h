// Limits the rate of one connection's payload: each segment reserves its transmission time, and the
// next waits until then. A late wake-up (a timer's tick, a busy thread) is compensated, up to
// kCredit. Owner: a Tcb. Thread: holder of its engine's lock.
// Source: socket(7) SO_MAX_PACING_RATE; the credit is sch_fq's idea.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/clock.h"

namespace vireo::tcp {

class Pacer {
 public:
  static constexpr Duration kCredit = Duration::ms(1);

  /// True if `rate`, in bytes a second, is a limit. 0 is none, as on Linux.
  static bool is_bound(uint64_t rate) { return rate != 0 && rate != UINT64_MAX; }
  /// When the next segment may be sent.
  Instant next() const { return next_; }
  void spend(uint32_t bytes, uint64_t rate, Instant now) {
    const auto time = static_cast<unsigned __int128>(bytes) * 1'000'000'000 / rate;
    constexpr uint64_t kMax = 3'600'000'000'000;
    const auto wait = static_cast<int64_t>(std::min<unsigned __int128>(time, kMax));
    next_ = std::max(next_, now - kCredit) + Duration::ns(wait);
  }

 private:
  Instant next_;
};

}  // namespace vireo::tcp
