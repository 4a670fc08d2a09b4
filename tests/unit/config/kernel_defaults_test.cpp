#include "config/kernel_defaults.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace vireo {
namespace {

class KernelDefaultsTest : public testing::Test {
 protected:
  KernelDefaultsTest() {
    char name[] = "/tmp/vireo-sysctl-XXXXXX";
    root_ = mkdtemp(name);
    std::filesystem::create_directories(root_ + "/net/ipv4");
    std::filesystem::create_directories(root_ + "/net/core");
  }
  ~KernelDefaultsTest() override { std::filesystem::remove_all(root_); }
  void put(const std::string& name, std::string_view text) {
    std::ofstream(root_ + "/net/" + name) << text;
  }

  std::string root_;
};

TEST_F(KernelDefaultsTest, MissingFilesKeepLinuxsOwn) {
  const auto d = KernelDefaults::read("/nonexistent");
  EXPECT_EQ(d.tcp_rmem.initial, 131'072);
  EXPECT_EQ(d.tcp_wmem.most, 4'194'304);
  EXPECT_EQ(d.tcp_congestion_control, "cubic");
  EXPECT_EQ(d.tcp_keepalive_time, Duration::s(7200));
  EXPECT_TRUE(d.tcp_sack);
  EXPECT_EQ(d.tcp_ecn, 2);
  EXPECT_EQ(d.ip_local_port_range.first, 32'768);
}

TEST_F(KernelDefaultsTest, ReadsEachFile) {
  put("ipv4/tcp_rmem", "4097\t131073\t6291457\n");
  put("ipv4/tcp_wmem", "1 2 3\n");
  put("core/rmem_default", "11\n");
  put("core/rmem_max", "12\n");
  put("core/wmem_default", "13\n");
  put("core/wmem_max", "14\n");
  put("core/somaxconn", "15\n");
  put("ipv4/tcp_congestion_control", "reno\n");
  put("ipv4/tcp_keepalive_time", "16\n");
  put("ipv4/tcp_keepalive_intvl", "17\n");
  put("ipv4/tcp_keepalive_probes", "18\n");
  put("ipv4/tcp_syn_retries", "19\n");
  put("ipv4/tcp_synack_retries", "20\n");
  put("ipv4/tcp_retries2", "21\n");
  put("ipv4/tcp_fin_timeout", "22\n");
  put("ipv4/tcp_max_orphans", "23\n");
  put("ipv4/tcp_mtu_probing", "2\n");
  put("ipv4/tcp_base_mss", "1200\n");
  put("ipv4/tcp_mtu_probe_floor", "64\n");
  put("ipv4/tcp_probe_threshold", "16\n");
  put("ipv4/tcp_probe_interval", "300\n");
  put("ipv4/tcp_timestamps", "0\n");
  put("ipv4/tcp_sack", "0\n");
  put("ipv4/tcp_window_scaling", "0\n");
  put("ipv4/tcp_ecn", "1\n");
  put("ipv4/ip_local_port_range", "1024\t65535\n");
  const auto d = KernelDefaults::read(root_);
  EXPECT_EQ(d.tcp_rmem.least, 4097);
  EXPECT_EQ(d.tcp_rmem.initial, 131'073);
  EXPECT_EQ(d.tcp_rmem.most, 6'291'457);
  EXPECT_EQ(d.tcp_wmem.initial, 2);
  EXPECT_EQ(d.rmem_default, 11);
  EXPECT_EQ(d.rmem_max, 12);
  EXPECT_EQ(d.wmem_default, 13);
  EXPECT_EQ(d.wmem_max, 14);
  EXPECT_EQ(d.somaxconn, 15);
  EXPECT_EQ(d.tcp_congestion_control, "reno");
  EXPECT_EQ(d.tcp_keepalive_time, Duration::s(16));
  EXPECT_EQ(d.tcp_keepalive_intvl, Duration::s(17));
  EXPECT_EQ(d.tcp_keepalive_probes, 18);
  EXPECT_EQ(d.tcp_syn_retries, 19);
  EXPECT_EQ(d.tcp_synack_retries, 20);
  EXPECT_EQ(d.tcp_retries2, 21);
  EXPECT_EQ(d.tcp_fin_timeout, Duration::s(22));
  EXPECT_EQ(d.tcp_max_orphans, 23);
  EXPECT_EQ(d.tcp_mtu_probing, 2);
  EXPECT_EQ(d.tcp_base_mss, 1200);
  EXPECT_EQ(d.tcp_mtu_probe_floor, 64);
  EXPECT_EQ(d.tcp_probe_threshold, 16);
  EXPECT_EQ(d.tcp_probe_interval, Duration::s(300));
  EXPECT_FALSE(d.tcp_timestamps);
  EXPECT_FALSE(d.tcp_sack);
  EXPECT_FALSE(d.tcp_window_scaling);
  EXPECT_EQ(d.tcp_ecn, 1);
  EXPECT_EQ(d.ip_local_port_range.first, 1024);
  EXPECT_EQ(d.ip_local_port_range.last, 65'535);
}

TEST_F(KernelDefaultsTest, AFastOpenKeyIsOfLittleEndianWords) {  // ip-sysctl: tcp_fastopen_key
  const auto read = [this](const char* text) {
    put("ipv4/tcp_fastopen_key", text);
    std::vector<int> bytes;
    for (const std::byte b : KernelDefaults::read_fastopen_key(root_))
      bytes.push_back(static_cast<int>(b));
    return bytes;
  };
  const std::vector<int> one{4, 3, 2, 1, 0, 0, 0, 0xff, 8, 7, 6, 5, 0x44, 0x33, 0x22, 0x11};
  std::vector<int> two = one;
  two.insert(two.end(), 16, 0xaa);
  EXPECT_EQ(read("01020304-ff000000-05060708-11223344\n"), one);
  EXPECT_EQ(read("01020304-ff000000-05060708-11223344,aaaaaaaa-aaaaaaaa-aaaaaaaa-aaaaaaaa\n"), two);
  for (const char* none : {"00000000-00000000-00000000-00000000\n", "\n", "1-2-3\n", "1-2-3-4-5\n",
                           "1-2-3-x\n", "1-2-3-4,\n", "1-2-3-100000000\n"})
    EXPECT_EQ(read(none), std::vector<int>()) << none;
  EXPECT_TRUE(KernelDefaults::read_fastopen_key("/nonexistent").empty());
}

TEST_F(KernelDefaultsTest, NonsenseKeepsTheFallback) {
  put("ipv4/tcp_rmem", "9 8\n");
  put("ipv4/tcp_wmem", "9 8 7\n");
  put("core/rmem_default", "many\n");
  put("core/rmem_max", "99999999999\n");
  put("core/somaxconn", "");
  put("ipv4/tcp_congestion_control", "\n");
  put("ipv4/tcp_syn_retries", "-1\n");
  put("ipv4/tcp_retries2", "15 16\n");
  put("ipv4/tcp_timestamps", "2\n");
  put("ipv4/ip_local_port_range", "60000 1024\n");
  const auto d = KernelDefaults::read(root_);
  EXPECT_EQ(d.tcp_rmem.least, 4096);
  EXPECT_EQ(d.tcp_wmem.most, 4'194'304);
  EXPECT_EQ(d.rmem_default, 212'992);
  EXPECT_EQ(d.rmem_max, 212'992);
  EXPECT_EQ(d.somaxconn, 4096);
  EXPECT_EQ(d.tcp_congestion_control, "cubic");
  EXPECT_EQ(d.tcp_syn_retries, 6);
  EXPECT_EQ(d.tcp_retries2, 15);
  EXPECT_TRUE(d.tcp_timestamps);  // 2 is on, without random offsets
  EXPECT_EQ(d.ip_local_port_range.first, 32'768);
}

TEST_F(KernelDefaultsTest, AgreesWithThisKernel) {
  std::ifstream file("/proc/sys/net/ipv4/tcp_rmem");
  KernelDefaults::BufferSizes b{};
  if (!(file >> b.least >> b.initial >> b.most)) GTEST_SKIP() << "no tcp_rmem here";
  const auto d = KernelDefaults::read();
  EXPECT_EQ(d.tcp_rmem.least, b.least);
  EXPECT_EQ(d.tcp_rmem.initial, b.initial);
  EXPECT_EQ(d.tcp_rmem.most, b.most);
}

}  // namespace
}  // namespace vireo
