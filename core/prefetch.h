// Prefetches the cache lines of an object that was not used for a while, or was used by another
// core: the misses then overlap. Owner: none. Thread: any.
#pragma once

#include <cstddef>

namespace vireo {

/// All lines of `t` but the first, which the caller is about to look at.
template <class T>
[[gnu::always_inline]] inline void prefetch_rest(const T& t) noexcept {
  const auto* const begin = reinterpret_cast<const std::byte*>(&t);
#pragma GCC unroll 16
  for (size_t line = 64; line < sizeof(T); line += 64) __builtin_prefetch(begin + line);
}

/// The line at `p`, out of another core's cache: it is about to be written.
[[gnu::always_inline]] inline void prefetch_for_writing(std::byte* p) noexcept {
#ifdef __x86_64__
  // By hand: without -mprfchw the builtin fetches it for reading, a transfer that is done twice.
  asm volatile("prefetchw %0" : : "m"(*p));
#else
  __builtin_prefetch(p, 1);
#endif
}

}  // namespace vireo
