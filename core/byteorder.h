// Big-endian integers in wire format: alignment 1, converted on access, so that no htonl() is
// needed elsewhere. Owner: none (values). Thread: any.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace vireo {

/// Network byte order integer of type T; may be laid over packet memory at any address.
template <class T>
class BigEndian {
 public:
  constexpr BigEndian() = default;
  constexpr BigEndian(T host) : bytes_{} { *this = host; }  // NOLINT: implicit on purpose
  constexpr BigEndian& operator=(T host) {
    if consteval {
      for (unsigned i = 0; i < sizeof(T); ++i)
        bytes_[i] = static_cast<uint8_t>(host >> (8 * (sizeof(T) - 1 - i)));
    } else {
      const T v = std::byteswap(host);
      std::memcpy(bytes_, &v, sizeof v);
    }
    return *this;
  }
  constexpr operator T() const {  // NOLINT: implicit on purpose
    if consteval {
      T v = 0;
      for (uint8_t b : bytes_) v = static_cast<T>((static_cast<uint64_t>(v) << 8) | b);
      return v;
    } else {
      T v;
      std::memcpy(&v, bytes_, sizeof v);
      return std::byteswap(v);
    }
  }
  /// The value in memory order, for hashing and masked compares.
  constexpr T raw() const { return std::bit_cast<T>(bytes_); }
  constexpr bool operator==(const BigEndian&) const = default;

 private:
  uint8_t bytes_[sizeof(T)] = {};
};

using be16 = BigEndian<uint16_t>;
using be32 = BigEndian<uint32_t>;
using be64 = BigEndian<uint64_t>;
static_assert(std::endian::native == std::endian::little, "Vireo runs on little-endian machines");
static_assert(sizeof(be32) == 4 && alignof(be32) == 1);

}  // namespace vireo
