// A Duration in 32 bits, for settings that every connection has: a multiple of kUnitNs. A longer
// value is stored as the longest that fits. Converts to a Duration. Owner: none (values). Thread:
// any.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>

#include "core/clock.h"

namespace vireo {

template <int64_t kUnitNs>
class CompactDuration {
 public:
  constexpr CompactDuration() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a setting is written and read as a Duration.
  constexpr CompactDuration(Duration d) : v_(fit(d.ns() / kUnitNs)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr operator Duration() const { return Duration::ns(v_ * kUnitNs); }
  constexpr Duration get() const { return *this; }
  /// Compares two of the same type; a template, so that nothing is converted.
  template <std::same_as<CompactDuration> T>
  constexpr bool operator==(const T& o) const {
    return v_ == o.v_;
  }

 private:
  static constexpr int32_t fit(int64_t units) {
    using Limits = std::numeric_limits<int32_t>;
    return static_cast<int32_t>(std::clamp<int64_t>(units, Limits::min(), Limits::max()));
  }
  int32_t v_ = 0;
};

using Micros = CompactDuration<1'000>;      ///< up to 35 minutes
using Millis = CompactDuration<1'000'000>;  ///< up to 24 days

}  // namespace vireo
