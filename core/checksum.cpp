#include "core/checksum.h"

#include <immintrin.h>

namespace vireo::checksum {
namespace {

using detail::halves;
using detail::load;

/// The rest, fewer bytes than a vector, at an even offset.
template <bool kCopy>
inline uint64_t tail(std::byte* dst, const std::byte* src, size_t n) {
  uint64_t s = 0;
  size_t at = 0;
  for (; at + 8 <= n; at += 8) {
    const auto v = load<uint64_t>(src + at);
    if constexpr (kCopy) std::memcpy(dst + at, &v, 8);
    s += halves(v);
  }
  return s + halves(detail::small<kCopy>(kCopy ? dst + at : nullptr, src + at, n - at));
}

template <bool kCopy>
inline Sum portable(std::byte* dst, const std::byte* src, size_t n) {
  unsigned long long s = 0;
  unsigned char carry = 0;
  size_t at = 0;
  for (; at + 32 <= n; at += 32) {  // one chain of add-with-carry
    unsigned long long v[4];
    std::memcpy(v, src + at, 32);
    if constexpr (kCopy) std::memcpy(dst + at, v, 32);
    for (const unsigned long long x : v) carry = _addcarry_u64(carry, s, x, &s);
  }
  return fold(halves(s) + carry + tail<kCopy>(kCopy ? dst + at : nullptr, src + at, n - at));
}

// Each 32-bit word is added to a 64-bit lane, even and odd words separately: no carry is lost below
// 2^32 vectors.
template <bool kCopy>
[[gnu::target("avx2")]] inline Sum avx2(std::byte* dst, const std::byte* src, size_t n) {
  const __m256i low = _mm256_set1_epi64x(0xffffffff);
  __m256i even = _mm256_setzero_si256();
  __m256i odd = _mm256_setzero_si256();
  __m256i even2 = _mm256_setzero_si256();
  __m256i odd2 = _mm256_setzero_si256();
  size_t at = 0;
  for (; at + 64 <= n; at += 64) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + at));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + at + 32));
    if constexpr (kCopy) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + at), a);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + at + 32), b);
    }
    even = _mm256_add_epi64(even, _mm256_and_si256(a, low));
    odd = _mm256_add_epi64(odd, _mm256_srli_epi64(a, 32));
    even2 = _mm256_add_epi64(even2, _mm256_and_si256(b, low));
    odd2 = _mm256_add_epi64(odd2, _mm256_srli_epi64(b, 32));
  }
  const __m256i all = _mm256_add_epi64(_mm256_add_epi64(even, odd), _mm256_add_epi64(even2, odd2));
  const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  const uint64_t s = static_cast<uint64_t>(_mm_cvtsi128_si64(two)) +
                     static_cast<uint64_t>(_mm_extract_epi64(two, 1));
  return fold(s + tail<kCopy>(kCopy ? dst + at : nullptr, src + at, n - at));
}

/// The shift in its masked form: GCC 12 warns inside its own unmasked one (an undefined register by
/// design).
[[gnu::target("avx512f,avx512bw")]] inline __m512i high_half(__m512i v) {
  return _mm512_maskz_srli_epi64(0xff, v, 32);
}

template <bool kCopy>
[[gnu::target("avx512f,avx512bw")]] inline Sum avx512(std::byte* dst, const std::byte* src,
                                                      size_t n) {
  const __m512i low = _mm512_set1_epi64(0xffffffff);
  __m512i even = _mm512_setzero_si512();
  __m512i odd = _mm512_setzero_si512();
  __m512i even2 = _mm512_setzero_si512();
  __m512i odd2 = _mm512_setzero_si512();
  size_t at = 0;
  for (; at + 128 <= n; at += 128) {
    const __m512i a = _mm512_loadu_si512(src + at);
    const __m512i b = _mm512_loadu_si512(src + at + 64);
    if constexpr (kCopy) {
      _mm512_storeu_si512(dst + at, a);
      _mm512_storeu_si512(dst + at + 64, b);
    }
    even = _mm512_add_epi64(even, _mm512_and_si512(a, low));
    odd = _mm512_add_epi64(odd, high_half(a));
    even2 = _mm512_add_epi64(even2, _mm512_and_si512(b, low));
    odd2 = _mm512_add_epi64(odd2, high_half(b));
  }
  while (at < n) {  // the rest under a mask: no byte loop
    const size_t left = n - at;
    const __mmask64 mask = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    const __m512i a = _mm512_maskz_loadu_epi8(mask, src + at);
    if constexpr (kCopy) _mm512_mask_storeu_epi8(dst + at, mask, a);
    even = _mm512_add_epi64(even, _mm512_and_si512(a, low));
    odd = _mm512_add_epi64(odd, high_half(a));
    at += 64;
  }
  const __m512i all = _mm512_add_epi64(_mm512_add_epi64(even, odd), _mm512_add_epi64(even2, odd2));
  alignas(64) uint64_t lanes[8];  // GCC 12 warns inside its own _mm512_reduce_add_epi64
  _mm512_store_si512(lanes, all);
  uint64_t s = 0;
  for (const uint64_t lane : lanes) s += lane;
  return fold(s);
}

Sum sum_portable(const void* p, size_t n) noexcept {
  return portable<false>(nullptr, static_cast<const std::byte*>(p), n);
}
Sum copy_portable(void* d, const void* s, size_t n) noexcept {
  return portable<true>(static_cast<std::byte*>(d), static_cast<const std::byte*>(s), n);
}
[[gnu::target("avx2")]] Sum sum_avx2(const void* p, size_t n) noexcept {
  return avx2<false>(nullptr, static_cast<const std::byte*>(p), n);
}
[[gnu::target("avx2")]] Sum copy_avx2(void* d, const void* s, size_t n) noexcept {
  return avx2<true>(static_cast<std::byte*>(d), static_cast<const std::byte*>(s), n);
}
[[gnu::target("avx512f,avx512bw")]] Sum sum_avx512(const void* p, size_t n) noexcept {
  return avx512<false>(nullptr, static_cast<const std::byte*>(p), n);
}
[[gnu::target("avx512f,avx512bw")]] Sum copy_avx512(void* d, const void* s, size_t n) noexcept {
  return avx512<true>(static_cast<std::byte*>(d), static_cast<const std::byte*>(s), n);
}

}  // namespace

namespace detail {

constinit SumFn sum_large = sum_portable;
constinit CopyFn copy_large = copy_portable;

bool use_kernel(Kernel k) noexcept {
  __builtin_cpu_init();
  switch (k) {
    case Kernel::kPortable:
      sum_large = sum_portable;
      copy_large = copy_portable;
      return true;
    case Kernel::kAvx2:
      if (!__builtin_cpu_supports("avx2")) return false;
      sum_large = sum_avx2;
      copy_large = copy_avx2;
      return true;
    case Kernel::kAvx512:
      if (!__builtin_cpu_supports("avx512bw")) return false;
      sum_large = sum_avx512;
      copy_large = copy_avx512;
      return true;
  }
  return false;
}

namespace {
/// Before main(), in one thread. A caller that runs earlier still gets right sums from the portable
/// kernel.
[[gnu::constructor]] void choose_kernel() {
  if (!use_kernel(Kernel::kAvx512) && !use_kernel(Kernel::kAvx2)) use_kernel(Kernel::kPortable);
}
}  // namespace

}  // namespace detail

}  // namespace vireo::checksum
