#include "config/nearest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vireo {
namespace {

TEST(Nearest, DistanceCountsEachKindOfSlipOnce) {
  EXPECT_EQ(edit_distance("RX_POLL", "RX_POLL", 9), 0U);
  EXPECT_EQ(edit_distance("RX_POLL", "rx_poll", 9), 0U);
  EXPECT_EQ(edit_distance("RX_POLL", "RX_POL", 9), 1U);
  EXPECT_EQ(edit_distance("RX_POL", "RX_POLL", 9), 1U);
  EXPECT_EQ(edit_distance("RX_BOLL", "RX_POLL", 9), 1U);
  EXPECT_EQ(edit_distance("RX_OPLL", "RX_POLL", 9), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting", 9), 3U);
  EXPECT_EQ(edit_distance("", "abc", 9), 3U);
  EXPECT_EQ(edit_distance("", "", 9), 0U);
}

TEST(Nearest, DistanceStopsAtItsLimit) {
  EXPECT_EQ(edit_distance("abcdef", "uvwxyz", 2), 3U);
  EXPECT_EQ(edit_distance(std::string(65, 'a'), std::string(65, 'a'), 2), 3U);
  EXPECT_EQ(edit_distance(std::string(64, 'a'), std::string(64, 'a'), 2), 0U);
}

TEST(Nearest, TakesTheClosestAndRefusesTheFar) {
  const std::vector<std::string_view> names = {"latency", "throughput", "low_cpu"};
  EXPECT_EQ(nearest("latncy", names), "latency");
  EXPECT_EQ(nearest("LOWCPU", names), "low_cpu");
  EXPECT_EQ(nearest("banana", names), "");
  EXPECT_EQ(nearest("", names), "");
}

}  // namespace
}  // namespace vireo
