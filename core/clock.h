// Time. Instant and Duration count nanoseconds, Ticks counts the processor's time-stamp counter;
// only this file converts. Protocol code never asks for the time: `now` is a parameter. Owner: the
// process-wide calibration is written once by Clock::calibrate. Thread: any.
#pragma once

#include <compare>
#include <cstdint>
#include <ctime>
#include <limits>

namespace vireo {

/// A signed span of time in nanoseconds.
class Duration {
 public:
  constexpr Duration() = default;
  static constexpr Duration ns(int64_t v) { return Duration(v); }
  static constexpr Duration us(int64_t v) { return Duration(v * 1'000); }
  static constexpr Duration ms(int64_t v) { return Duration(v * 1'000'000); }
  static constexpr Duration s(int64_t v) { return Duration(v * 1'000'000'000); }
  static constexpr Duration max() { return Duration(std::numeric_limits<int64_t>::max()); }
  constexpr int64_t ns() const { return v_; }
  constexpr int64_t us() const { return v_ / 1'000; }
  constexpr int64_t ms() const { return v_ / 1'000'000; }
  constexpr int64_t s() const { return v_ / 1'000'000'000; }
  constexpr Duration operator+(Duration o) const { return Duration(v_ + o.v_); }
  constexpr Duration operator-(Duration o) const { return Duration(v_ - o.v_); }
  constexpr Duration operator*(int64_t n) const { return Duration(v_ * n); }
  constexpr Duration operator/(int64_t n) const { return Duration(v_ / n); }
  constexpr auto operator<=>(const Duration&) const = default;

 private:
  constexpr explicit Duration(int64_t v) : v_(v) {}
  int64_t v_ = 0;
};

/// A point in time: nanoseconds of CLOCK_MONOTONIC, or of virtual time in tests. Default: long ago.
class Instant {
 public:
  constexpr Instant() = default;
  static constexpr Instant from_ns(int64_t v) { return Instant(v); }
  static constexpr Instant never() { return Instant(std::numeric_limits<int64_t>::max()); }
  constexpr bool is_never() const { return *this == never(); }
  constexpr int64_t ns() const { return v_; }
  constexpr Instant operator+(Duration d) const { return Instant(v_ + d.ns()); }
  constexpr Instant operator-(Duration d) const { return Instant(v_ - d.ns()); }
  constexpr Duration operator-(Instant o) const { return Duration::ns(v_ - o.v_); }
  constexpr auto operator<=>(const Instant&) const = default;

 private:
  constexpr explicit Instant(int64_t v) : v_(v) {}
  int64_t v_ = 0;
};

using Ticks = uint64_t;

class Clock {
 public:
  /// Measures the TSC against CLOCK_MONOTONIC (about 1 ms). Call once before the first now(); again
  /// is harmless. Where the TSC is not invariant, now() falls back to clock_gettime.
  static void calibrate();
  /// The time, one rdtsc and a multiplication. Never goes back on one thread.
  static Instant now() {
    if (!use_tsc_) [[unlikely]]
      return now_from_kernel();
    return from_ticks(__builtin_ia32_rdtsc());
  }
  static Instant from_ticks(Ticks t) {
    const auto scaled = static_cast<unsigned __int128>(t - base_ticks_) * mult_ >> 32;
    return Instant::from_ns(base_ns_ + static_cast<int64_t>(scaled));
  }
  /// Nanoseconds of CLOCK_REALTIME, for the program's eyes only.
  static int64_t wall_ns() {
    timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return ts.tv_sec * 1'000'000'000 + ts.tv_nsec;
  }
  static Instant now_from_kernel() {
    timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return Instant::from_ns(ts.tv_sec * 1'000'000'000 + ts.tv_nsec);
  }

 private:
  static inline bool use_tsc_ = false;
  static inline Ticks base_ticks_ = 0;
  static inline int64_t base_ns_ = 0;
  static inline uint64_t mult_ = 0;  ///< nanoseconds per tick, 32.32 fixed point
};

}  // namespace vireo
