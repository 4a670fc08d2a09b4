// Prefetches the cache lines of an object that was not used for a while, or was used by another
// core: the misses then overlap. Owner: none. Thread: any.
#pragma once

#include <cstddef>

namespace vireo {

/// All lines of `t` but the first, which the caller reads next.
template <class T>
[[gnu::always_inline]] inline void prefetch_rest(const T& t) noexcept {
  const auto* const begin = reinterpret_cast<const std::byte*>(&t);
#pragma GCC unroll 16
  for (size_t line = 64; line < sizeof(T); line += 64) __builtin_prefetch(begin + line);
}

/// The line at `p`, which may be in another core's cache, for writing.
[[gnu::always_inline]] inline void prefetch_for_writing(std::byte* p) noexcept {
#ifdef __x86_64__
  // Without -mprfchw the builtin prefetches for reading, and the line is transferred twice.
  asm volatile("prefetchw %0" : : "m"(*p));
#else
  __builtin_prefetch(p, 1);
#endif
}

}  // namespace vireo
