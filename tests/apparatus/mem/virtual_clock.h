// Time that moves only when a test says so.
// Owner: the test or simulator. Thread: one.
#pragma once

#include "core/assert.h"
#include "core/clock.h"

namespace vireo {

class VirtualClock {
 public:
  VirtualClock() = default;
  explicit VirtualClock(Instant start) : now_(start) {}
  Instant now() const { return now_; }
  void advance(Duration d) { advance_to(now_ + d); }
  void advance_to(Instant t) {
    VIREO_ASSERT(t >= now_);
    now_ = t;
  }

 private:
  Instant now_ = Instant::from_ns(1'000'000'000);  ///< not 0, so that "long ago" stays in the past
};

}  // namespace vireo
