// A tree of sysfs as drivers make it for a bond, its members and their RDMA devices.
// Owner: the test. Thread: one.
#pragma once

#include <infiniband/verbs.h>

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace vireo::test {

class BondSysfs {
 public:
  BondSysfs()
      : root_(std::filesystem::path(testing::TempDir()) / ("bonds-" + std::to_string(getpid()))) {}
  BondSysfs(const BondSysfs&) = delete;
  BondSysfs& operator=(const BondSysfs&) = delete;
  ~BondSysfs() { std::filesystem::remove_all(root_); }

  /// "bond0".
  void add_bond(const char* mode, const char* members, const char* active) {
    const auto folder = root_ / "class/net/bond0/bonding";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "mode") << mode << '\n';
    std::ofstream(folder / "slaves") << members << '\n';
    set_active(active);
  }
  void set_active(const char* member) const {
    std::ofstream(root_ / "class/net/bond0/bonding/active_slave") << member << '\n';
  }
  /// A function of a card and its interface; `rdma`: the device beneath it, if it has one.
  void add_member(const std::string& interface, const std::string& function, const char* rdma,
                  const char* dev_port = "0") {
    const auto pci = root_ / "devices" / function;
    std::filesystem::create_directories(pci / "net" / interface);
    std::ofstream(pci / "net" / interface / "dev_port") << dev_port << '\n';
    const auto net = root_ / "class/net" / interface;
    std::filesystem::create_directories(net);
    std::filesystem::create_directory_symlink(pci, net / "device");
    if (rdma == nullptr || std::filesystem::exists(pci / "infiniband" / rdma)) return;
    std::filesystem::create_directories(pci / "infiniband" / rdma / "ports/1");
    std::filesystem::create_directory_symlink(pci, pci / "infiniband" / rdma / "device");
  }
  void add_second_port(const std::string& function, const std::string& rdma) const {
    std::filesystem::create_directories(path_of(function, rdma) + "/ports/2");
  }
  std::string path_of(const std::string& function, const std::string& rdma) const {
    return root_ / "devices" / function / "infiniband" / rdma;
  }
  /// As the driver shows it: ibv_device::ibdev_path.
  void show(ibv_device& device, const std::string& function) const {
    const std::string path = path_of(function, device.name);
    std::strncpy(device.ibdev_path, path.c_str(), sizeof device.ibdev_path - 1);
  }
  const std::string& str() const { return root_.native(); }

 private:
  const std::filesystem::path root_;
};

}  // namespace vireo::test
