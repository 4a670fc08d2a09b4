#include "dev/verbs/stamp_clock.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <ctime>

namespace vireo::verbs {
namespace {

// A rate measured over a longer time is better; the first rate is the device's nominal one.
constexpr Duration kFirstPause = Duration::ms(10), kMaxPause = Duration::s(1);
constexpr uint64_t kWorstCrystal = 1000;  // a crystal is off by at most one part in so many

uint64_t rate_of(uint64_t khz) { return (uint64_t{1'000'000} << 32) / khz; }

int64_t system_time() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

/// Reads the device's counter and the system clock together: the counter is read between two clock
/// readings; the closest of three tries is used.
bool read_system(void* of, StampClock::Reading& out) {
  int64_t closest = INT64_MAX;
  for (int i = 0; i < 3; ++i) {
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    const int64_t before = system_time();
    if (ibv_query_rt_values_ex(static_cast<ibv_context*>(of), &values) != 0 ||
        (values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0)
      return false;
    const int64_t took = system_time() - before;
    if (took >= closest || took < 0) continue;  // took < 0: the clock was set meanwhile
    closest = took;
    // Drivers return the counter in the nanoseconds field.
    out = {static_cast<uint64_t>(values.raw_clock.tv_nsec), before + took / 2, 0};
  }
  return closest != INT64_MAX;
}

}  // namespace

StampClock StampClock::raw(uint64_t khz) {
  StampClock c;
  c.rate_ = rate_of(khz);
  return c;
}

std::optional<StampClock> StampClock::by(Reader read, void* of, uint64_t mask, uint64_t khz,
                                         Instant now) {
  StampClock c = raw(khz);
  c.nominal_ = c.rate_;
  c.unused_bits_ = static_cast<unsigned>(std::countl_zero(mask));
  c.read_ = read;
  c.of_ = of;
  Reading r;
  if (!read(of, r)) return std::nullopt;
  c.at_ = r.ticks;
  c.ns_ = r.ns;
  if (r.rate != 0) c.rate_ = r.rate;
  c.pause_ = kFirstPause;
  c.read_next_ = now + c.pause_;
  return c;
}

std::optional<StampClock> StampClock::of(const Context& context, StampTime wanted, Instant now) {
  const ibv_device_attr_ex& limits = context.limits();
  const uint64_t khz = limits.hca_core_clock, mask = limits.completion_timestamp_mask;
  if (wanted == StampTime::kNone || khz == 0 || mask == 0) return std::nullopt;
  if (wanted == StampTime::kRaw) return raw(khz);
  auto c = by(read_system, context.get(), mask, khz, now);
  if (!c && wanted == StampTime::kBest) return raw(khz);
  return c;
}

void StampClock::read_again(Instant now) noexcept {
  read_next_ = now + pause_;
  Reading r;
  if (!read_(of_, r)) return;  // keep the old rate
  const int64_t went = since(r.ticks);
  rate_ = r.rate != 0 ? r.rate : nominal_;
  if (r.rate == 0 && went > 0) {
    const auto measured = (static_cast<__int128>(r.ns - ns_) << 32) / went;
    const auto off = measured - static_cast<__int128>(nominal_);
    // Otherwise the clock was set, or the counter wrapped since the last reading.
    if ((off < 0 ? -off : off) < static_cast<__int128>(nominal_ / kWorstCrystal))
      rate_ = static_cast<uint64_t>(measured);
  }
  at_ = r.ticks;
  ns_ = r.ns;
  pause_ = std::min(pause_ * 4, kMaxPause);
  read_next_ = now + pause_;
}

}  // namespace vireo::verbs
