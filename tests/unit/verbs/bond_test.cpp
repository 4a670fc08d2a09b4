// Which bonds an RDMA device carries, on trees of sysfs that drivers make.
#include "dev/verbs/bond.h"

#include <gtest/gtest.h>

#include "tests/unit/verbs/bond_sysfs.h"

namespace vireo::verbs {
namespace {

using Names = std::vector<std::string>;

class Bonds : public testing::Test {
 protected:
  std::optional<Bond> bond() const { return read_bond("bond0", sys_.str()); }
  const char* refusal(const std::string& function, const std::string& rdma) const {
    return refusal_of(*bond(), {rdma, sys_.path_of(function, rdma)}, sys_.str());
  }
  bool is_common_to_all(const std::string& function, const std::string& rdma) const {
    return is_common(*bond(), {rdma, sys_.path_of(function, rdma)}, sys_.str());
  }
  test::BondSysfs sys_;
};

TEST_F(Bonds, OtherInterfacesAreNone) {
  sys_.add_member("ens1f0", "0000:3b:00.0", "mlx5_0");
  EXPECT_FALSE(read_bond("ens1f0", sys_.str()));
  EXPECT_FALSE(read_bond("", sys_.str()));
  EXPECT_FALSE(bond());
}

TEST_F(Bonds, OfBackupsTheActiveOneReceives) {
  sys_.add_bond("active-backup 1", "ens1f0 ens2f0", "ens2f0");
  sys_.add_member("ens1f0", "0000:3b:00.0", "mlx5_0");
  sys_.add_member("ens2f0", "0000:86:00.0", "mlx5_1");
  ASSERT_TRUE(bond());
  EXPECT_EQ(bond()->members, (Names{"ens1f0", "ens2f0"}));
  EXPECT_EQ(receivers(*bond()), Names{"ens2f0"});
  EXPECT_EQ(refusal("0000:86:00.0", "mlx5_1"), nullptr);
  EXPECT_FALSE(is_common_to_all("0000:86:00.0", "mlx5_1"));
  sys_.set_active("ens1f0");
  EXPECT_EQ(active_member("bond0", sys_.str()), "ens1f0");
}

TEST_F(Bonds, WithoutAnActiveOneNobodyDoes) {
  sys_.add_bond("active-backup 1", "ens1f0 ens2f0", "");
  sys_.add_member("ens1f0", "0000:3b:00.0", "mlx5_0");
  sys_.add_member("ens2f0", "0000:86:00.0", "mlx5_1");
  EXPECT_EQ(receivers(*bond()), Names{});
  EXPECT_STREQ(refusal("0000:3b:00.0", "mlx5_0"), "bond without an active member");
}

TEST_F(Bonds, TwoDevicesEachReceiveTheirOwn) {
  sys_.add_bond("802.3ad 4", "ens1f0 ens2f0", "");
  sys_.add_member("ens1f0", "0000:3b:00.0", "mlx5_0");
  sys_.add_member("ens2f0", "0000:86:00.0", "mlx5_1");
  EXPECT_EQ(receivers(*bond()), (Names{"ens1f0", "ens2f0"}));
  EXPECT_STREQ(refusal("0000:3b:00.0", "mlx5_0"),
               "bond whose members receive by devices of their own");
}

TEST_F(Bonds, TwoDevicesOfOneCardDoSo) {
  sys_.add_bond("802.3ad 4", "ens1f0 ens1f1", "");
  sys_.add_member("ens1f0", "0000:3b:00.0", "mlx5_0");
  sys_.add_member("ens1f1", "0000:3b:00.1", "mlx5_1");
  EXPECT_NE(refusal("0000:3b:00.0", "mlx5_0"), nullptr);
}

TEST_F(Bonds, OneDeviceForACardsPorts) {
  for (const char* mode : {"802.3ad 4", "active-backup 1"}) {
    sys_.add_bond(mode, "ens1f0 ens1f1", "");
    if (mode[0] == '8') {
      sys_.add_member("ens1f0", "0000:3b:00.0", "mlx5_bond_0");
      sys_.add_member("ens1f1", "0000:3b:00.1", nullptr);
    }
    EXPECT_EQ(refusal("0000:3b:00.0", "mlx5_bond_0"), nullptr) << mode;
    EXPECT_TRUE(is_common_to_all("0000:3b:00.0", "mlx5_bond_0")) << mode;
  }
}

/// mlx4: one function and one device for both ports; bonded by the driver, it shows one port.
TEST_F(Bonds, PortsOfOneFunction) {
  sys_.add_bond("balance-xor 2", "eth2 eth3", "");
  sys_.add_member("eth2", "0000:3b:00.0", "mlx4_0", "0");
  sys_.add_member("eth3", "0000:3b:00.0", "mlx4_0", "1");
  EXPECT_EQ(refusal("0000:3b:00.0", "mlx4_0"), nullptr);
  sys_.add_second_port("0000:3b:00.0", "mlx4_0");
  EXPECT_NE(refusal("0000:3b:00.0", "mlx4_0"), nullptr);
}

TEST_F(Bonds, AMemberThatIsNoRdmaDevice) {
  sys_.add_bond("balance-xor 2", "ens1f0 eno1", "");
  sys_.add_member("ens1f0", "0000:3b:00.0", "mlx5_0");
  sys_.add_member("eno1", "0000:01:00.0", nullptr);
  EXPECT_NE(refusal("0000:3b:00.0", "mlx5_0"), nullptr);
}

TEST_F(Bonds, OneMemberOrNone) {
  sys_.add_bond("802.3ad 4", "ens1f0", "");
  sys_.add_member("ens1f0", "0000:3b:00.0", "mlx5_0");
  EXPECT_EQ(refusal("0000:3b:00.0", "mlx5_0"), nullptr);
  sys_.add_bond("802.3ad 4", "", "");
  EXPECT_STREQ(refusal("0000:3b:00.0", "mlx5_0"), "bond without members");
}

}  // namespace
}  // namespace vireo::verbs
