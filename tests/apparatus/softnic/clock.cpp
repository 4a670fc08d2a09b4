#include "tests/apparatus/softnic/clock.h"

#include <time.h>

#include <memory>
#include <mutex>

#include "tests/apparatus/softnic/fork.h"

namespace vireo::softnic {
namespace {

constexpr uint64_t kTaiAhead = 37;  // seconds, since 2017

uint64_t nanoseconds(clockid_t which) {
  timespec t;
  clock_gettime(which, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

struct Counter {
  std::mutex lock;
  uint64_t since_ns = 0, at = 0;
  int64_t ppm = 0;

  uint64_t now() const {
    const uint64_t went = (nanoseconds(CLOCK_MONOTONIC) - since_ns) / kNsPerTick;
    return at + went + static_cast<uint64_t>(static_cast<int64_t>(went) / 1000 * ppm / 1000);
  }
};
constinit Counter g_counter;

}  // namespace

uint64_t ticks_now() {
  const std::lock_guard hold(g_counter.lock);
  return g_counter.now() & kClockMask;
}

uint64_t wall_now() { return nanoseconds(CLOCK_REALTIME) + kTaiAhead * 1'000'000'000; }

void forget_clock() { std::construct_at(&g_counter); }

void set_ticks(uint64_t ticks, int ppm) {
  const std::lock_guard hold(g_counter.lock);
  g_counter.since_ns = nanoseconds(CLOCK_MONOTONIC);
  g_counter.at = ticks;
  g_counter.ppm = ppm;
}

}  // namespace vireo::softnic
