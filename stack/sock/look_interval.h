// How often the helper's thread looks at what the kernel tells nobody of: each 20 ms, more rarely
// if the looks would take more than 0.5% of a processor. Owner: one look. Thread: its own.
#pragma once

#include <time.h>

#include <algorithm>

#include "core/clock.h"

namespace vireo {

class LookInterval {
 public:
  /// From the begin of this look to the next one.
  Duration next() const {
    constexpr Duration kLeast = Duration::ms(20), kMost = Duration::s(1);
    constexpr int64_t kPart = 200;
    return std::clamp((used() - begin_) * kPart, kLeast, kMost);
  }

 private:
  /// Of the processor, by this thread.
  static Duration used() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return Duration::s(t.tv_sec) + Duration::ns(t.tv_nsec);
  }

  Duration begin_ = used();
};

}  // namespace vireo
