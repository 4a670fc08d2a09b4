// In sanitizer builds only: yields the processor at random where two threads rarely race, so that a
// test finds in seconds what otherwise takes days. Owner: none. Thread: any.
#pragma once

#ifdef VIREO_DEBUG
#include <sched.h>

#include <cstdint>
#endif

namespace vireo {

inline void yield_point() noexcept {
#ifdef VIREO_DEBUG
  static thread_local uint32_t seed = 1;
  seed = seed * 1'664'525 + 1'013'904'223;
  if (seed >> 30 != 0) return;  // one in four
  for (uint32_t i = seed >> 28; i != UINT32_MAX; --i) ::sched_yield();
#endif
}

}  // namespace vireo
