// Time stamps that cost a few nanoseconds: the time-stamp counter, its rate measured against
// CLOCK_MONOTONIC. Thread: any.
#pragma once

#include <x86intrin.h>

#include <cstdint>
#include <ctime>

namespace plain {

inline uint64_t ticks() { return __rdtsc(); }

inline uint64_t monotonic_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

/// Rate of the counter. The longer ago it was made, the better it knows.
class TickRate {
 public:
  /// Takes 5 ms.
  TickRate() {
    while (monotonic_ns() - ns_ < 5'000'000) {
    }
    at_first_ = ns_per_tick();
  }
  double ns_per_tick() const {
    return static_cast<double>(monotonic_ns() - ns_) / static_cast<double>(ticks() - ticks_);
  }
  uint64_t of_seconds(double seconds) const {
    return static_cast<uint64_t>(seconds * 1e9 / at_first_);
  }

 private:
  uint64_t ticks_ = ticks();
  uint64_t ns_ = monotonic_ns();
  double at_first_ = 1;
};

}  // namespace plain
