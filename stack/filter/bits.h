// Partly known bytes: the value of an nf_tables register when a rule is evaluated for packets that
// do not exist yet. Owner: none (values). Thread: any.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

namespace vireo::filter {

/// Whether a condition holds. In this order: the conjunction of conditions is their minimum.
enum class Ternary : uint8_t { kNo, kMaybe, kYes };

inline Ternary both(Ternary a, Ternary b) { return std::min(a, b); }
inline Ternary either(Ternary a, Ternary b) { return std::max(a, b); }
inline Ternary negated(Ternary t) { return static_cast<Ternary>(2 - static_cast<uint8_t>(t)); }
inline Ternary surely(bool b) { return b ? Ternary::kYes : Ternary::kNo; }

class Bits {
 public:
  static constexpr size_t kMax = 64;  ///< size of all nf_tables registers together

  /// `n` unknown bytes.
  static Bits unknown(size_t n) {
    Bits b;
    b.size_ = std::min(n, kMax);
    return b;
  }
  static Bits known(std::span<const uint8_t> bytes) {
    Bits b = unknown(bytes.size());
    std::copy_n(bytes.begin(), b.size_, b.value_.begin());
    std::fill_n(b.mask_.begin(), b.size_, uint8_t{0xff});
    return b;
  }
  /// A number in memory order.
  template <class T>
  static Bits of(T number) {
    std::array<uint8_t, sizeof number> bytes;
    std::memcpy(bytes.data(), &number, sizeof number);
    return known(bytes);
  }

  size_t size() const { return size_; }
  std::span<const uint8_t> value() const { return {value_.data(), size_}; }  ///< 0 where unknown
  std::span<const uint8_t> mask() const { return {mask_.data(), size_}; }    ///< 1: known

  /// Writes `from` at byte `at`; what does not fit is dropped.
  void put(size_t at, const Bits& from) {
    for (size_t i = 0; i < from.size_ && at + i < size_; ++i) {
      value_[at + i] = from.value_[i];
      mask_[at + i] = from.mask_[i];
    }
  }
  void put(size_t at, uint8_t value, uint8_t mask = 0xff) {
    if (at >= size_) return;
    value_[at] = value & mask;
    mask_[at] = mask;
  }
  /// `n` bytes from `at`; unknown beyond the end.
  Bits part(size_t at, size_t n) const {
    Bits b = unknown(n);
    for (size_t i = 0; i < b.size_ && at + i < size_; ++i) {
      b.value_[i] = value_[at + i];
      b.mask_[i] = mask_[at + i];
    }
    return b;
  }
  /// (this & mask) ^ flip, byte by byte.
  Bits masked(std::span<const uint8_t> mask, std::span<const uint8_t> flip) const {
    Bits b = *this;
    for (size_t i = 0; i < size_; ++i) {
      const uint8_t m = i < mask.size() ? mask[i] : uint8_t{0xff};
      const uint8_t x = i < flip.size() ? flip[i] : uint8_t{0};
      b.mask_[i] = static_cast<uint8_t>(mask_[i] | static_cast<uint8_t>(~m));
      b.value_[i] = static_cast<uint8_t>(((value_[i] & m) ^ x) & b.mask_[i]);
    }
    return b;
  }
  /// The bytes of each group of `n` in reverse order.
  Bits swapped(size_t n) const {
    Bits b = *this;
    for (size_t at = 0; n != 0 && at + n <= size_; at += n) {
      std::reverse(b.value_.begin() + at, b.value_.begin() + at + n);
      std::reverse(b.mask_.begin() + at, b.mask_.begin() + at + n);
    }
    return b;
  }

  /// Compares as memcmp() does, over the length of `with`.
  Ternary equals(std::span<const uint8_t> with) const {
    const Bits b = part(0, with.size());
    Ternary all = Ternary::kYes;
    for (size_t i = 0; i < b.size_; ++i) {
      if (((b.value_[i] ^ with[i]) & b.mask_[i]) != 0) return Ternary::kNo;
      if (b.mask_[i] != 0xff) all = Ternary::kMaybe;
    }
    return all;
  }
  Ternary at_least(std::span<const uint8_t> with) const {
    const Bits b = part(0, with.size());
    if (b.compare_least(with) >= 0) return Ternary::kYes;
    return b.compare_most(with) < 0 ? Ternary::kNo : Ternary::kMaybe;
  }
  Ternary at_most(std::span<const uint8_t> with) const {
    const Bits b = part(0, with.size());
    if (b.compare_most(with) <= 0) return Ternary::kYes;
    return b.compare_least(with) > 0 ? Ternary::kNo : Ternary::kMaybe;
  }
  Ternary within(std::span<const uint8_t> from, std::span<const uint8_t> to) const {
    return both(at_least(from), at_most(to));
  }

 private:
  int compare_least(std::span<const uint8_t> with) const {
    return std::memcmp(value_.data(), with.data(), size_);
  }
  int compare_most(std::span<const uint8_t> with) const {
    std::array<uint8_t, kMax> most;
    for (size_t i = 0; i < size_; ++i)
      most[i] = static_cast<uint8_t>(value_[i] | static_cast<uint8_t>(~mask_[i]));
    return std::memcmp(most.data(), with.data(), size_);
  }

  std::array<uint8_t, kMax> value_{};
  std::array<uint8_t, kMax> mask_{};
  size_t size_ = 0;
};

}  // namespace vireo::filter
