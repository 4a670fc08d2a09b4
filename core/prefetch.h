// What was not used for a while is a miss of the cache for each of its lines: they come at once.
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

}  // namespace vireo
