// Bonds over softnic's two devices, by verbs and by mlx5: which of them is opened for a bond, and
// that one whose member is not the active one any more counts as gone. The bond is a tree of sysfs:
// the kernel of a test machine need not have any.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/clock.h"
#include "dev/mlx5/mlx5.h"
#include "dev/verbs/verbs.h"
#include "tests/apparatus/softnic/control.h"
#include "tests/unit/verbs/bond_sysfs.h"

namespace vireo::test {
namespace {

struct Kind {
  const char* name;
  decltype(&open_verbs) open;
};

class OpenedBonds : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    Clock::calibrate();
    unsetenv("SOFTNIC_WIRE");
    softnic_drive(true);
    list_ = ibv_get_device_list(nullptr);
    sys_.add_member("ens1f0", "0000:3b:00.0", "softnic0");
    sys_.add_member("ens2f0", "0000:86:00.0", "softnic1");
    sys_.show(nic(0), "0000:3b:00.0");
    sys_.show(nic(1), "0000:86:00.0");
  }
  void TearDown() override {
    queue_.reset();
    device_.reset();
    for (int i : {0, 1}) nic(i).ibdev_path[0] = '\0';
    ibv_free_device_list(list_);
  }
  ibv_device& nic(int i) { return *list_[i]; }
  bool is_open(int i) { return softnic_objects_of(&nic(i)).contexts != 0; }

  Result<void> open(std::string_view interface = "bond0") {
    auto device = GetParam().open({.interface = interface, .sysfs = sys_.str()}, *arena_, {});
    if (!device) return std::unexpected(device.error());
    device_ = std::move(*device);
    return {};
  }
  bool is_alive() {
    if (queue_ == nullptr) queue_ = std::move(device_->open_queue(QueueId(0), pool_).value());
    return queue_->alive();
  }

  BondSysfs sys_;
  ibv_device** list_ = nullptr;
  Result<Arena> arena_ = Arena::create(size_t{8} << 20, false);
  PacketPool pool_{arena_->bytes(), 2048};
  std::unique_ptr<Device> device_;
  std::unique_ptr<Queue> queue_;
};
INSTANTIATE_TEST_SUITE_P(, OpenedBonds,
                         testing::Values(Kind{"verbs", open_verbs}, Kind{"mlx5", open_mlx5}),
                         [](const auto& p) { return p.param.name; });

TEST_P(OpenedBonds, TheActiveMembersDeviceUntilItIsNot) {
  sys_.add_bond("active-backup 1", "ens1f0 ens2f0", "ens2f0");
  ASSERT_TRUE(open());
  EXPECT_FALSE(is_open(0));
  EXPECT_TRUE(is_open(1));
  EXPECT_TRUE(is_alive());
  sys_.set_active("");
  EXPECT_TRUE(is_alive()) << "nobody else receives either";
  sys_.set_active("ens2f0");
  EXPECT_TRUE(is_alive());
  sys_.set_active("ens1f0");
  EXPECT_FALSE(is_alive());
  EXPECT_FALSE(queue_->arm());
}

TEST_P(OpenedBonds, AMemberOpenedByItselfIsNobodysBackup) {
  sys_.add_bond("active-backup 1", "ens1f0 ens2f0", "ens1f0");
  ASSERT_TRUE(open("ens2f0"));
  EXPECT_TRUE(is_open(1));
  EXPECT_TRUE(is_alive());
}

TEST_P(OpenedBonds, MembersWithDevicesOfTheirOwnAreRefused) {
  sys_.add_bond("802.3ad 4", "ens1f0 ens2f0", "");
  const auto refused = open();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENOTSUP);
  EXPECT_STREQ(refused.error().where, "bond whose members receive by devices of their own");
  EXPECT_FALSE(is_open(0) || is_open(1));
}

TEST_P(OpenedBonds, NoneIsActive) {
  sys_.add_bond("active-backup 1", "ens1f0 ens2f0", "");
  const auto refused = open();
  ASSERT_FALSE(refused);
  EXPECT_STREQ(refused.error().where, "bond without an active member");
  EXPECT_FALSE(is_open(0) || is_open(1));
}

/// The function with the device need not be that of the active member.
TEST_P(OpenedBonds, OneDeviceForTheCard) {
  sys_.add_member("ens1f1", "0000:3b:00.1", nullptr);
  for (const char* mode : {"802.3ad 4", "active-backup 1"}) {
    sys_.add_bond(mode, "ens1f0 ens1f1", mode[0] == 'a' ? "ens1f0" : "");
    ASSERT_TRUE(open()) << mode;
    EXPECT_TRUE(is_open(0));
    EXPECT_TRUE(is_alive());
    sys_.set_active("ens1f1");
    EXPECT_TRUE(is_alive()) << "it has the frames of both";
    queue_.reset();
    device_.reset();
  }
}

}  // namespace
}  // namespace vireo::test
