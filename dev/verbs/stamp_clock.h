// Converts the counter value of a completion to time. Counter and clock are read together from time
// to time; in between, time advances at the rate measured by the last two readings, because
// crystals are not exact.
// Owner: a queue. Thread: holder of the engine's lock. Source: ibv_query_rt_values_ex(3),
// ibv_query_device_ex(3) (hca_core_clock, completion_timestamp_mask).
#pragma once

#include <cstdint>
#include <optional>

#include "core/clock.h"
#include "dev/verbs/context.h"
#include "dev/verbs/verbs.h"

namespace vireo::verbs {

class StampClock {
 public:
  struct Reading {
    uint64_t ticks = 0;
    int64_t ns = 0;     ///< time at that count
    uint64_t rate = 0;  ///< nanoseconds per tick, 32.32 fixed point; 0: unknown
  };
  /// @return false: the clock cannot be read.
  using Reader = bool (*)(void* of, Reading& out);

  /// Converts counts to nanoseconds by the device's nominal rate (in kHz), without a clock.
  static StampClock raw(uint64_t khz);
  /// Converts to the time that `read` returns. Counts wrap at `mask`, all ones. @return nullopt:
  /// read() failed.
  static std::optional<StampClock> by(Reader read, void* of, uint64_t mask, uint64_t khz,
                                      Instant now);
  /// The clock of a verbs device. kPtp is the system time here. @return nullopt: there is no
  /// counter, or it cannot be read.
  static std::optional<StampClock> of(const Context& context, StampTime wanted, Instant now);

  /// The time of a count not older than half a wrap of the counter. Reads the clock now and then.
  int64_t ns(uint64_t ticks, Instant now) noexcept {
    if (now >= read_next_) [[unlikely]]
      read_again(now);
    return ns_ + scaled(since(ticks));
  }

 private:
  StampClock() = default;
  int64_t since(uint64_t ticks) const {
    return static_cast<int64_t>((ticks - at_) << unused_bits_) >> unused_bits_;
  }
  int64_t scaled(int64_t ticks) const {
    return static_cast<int64_t>(static_cast<__int128>(ticks) * static_cast<int64_t>(rate_) >> 32);
  }
  [[gnu::cold]] void read_again(Instant now) noexcept;

  uint64_t at_ = 0;
  int64_t ns_ = 0;
  uint64_t rate_ = 0;
  unsigned unused_bits_ = 0;
  Instant read_next_ = Instant::never();
  Duration pause_{};  ///< time until the next reading
  Reader read_ = nullptr;
  void* of_ = nullptr;
  uint64_t nominal_ = 0;
};

}  // namespace vireo::verbs
