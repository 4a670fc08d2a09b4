// Random numbers that replay exactly: xoshiro256** seeded through splitmix64 (Blackman and Vigna,
// public domain algorithms). Not for secrets. Owner: whoever draws. Thread: one.
#pragma once

#include <bit>
#include <cstdint>

namespace vireo {

/// One step of splitmix64: a well-mixed function of `x`, for seeds.
constexpr uint64_t splitmix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Prng {
 public:
  constexpr explicit Prng(uint64_t seed) {
    for (uint64_t& word : s_) word = seed = splitmix64(seed);
  }
  constexpr uint64_t next() {
    const uint64_t result = std::rotl(s_[1] * 5, 7) * 9;
    const uint64_t t = s_[1] << 17;
    s_[2] ^= s_[0];
    s_[3] ^= s_[1];
    s_[1] ^= s_[2];
    s_[0] ^= s_[3];
    s_[2] ^= t;
    s_[3] = std::rotl(s_[3], 45);
    return result;
  }
  /// Uniform in [0, n), n > 0.
  constexpr uint64_t below(uint64_t n) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(next()) * n >> 64);
  }
  /// True with probability `p`.
  constexpr bool chance(double p) { return static_cast<double>(next() >> 11) * 0x1p-53 < p; }

 private:
  uint64_t s_[4] = {};
};

}  // namespace vireo
