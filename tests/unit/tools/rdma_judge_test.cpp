// What the doctor says of RDMA devices that no machine of the tests has.
#include "tools/vireo-doctor/rdma_judge.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace vireo::doctor {
namespace {

verbs::DeviceFacts connectx() {
  verbs::DeviceFacts d;
  d.name = "mlx5_0";
  d.node = "/dev/infiniband/uverbs0";
  d.firmware = "22.36.1010";
  d.vendor = 0x15b3;
  d.part = 4125;
  d.most_requests = 32768;
  d.most_segments = 30;
  d.checksums = true;
  d.tso_max_bytes = 262144;
  d.clock_khz = 1'000'000;
  d.ports.push_back({1, true, true, 100, {{{IfIndex(3), "ens1"}, true}, {{IfIndex(9), "ens1.7"}}}});
  return d;
}

RdmaTrial good() {
  RdmaTrial t;
  t.ifindex = IfIndex(3);
  t.interface = "ens1";
  t.mode = "mlx5";
  t.inline_bytes = 204;
  t.rules = {{"5-tuple", true, 0}, {"3-tuple", true, 0}, {"IPv6", false, 0}};
  return t;
}

const Check* find(const RdmaLine& l, std::string_view name) {
  for (const Check& c : l.checks)
    if (c.name == name) return &c;
  return nullptr;
}

RdmaLine judged(const verbs::DeviceFacts& d, const RdmaTrial& t, const PciFacts& pci = {},
                Level refused = Level::kFail) {
  return judge(d, pci, std::span(&t, 1), 204, refused);
}

TEST(RdmaJudge, ASoundDeviceHasNothingToMend) {
  const RdmaLine l = judged(connectx(), good(), {"mlx5_core", "identity", "1"});
  EXPECT_EQ(l.summary,
            "firmware 22.36.1010, vendor 0x15b3 part 4125, driver mlx5_core, NUMA node 1");
  ASSERT_EQ(l.ports.size(), 1U);
  EXPECT_EQ(l.ports[0], "port 1: Ethernet, active, 100 Gbit/s; ens1 (by sysfs), ens1.7 (by GID)");
  for (const Check& c : l.checks) {
    EXPECT_EQ(c.level, Level::kOk) << c.name << ": " << c.text;
    EXPECT_EQ(c.remedy, "") << c.name;
  }
  ASSERT_NE(find(l, "flow rules"), nullptr);
  EXPECT_EQ(find(l, "flow rules")->text, "ens1: 5-tuple, 3-tuple, IPv6");
}

TEST(RdmaJudge, ADeviceThatDoesNotOpenIsOneLine) {
  verbs::DeviceFacts d = connectx();
  d.open_error = EACCES;
  const RdmaLine l = judged(d, good());
  ASSERT_EQ(l.checks.size(), 1U);
  EXPECT_EQ(l.checks[0].level, Level::kFail);
  EXPECT_EQ(l.checks[0].text, "/dev/infiniband/uverbs0: Permission denied");
  EXPECT_EQ(l.checks[0].why, Carriage::kRights);
  EXPECT_NE(l.checks[0].remedy.find("udev"), std::string::npos);
}

TEST(RdmaJudge, TheRemedyFollowsTheCause) {
  struct {
    int error;
    Carriage why;
    const char* word;
  } const rows[] = {{EPERM, Carriage::kRights, "CAP_NET_RAW"},
                    {ENOMEM, Carriage::kMemory, "ulimit -l"},
                    {EBUSY, Carriage::kDeviceBusy, "another process"},
                    {ENOTSUP, Carriage::kDevice, "raw-packet queue pairs"},
                    {EIO, Carriage::kDevice, "dmesg"}};
  for (const auto& row : rows) {
    RdmaTrial t = good();
    t.error = row.error;
    t.where = "the step";
    const RdmaLine l = judged(connectx(), t);
    const Check* const c = find(l, "queue pair");
    ASSERT_NE(c, nullptr) << row.error;
    EXPECT_EQ(c->level, Level::kFail);
    EXPECT_EQ(c->why, row.why) << row.error;
    EXPECT_EQ(c->text, std::string("ens1: the step: ") + strerror(row.error));
    EXPECT_NE(c->remedy.find(row.word), std::string::npos) << c->remedy;
    EXPECT_EQ(find(l, "flow rules"), nullptr) << "none were asked for";
    EXPECT_FALSE(t.works());
  }
}

TEST(RdmaJudge, ABondThatIsNotCarriedSaysWhichWouldBe) {
  RdmaTrial t = good();
  t.interface = "bond0";
  t.error = ENOTSUP;
  t.where = "bond whose members receive by devices of their own";
  const RdmaLine l = judged(connectx(), t);
  const Check* const c = find(l, "queue pair");
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->text,
            "bond0: bond whose members receive by devices of their own: Operation not supported");
  EXPECT_NE(c->remedy.find("active-backup"), std::string::npos) << c->remedy;
}

