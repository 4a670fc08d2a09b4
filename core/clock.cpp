#include "core/clock.h"

#include <cpuid.h>

namespace vireo {
namespace {

bool tsc_is_invariant() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
}

struct Sample {
  Ticks ticks;
  int64_t ns;
};

/// Takes the pair of readings with the least uncertainty out of a few tries: an interrupt between
/// the reads would skew one.
Sample sample() {
  Sample best{};
  Ticks best_gap = ~Ticks{0};
  for (int i = 0; i < 8; ++i) {
    const Ticks before = __builtin_ia32_rdtsc();
    const int64_t ns = Clock::now_from_kernel().ns();
    const Ticks after = __builtin_ia32_rdtsc();
    if (after - before < best_gap) {
      best_gap = after - before;
      best = {before + (after - before) / 2, ns};
    }
  }
  return best;
}

}  // namespace

void Clock::calibrate() {
  if (use_tsc_ || !tsc_is_invariant()) return;
  const Sample first = sample();
  Sample last = first;
  while (last.ns - first.ns < 1'000'000) last = sample();
  const auto ns = static_cast<unsigned __int128>(last.ns - first.ns);
  mult_ = static_cast<uint64_t>((ns << 32) / (last.ticks - first.ticks));
  base_ticks_ = first.ticks;
  base_ns_ = first.ns;
  use_tsc_ = true;
}

}  // namespace vireo
