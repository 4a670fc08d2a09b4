// What the tests of many connections measure by. Owner: none. Thread: any.
#pragma once

#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace vireo::test {

/// Do counts and pages say anything? Debug assertions walk whole tables, sanitizers have memory of
/// their own.
#ifdef VIREO_DEBUG
inline constexpr bool kIsMeasured = false;
#else
inline constexpr bool kIsMeasured = true;
#endif

/// Bytes that malloc has given out.
inline size_t heap() {
  const auto m = ::mallinfo2();
  return m.uordblks + m.hblkhd;
}

/// Bytes of this process in memory: all that it touched, the heap's and what it mapped itself.
inline size_t resident() {
  size_t total = 0, pages = 0;
  if (FILE* f = std::fopen("/proc/self/statm", "r"); f != nullptr) {
    if (std::fscanf(f, "%zu %zu", &total, &pages) != 2) pages = 0;
    std::fclose(f);
  }
  return pages * 4096;
}

inline int64_t cpu_ns() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

/// How many connections, by VIREO_SCALE.
inline uint32_t scale(uint32_t ordinary) {
  const char* const wish = std::getenv("VIREO_SCALE");
  return wish == nullptr ? ordinary : static_cast<uint32_t>(std::atol(wish));
}

}  // namespace vireo::test