TEST(RdmaJudge, ARefusedRuleOfANeededKindIsNamed) {
  RdmaTrial t = good();
  t.rules[1].error = EOPNOTSUPP;
  EXPECT_FALSE(t.works());
  const RdmaLine old = judged(connectx(), t, {"mlx4_core", "", ""});
  EXPECT_EQ(find(old, "flow rules")->level, Level::kFail);
  EXPECT_EQ(find(old, "flow rules")->text, "ens1: 3-tuple refused: Operation not supported");
  EXPECT_NE(find(old, "flow rules")->remedy.find("log_num_mgm_entry_size=-1"), std::string::npos);
  const RdmaLine other = judged(connectx(), t, {"mlx5_core", "", ""});
  EXPECT_EQ(find(other, "flow rules")->remedy.find("mlx4"), std::string::npos);
  t.rules[1].error = EPERM;
  EXPECT_NE(find(judged(connectx(), t), "flow rules")->remedy.find("CAP_NET_RAW"),
            std::string::npos);
}

TEST(RdmaJudge, ARuleThatIsNotNeededIsANote) {
  RdmaTrial t = good();
  t.rules[2].error = EINVAL;
  EXPECT_TRUE(t.works());
  unsigned notes = 0;
  for (const Check& c : judged(connectx(), t).checks)
    if (c.level == Level::kNote) {
      ++notes;
      EXPECT_EQ(c.text, "ens1: IPv6: Invalid argument: such flows stay with the kernel");
    }
  EXPECT_EQ(notes, 1U);
}

TEST(RdmaJudge, WhatIsDoneWithoutIsANote) {
  verbs::DeviceFacts d = connectx();
  d.checksums = false;
  d.tso_max_bytes = 0;
  RdmaTrial t = good();
  t.inline_bytes = 64;
  const RdmaLine l = judged(d, t, {"mlx5_core", "DMA-FQ", "0"});
  for (const char* name : {"checksums", "segmentation", "inline data", "IOMMU"}) {
    ASSERT_NE(find(l, name), nullptr) << name;
    EXPECT_EQ(find(l, name)->level, Level::kNote) << name;
  }
}

TEST(RdmaJudge, AnInfiniBandPortCarriesNothing) {
  verbs::DeviceFacts d = connectx();
  d.ports[0].ethernet = false;
  d.ports[0].interfaces.clear();
  const RdmaLine l = judged(d, good());
  EXPECT_EQ(l.ports[0], "port 1: InfiniBand, active, 100 Gbit/s; no interface");
  EXPECT_EQ(find(l, "link layer")->level, Level::kFail);
  EXPECT_EQ(find(l, "queue pair"), nullptr) << "the interface is not this device's";
}

TEST(RdmaJudge, WhereAfXdpTakesItsPlaceNothingFails) {
  RdmaTrial t = good();
  t.error = EPERM;
  for (const Check& c : judged(connectx(), t, {}, Level::kNote).checks)
    EXPECT_NE(c.level, Level::kFail) << c.name;
}

TEST(RdmaJudge, PciFactsAreReadFromSysfs) {
  namespace fs = std::filesystem;
  const fs::path dir = fs::path(testing::TempDir()) / ("rdma-" + std::to_string(getpid()));
  fs::create_directories(dir / "device/iommu_group");
  fs::create_directories(dir / "drivers/mlx5_core");
  fs::create_directory_symlink(dir / "drivers/mlx5_core", dir / "device/driver");
  std::ofstream(dir / "device/iommu_group/type") << "DMA-FQ\n";
  std::ofstream(dir / "device/numa_node") << "1\n";
  const PciFacts f = pci_facts(dir.string());
  EXPECT_EQ(f.driver, "mlx5_core");
  EXPECT_EQ(f.iommu, "DMA-FQ");
  EXPECT_EQ(f.numa, "1");
  EXPECT_EQ(pci_facts("").driver, "");
  fs::remove_all(dir);
}

}  // namespace
}  // namespace vireo::doctor
