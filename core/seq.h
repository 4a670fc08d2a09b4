// TCP sequence numbers (RFC 9293 §3.4) and 64-bit stream offsets.
// Owner: none (values). Thread: any.
#pragma once

#include <cstdint>

namespace vireo {

/// A point on a circle of 2^32. Has no operator<: the circle has no order, only signed distances.
class Seq32 {
 public:
  constexpr Seq32() = default;
  constexpr explicit Seq32(uint32_t v) : v_(v) {}
  constexpr uint32_t value() const { return v_; }
  constexpr Seq32 operator+(uint32_t n) const { return Seq32(v_ + n); }
  constexpr Seq32 operator-(uint32_t n) const { return Seq32(v_ - n); }
  constexpr Seq32& operator+=(uint32_t n) { return *this = *this + n; }
  constexpr int32_t operator-(Seq32 o) const {
    return static_cast<int32_t>(v_ - o.v_);
  }  ///< signed distance
  constexpr bool operator==(const Seq32&) const = default;
  constexpr bool before(Seq32 o) const { return *this - o < 0; }
  constexpr bool after(Seq32 o) const { return *this - o > 0; }
  constexpr bool at_or_before(Seq32 o) const { return *this - o <= 0; }
  constexpr bool in_window(Seq32 left, uint32_t size) const {
    return v_ - left.v_ < size;
  }  ///< [left, left+size)

 private:
  uint32_t v_ = 0;
};

/// Position in a byte stream since its SYN (the SYN itself is offset 0); never wraps.
using StreamOffset = uint64_t;

/// The only conversion of a sequence number to a stream offset: the offset nearest to
/// `near_offset`, whose sequence number is `near_seq`.
constexpr StreamOffset unwrap(Seq32 seq, Seq32 near_seq, StreamOffset near_offset) {
  return near_offset + static_cast<uint64_t>(static_cast<int64_t>(seq - near_seq));
}

}  // namespace vireo
