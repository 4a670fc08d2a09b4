// Which port sysfs gives to an interface, on trees that real devices make.
#include "dev/verbs/match.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace vireo::verbs {
namespace {

namespace fs = std::filesystem;

/// A device whose sysfs folder lies in a folder of the test's.
class Match : public testing::Test {
 protected:
  Match() : dir_(fs::path(testing::TempDir()) / ("match-" + std::to_string(getpid()))) {
    std::strncpy(device_.ibdev_path, dir_.c_str(), sizeof device_.ibdev_path - 1);
  }
  ~Match() override { fs::remove_all(dir_); }
  void add(const std::string& interface, const char* dev_port, const char* dev_id) {
    const fs::path net = dir_ / "device/net" / interface;
    fs::create_directories(net);
    if (dev_port != nullptr) std::ofstream(net / "dev_port") << dev_port << '\n';
    if (dev_id != nullptr) std::ofstream(net / "dev_id") << dev_id << '\n';
  }
  fs::path dir_;
  ibv_device device_{};
};

TEST_F(Match, AFunctionOfOnePort) {
  add("ens1f0np0", "0", "0x0");
  EXPECT_EQ(port_by_sysfs(device_, "ens1f0np0"), 1);
}

TEST_F(Match, TwoInterfacesOfOneFunctionCountInDevPort) {
  add("eth2", "0", "0x0");
  add("eth3", "1", "0x0");
  EXPECT_EQ(port_by_sysfs(device_, "eth2"), 1);
  EXPECT_EQ(port_by_sysfs(device_, "eth3"), 2);
}

TEST_F(Match, AnOldMlx4CountsInDevId) {
  add("eth3", "0", "0x1");
  EXPECT_EQ(port_by_sysfs(device_, "eth3"), 2);
}

TEST_F(Match, WithoutTheFilesItIsTheFirst) {
  add("eth2", nullptr, nullptr);
  EXPECT_EQ(port_by_sysfs(device_, "eth2"), 1);
}

TEST_F(Match, OthersInterfacesAreNotItsOwn) {
  add("eth2", "0", "0x0");
  EXPECT_EQ(port_by_sysfs(device_, "eth4"), std::nullopt);
  EXPECT_EQ(port_by_sysfs(device_, "eth"), std::nullopt);
  EXPECT_EQ(port_by_sysfs(device_, ""), std::nullopt) << "the folder itself";
}

TEST_F(Match, ADeviceThatSysfsDoesNotShow) {
  add("eth2", "0", "0x0");
  device_.ibdev_path[0] = '\0';
  EXPECT_EQ(port_by_sysfs(device_, "eth2"), std::nullopt);
}

}  // namespace
}  // namespace vireo::verbs
