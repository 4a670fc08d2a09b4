// The kernel's lists of joined groups.
#include "stack/sock/host_groups.h"

#include <gtest/gtest.h>

namespace vireo {
namespace {

std::vector<IpAddr> parsed(std::string_view igmp, std::string_view igmp6) {
  std::vector<IpAddr> all;
  HostGroups::parse(igmp, igmp6, all);
  return all;
}
IpAddr ip(const char* text) { return *IpAddr::parse(text); }

TEST(HostGroups, ReadsTheListsOfBothProtocols) {
  const auto all = parsed(
      "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n"
      "1\tlo        :     1      V3\n"
      "\t\t\t\t010000E0     1 0:00000000\t\t0\n"
      "4\teth0      :     2      V3\n"
      "\t\t\t\t03020 1EF     1 0:00000000\t\t0\n"
      "\t\t\t\t030201EF     1 0:00000000\t\t0\n",
      "1    lo              ff020000000000000000000000000001     1 0000000C 0\n"
      "4    eth0            ff150000000000000000000000770001     2 00000004 0\n"
      "4    eth0            ff1500000000000000000000007700zz     2 00000004 0\n");
  const std::vector<IpAddr> wanted{ip("224.0.0.1"), ip("239.1.2.3"), ip("ff02::1"),
                                   ip("ff15::77:1")};
  EXPECT_EQ(all, wanted);
}

TEST(HostGroups, ReadsNothingFromWhatIsNone) {
  EXPECT_TRUE(parsed("", "").empty());
  EXPECT_TRUE(parsed("\t\t\t\t", "4 eth0").empty());
  EXPECT_TRUE(parsed("\t\n\tx\n", "\n\n").empty());
}

}  // namespace
}  // namespace vireo
