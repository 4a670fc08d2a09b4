// Converts the counter value in a completion to time. Counter and clock are read together now and
// then; in between time goes on at the rate that the last two readings gave, for no crystal is
// exact. Owner: a queue. Thread: holder of the engine's lock. Source: ibv_query_rt_values_ex(3),
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
    int64_t ns = 0;     ///< at that count
    uint64_t rate = 0;  ///< nanoseconds a tick, 32.32 fixed point; 0: unknown
  };
  /// @return false: it cannot be read.
  using Reader = bool (*)(void* of, Reading& out);

  /// Counts as nanoseconds of their own, by the rate that the device gives (in kHz).
  static StampClock raw(uint64_t khz);
  /// As time that `read` tells. Counts wrap at `mask`, all ones. @return nullopt: read() fails.
  static std::optional<StampClock> by(Reader read, void* of, uint64_t mask, uint64_t khz,
                                      Instant now);
  /// As a verbs device has it. kPtp is the system's time here. @return nullopt: it has no counter,
  /// or cannot be read.
  static std::optional<StampClock> of(const Context& context, StampTime wanted, Instant now);

  /// Of a count not older than half a round of the counter. Costs a reading now and then.
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
  Duration pause_{};  ///< until then
  Reader read_ = nullptr;
  void* of_ = nullptr;
  uint64_t nominal_ = 0;
};

}  // namespace vireo::verbs
