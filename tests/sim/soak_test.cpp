// An hour of virtual time on two engines: random opens, closes, resets, half closes, dead peers, a
// cable that is pulled, listeners that come and go, datagrams beside them, over a wire that loses,
// reorders and duplicates, and whose path carries less for a while. After every quarter of an hour
// all is closed, and nothing may be left: no packet, no timer, no key. What each state is bound to
// is in soak_bounds.cpp.
//   VIREO_SOAK_SEED=<n>    that seed alone        VIREO_SOAK_SEEDS=<n>   so many seeds, from 1
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdio>
#include <cstdlib>

#include "tests/sim/soak_world.h"

namespace vireo::sim {
namespace {

uint64_t number(const char* variable, uint64_t otherwise) {
  const char* const s = std::getenv(variable);
  return s == nullptr ? otherwise : std::strtoull(s, nullptr, 0);
}

size_t heap() {
  const auto m = ::mallinfo2();
  return m.uordblks + m.hblkhd;
}

/// Slabs, tables and the like keep what the busiest moment needed; a segment's descriptors leaked
/// by every connection are megabytes.
constexpr size_t kHeapMayGrow = size_t{1} << 20;

void soak(uint64_t seed) {
  std::printf("soak: seed %lu\n", seed);
  std::fflush(stdout);  // an assertion of the library ends the process
  World w(seed);
  size_t at_rest = 0;
  while (w.elapsed() < Duration::s(3600)) {
    ASSERT_EQ(w.round(Duration::s(15 * 60)), "") << "VIREO_SOAK_SEED=" << seed << "; " << w.story();
    if (at_rest == 0) at_rest = heap();
    EXPECT_LE(heap(), at_rest + kHeapMayGrow) << "VIREO_SOAK_SEED=" << seed;
  }
  std::printf("%s\n", w.story().c_str());
  for (const char* what :
       {"bytes read", "datagrams heard", "reports of routers", "cable pulls", "SYNs with data"})
    EXPECT_NE(w.story().find(what), std::string::npos) << "there were none: " << what;
}

TEST(Soak, AnHourLeavesNothingBehind) {
  if (const uint64_t one = number("VIREO_SOAK_SEED", 0); one != 0) return soak(one);
  const uint64_t seeds = number("VIREO_SOAK_SEEDS", 1);
  for (uint64_t seed = 1; seed <= seeds && !HasFatalFailure(); ++seed) soak(seed);
}

}  // namespace
}  // namespace vireo::sim
