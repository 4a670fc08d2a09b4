// Internet checksum (RFC 1071): 16-bit ones' complement sums, combined with the copy.
//
// A Sum is a partial sum of 16-bit words in memory order, not complemented: ones' complement is
// independent of byte order, so only host integers are swapped (word()). Sums are added with plain
// `+`, and up to 2^16 folded sums fit before the next fold. 0 and 0xffff are the same value. Owner:
// none. Thread: any. Below 128 bytes all code is inline; above, it is one call that uses the
// processor's widest vectors.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/address.h"
#include "core/byteorder.h"

namespace vireo::checksum {

using Sum = uint32_t;

/// Folds to 16 bits with end-around carry; zero only for zero.
constexpr Sum fold(uint64_t s) noexcept {
  s += std::rotr(s, 32);  // the upper half is both halves and the carry of the lower one
  auto half = static_cast<uint32_t>(s >> 32);
  half += std::rotr(half, 16);
  return half >> 16;
}
/// Ones' complement sum of unfolded sums, with end-around carry; zero only for zeros.
constexpr uint64_t add(uint64_t a, uint64_t b) noexcept {
  a += b;
  return a + static_cast<uint64_t>(a < b);
}

/// The checksum field for a sum over all words that it covers (the field itself counted as zero).
constexpr be16 finish(uint64_t s) noexcept {
  return std::bit_cast<be16>(static_cast<uint16_t>(~fold(s)));
}
/// As above for UDP, where a computed zero is sent as all ones (RFC 768).
constexpr be16 finish_udp(uint64_t s) noexcept {
  const auto v = static_cast<uint16_t>(~fold(s));
  return std::bit_cast<be16>(v == 0 ? uint16_t{0xffff} : v);
}
/// True if a sum over all words with the checksum field is right: values that fold to 0xffff are
/// its multiples.
constexpr bool is_good(uint64_t s) noexcept { return s % 0xffff == 0 && s != 0; }

/// Sum of a host integer stored as a 16-bit big-endian field.
constexpr Sum word(uint16_t host) noexcept { return std::byteswap(host); }

/// The sum of the concatenation: `next` covers the bytes after `first`; `odd`: `first` covers an
/// odd number of bytes.
constexpr Sum combine(Sum first, Sum next, bool odd) noexcept {
  next = fold(next);
  return fold(first + (odd ? std::byteswap(static_cast<uint16_t>(next)) : next));
}

namespace detail {
using SumFn = Sum (*)(const void* data, size_t n) noexcept;
using CopyFn = Sum (*)(void* dst, const void* src, size_t n) noexcept;
// Set once before main() to the best for this processor; portable until then. Requires n >=
// kInlineBytes.
extern SumFn sum_large;
extern CopyFn copy_large;

enum class Kernel : uint8_t { kPortable, kAvx2, kAvx512 };
/// Switches to `k` if the processor has it; for tests and benchmarks, while no other thread sums.
bool use_kernel(Kernel k) noexcept;

inline constexpr size_t kInlineBytes = 128;

template <class T>
inline T load(const void* p) noexcept {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline uint64_t halves(uint64_t v) noexcept { return (v & 0xffffffff) + (v >> 32); }

/// add() of the `kWords` words of 8 bytes from `p` + kAt, in one carry chain, which compilers do
/// not generate from C++.
template <size_t kWords, size_t kAt = 0>
inline uint64_t add_words(uint64_t s, const std::byte* p) noexcept {
  static_assert(kWords == 2 || kWords == 4 || kWords == 5 || kWords == 8);
  struct Read {
    std::byte bytes[kAt + 8 * kWords];
  };
  const auto& read = *reinterpret_cast<const Read*>(p);
  if constexpr (kWords == 2) {
    asm("addq %c2(%1), %0\n\tadcq %c2+8(%1), %0\n\tadcq $0, %0"
        : "+r"(s)
        : "r"(p), "i"(kAt), "m"(read)
        : "cc");
  } else if constexpr (kWords == 4) {
    asm("addq %c2(%1), %0\n\tadcq %c2+8(%1), %0\n\tadcq %c2+16(%1), %0\n\t"
        "adcq %c2+24(%1), %0\n\tadcq $0, %0"
        : "+r"(s)
        : "r"(p), "i"(kAt), "m"(read)
        : "cc");
  } else if constexpr (kWords == 5) {
    asm("addq %c2(%1), %0\n\tadcq %c2+8(%1), %0\n\tadcq %c2+16(%1), %0\n\t"
        "adcq %c2+24(%1), %0\n\tadcq %c2+32(%1), %0\n\tadcq $0, %0"
        : "+r"(s)
        : "r"(p), "i"(kAt), "m"(read)
        : "cc");
  } else {
    asm("addq %c2(%1), %0\n\tadcq %c2+8(%1), %0\n\tadcq %c2+16(%1), %0\n\t"
        "adcq %c2+24(%1), %0\n\tadcq %c2+32(%1), %0\n\tadcq %c2+40(%1), %0\n\t"
        "adcq %c2+48(%1), %0\n\tadcq %c2+56(%1), %0\n\tadcq $0, %0"
        : "+r"(s)
        : "r"(p), "i"(kAt), "m"(read)
        : "cc");
  }
  return s;
}

/// Adds the next words, with kCopy also copies them, and advances both pointers.
template <size_t kWords, bool kCopy>
[[gnu::always_inline]] inline void take_words(uint64_t& s, std::byte*& dst,
                                              const std::byte*& src) noexcept {
  if constexpr (kCopy) {
    std::memcpy(dst, src, 8 * kWords);
    dst += 8 * kWords;
  }
  s = add_words<kWords>(s, src);
  src += 8 * kWords;
}

/// Fewer than 8 bytes, not folded. With kCopy also copies.
template <bool kCopy>
inline uint64_t tiny(std::byte* dst, const std::byte* src, size_t n) noexcept {
  uint64_t s = 0;
  size_t at = 0;
  if ((n & 4) != 0) {
    const auto v = load<uint32_t>(src);
    if constexpr (kCopy) std::memcpy(dst, &v, 4);
    s += v;
    at = 4;
  }
  if ((n & 2) != 0) {
    const auto v = load<uint16_t>(src + at);
    if constexpr (kCopy) std::memcpy(dst + at, &v, 2);
    s += v;
    at += 2;
  }
  if ((n & 1) != 0) {
    if constexpr (kCopy) dst[at] = src[at];
    s += static_cast<uint8_t>(src[at]);  // the missing low byte of the word is zero
  }
  return s;
}

/// Not folded. n < kInlineBytes. With kCopy also copies. Always inlined.
template <bool kCopy>
[[gnu::always_inline]] inline uint64_t small_here(std::byte* dst, const std::byte* src,
                                                  size_t n) noexcept {
  if (n < 8) return tiny<kCopy>(dst, src, n);
  uint64_t s = 0;
  if ((n & 64) != 0) take_words<8, kCopy>(s, dst, src);
  if ((n & 32) != 0) take_words<4, kCopy>(s, dst, src);
  if ((n & 16) != 0) take_words<2, kCopy>(s, dst, src);
  if ((n & 8) != 0) {
    const auto v = load<uint64_t>(src);
    if constexpr (kCopy) {
      std::memcpy(dst, &v, 8);
      dst += 8;
    }
    s = add(s, v);
    src += 8;
  }
  if (const size_t rest = n & 7; rest != 0) {
    // Reads the last 8 bytes. Those already summed are shifted out; their copies overlap.
    const auto last = load<uint64_t>(src + rest - 8);
    if constexpr (kCopy) std::memcpy(dst + rest - 8, &last, 8);
    s = add(s, last >> (8 * (8 - rest)));
  }
  return s;
}
template <bool kCopy>
inline uint64_t small(std::byte* dst, const std::byte* src, size_t n) noexcept {
  return small_here<kCopy>(dst, src, n);
}
}  // namespace detail

/// As sum(), but not folded: add to it by add().
inline uint64_t sum_unfolded(const void* data, size_t n) noexcept {
  if (n >= detail::kInlineBytes) return detail::sum_large(data, n);
  return detail::small<false>(nullptr, static_cast<const std::byte*>(data), n);
}
/// Folded sum of `n` bytes at any address; an odd last byte counts as if a zero followed.
inline Sum sum(const void* data, size_t n) noexcept { return fold(sum_unfolded(data, n)); }
inline Sum sum(std::span<const std::byte> bytes) noexcept {
  return sum(bytes.data(), bytes.size());
}

/// As copy_and_sum(), but not folded.
inline uint64_t copy_and_sum_unfolded(void* dst, const void* src, size_t n) noexcept {
  if (n >= detail::kInlineBytes) return detail::copy_large(dst, src, n);
  return detail::small<true>(static_cast<std::byte*>(dst), static_cast<const std::byte*>(src), n);
}
/// The same, always inlined.
[[gnu::always_inline]] inline uint64_t copy_and_sum_here(void* dst, const void* src,
                                                         size_t n) noexcept {
  if (n >= detail::kInlineBytes) [[unlikely]]
    return detail::copy_large(dst, src, n);
  return detail::small_here<true>(static_cast<std::byte*>(dst), static_cast<const std::byte*>(src),
                                  n);
}
/// Copies `n` bytes and returns their folded sum, reading memory once. The ranges must not overlap.
inline Sum copy_and_sum(void* dst, const void* src, size_t n) noexcept {
  return fold(copy_and_sum_unfolded(dst, src, n));
}

/// Pseudo-header of IPv4 (RFC 9293 §3.1); `l4_bytes` is header plus payload.
inline Sum pseudo_v4(be32 src, be32 dst, IpProto proto, uint16_t l4_bytes) noexcept {
  return fold(uint64_t{src.raw()} + dst.raw() + word(static_cast<uint8_t>(proto)) + word(l4_bytes));
}
/// Pseudo-header of IPv6 (RFC 8200 §8.1); addresses are 16 bytes each.
inline Sum pseudo_v6(const void* src, const void* dst, IpProto proto, uint32_t l4_bytes) noexcept {
  uint64_t s = uint64_t{word(static_cast<uint8_t>(proto))} + be32(l4_bytes).raw();
  for (unsigned i = 0; i < 16; i += 8) {
    s += detail::halves(detail::load<uint64_t>(static_cast<const std::byte*>(src) + i));
    s += detail::halves(detail::load<uint64_t>(static_cast<const std::byte*>(dst) + i));
  }
  return fold(s);
}
/// Pseudo-header of either family. The v4-mapped prefix adds 0xffff, which is zero here, and the
/// two lengths differ only in leading zeros: one formula serves both.
inline Sum pseudo(const IpAddr& src, const IpAddr& dst, IpProto proto, uint32_t l4_bytes) noexcept {
  return pseudo_v6(src.bytes().data(), dst.bytes().data(), proto, l4_bytes);
}

}  // namespace vireo::checksum
