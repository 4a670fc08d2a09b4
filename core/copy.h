// Copies of small messages. Owner: none. Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vireo {

/// memcpy() of `n` bytes, n > 0; up to 16 bytes without a call.
inline void copy_message(void* to, const void* from, size_t n) noexcept {
  auto* const d = static_cast<std::byte*>(to);
  const auto* const s = static_cast<const std::byte*>(from);
  const auto both_ends = [&]<class Word>(Word first) {  // which may overlap
    Word last;
    std::memcpy(&first, s, sizeof first);
    std::memcpy(&last, s + n - sizeof last, sizeof last);
    std::memcpy(d, &first, sizeof first);
    std::memcpy(d + n - sizeof last, &last, sizeof last);
  };
  if (n > 2 * sizeof(uint64_t))
    std::memcpy(d, s, n);
  else if (n >= sizeof(uint64_t))
    both_ends(uint64_t{});
  else if (n >= sizeof(uint32_t))
    both_ends(uint32_t{});
  else if (n > 1)
    both_ends(uint16_t{});
  else
    *d = *s;
}

}  // namespace vireo
