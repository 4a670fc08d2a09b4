// The devices' counter, by which completions are stamped, and their wall clock. The counter has 41
// bits and wraps after 2.4 hours; a test may set it, and make it fast or slow as crystals are.
// Owner: process. Thread: any. Source: ibv_query_device_ex(3) (hca_core_clock,
// completion_timestamp_mask), ibv_query_rt_values_ex(3).
#pragma once

#include <cstdint>

namespace vireo::softnic {

inline constexpr unsigned kClockBits = 41;  ///< that ConnectX counts
inline constexpr uint64_t kClockMask = (uint64_t{1} << kClockBits) - 1;
inline constexpr uint64_t kNsPerTick = 4;
inline constexpr uint64_t kClockKhz = 1'000'000 / kNsPerTick;

uint64_t ticks_now();
/// Nanoseconds since 1970 of TAI, as a clock has it that PTP sets: 37 s before UTC's.
uint64_t wall_now();
/// The counter stands at `ticks` now, and gains `ppm` millionths.
void set_ticks(uint64_t ticks, int ppm);

}  // namespace vireo::softnic
