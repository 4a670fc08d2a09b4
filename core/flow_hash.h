// Keyed hash for tables whose keys remote hosts choose: SipHash (Aumasson, Bernstein 2012). 1-3 for
// tables, where only collisions must be unpredictable; 2-4 where the value is visible on the wire
// (ISN, cookies). Owner: none; the key belongs to the table. Thread: any.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/assert.h"

namespace vireo {

/// The secret of a table.
struct FlowHashKey {
  uint64_t k0 = 0;
  uint64_t k1 = 0;
  /// From the kernel (getrandom(2), waits for the first entropy after boot).
  static FlowHashKey random() noexcept {
    FlowHashKey k;
    VIREO_ASSERT(::syscall(SYS_getrandom, &k, sizeof k, 0) == sizeof k);
    return k;
  }
};

/// SipHash-c-d of `n` bytes.
template <int kRounds, int kFinalRounds>
inline uint64_t siphash(const FlowHashKey& key, const void* data, size_t n) noexcept {
  uint64_t v0 = key.k0 ^ 0x736f6d6570736575;
  uint64_t v1 = key.k1 ^ 0x646f72616e646f6d;
  uint64_t v2 = key.k0 ^ 0x6c7967656e657261;
  uint64_t v3 = key.k1 ^ 0x7465646279746573;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto* p = static_cast<const uint8_t*>(data);
  size_t left = n;
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t m;
    std::memcpy(&m, p, 8);
    v3 ^= m;
    rounds(kRounds);
    v0 ^= m;
  }
  uint64_t last = static_cast<uint64_t>(n) << 56;
  size_t i = 0;
  if (left >= 4) {  // all that remains of keys of whole words
    uint32_t word;
    std::memcpy(&word, p, 4);
    last |= word;
    i = 4;
  }
  for (; i < left; ++i) last |= uint64_t{p[i]} << (8 * i);
  v3 ^= last;
  rounds(kRounds);
  v0 ^= last;
  v2 ^= 0xff;
  rounds(kFinalRounds);
  return v0 ^ v1 ^ v2 ^ v3;
}

/// The hash of a table's key of `n` bytes without padding. All bits are equally random.
inline uint64_t flow_hash(const FlowHashKey& key, const void* data, size_t n) noexcept {
  return siphash<1, 3>(key, data, n);
}

}  // namespace vireo
