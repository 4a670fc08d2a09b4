// tc(8) and IPsec.
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/bpf_constant.h"
#include "tests/unit/filter/rules.h"

namespace vireo::filter {
namespace {

class Other : public ::testing::Test {
 protected:
  void SetUp() override { enter_new_namespace(); }
};

TEST_F(Other, FiltersOfAnInterface) {
  run("tc qdisc add dev eth0 clsact && tc qdisc add dev eth1 root pfifo");
  EXPECT_EQ(judged(tcp_listener(80)), "");
  if (std::system("tc filter add dev eth0 ingress matchall action pass 2>/dev/null") != 0 &&
      std::system("tc filter add dev eth0 ingress protocol ip u32 match u32 0 0 action drop "
                  "2>/dev/null") != 0)
    GTEST_SKIP() << "this kernel has no filters of tc";
  EXPECT_EQ(judged(tcp_listener(80)), "tc filter ingress of eth0");
  Flow elsewhere = tcp_listener(80);
  elsewhere.interface = {IfIndex(11), "eth1"};
  EXPECT_EQ(judged(elsewhere), "");
}

/// A link that attaches a program which decides nothing to the ingress of eth0; closed by the
/// caller. -1: this kernel cannot (Linux 6.6).
int attach_program() {
  constexpr int kNext = -1, kTcxIngress = 46;
  const int program = load_constant_program(BPF_PROG_TYPE_SCHED_CLS, kNext, "test");
  bpf_attr a{};
  a.link_create.prog_fd = static_cast<uint32_t>(program);
  a.link_create.target_ifindex = 10;
  a.link_create.attach_type = kTcxIngress;
  const auto link = static_cast<int>(syscall(SYS_bpf, BPF_LINK_CREATE, &a, sizeof a));
  close(program);
  return link;
}

TEST_F(Other, ProgramsThatStay) {
  const int link = attach_program();
  if (link < 0) GTEST_SKIP() << "this kernel attaches no program without a qdisc";
  EXPECT_EQ(judged(tcp_listener(80)), "tc filter ingress of eth0");
  close(link);
  EXPECT_EQ(judged(tcp_listener(80)), "");
}

TEST_F(Other, ProgramsThatComeAndGo) {
  if (const int link = attach_program(); link < 0)
    GTEST_SKIP() << "this kernel attaches no program without a qdisc";
  else
    close(link);
  std::atomic<bool> is_over{false};
  std::atomic<int> times{0};
  std::thread other([&] {
    while (!is_over) {
      const int link = attach_program();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      close(link);
      ++times;
    }
  });
  for (int i = 0; i < 1000 && times <= 10; ++i) EXPECT_EQ(judged(tcp_listener(80)), "");
  is_over = true;
  other.join();
  EXPECT_GT(times, 10);
}

TEST_F(Other, PoliciesOfIpsec) {
  if (std::system(
          "ip xfrm policy add src 10.1.0.0/24 dst 10.9.0.0/16 dir out tmpl src 10.1.0.1 dst "
          "10.9.0.1 proto esp mode tunnel 2>/dev/null") != 0)
    GTEST_SKIP() << "this kernel has no IPsec";
  EXPECT_EQ(judged(tcp_client("10.9.0.5", 80)), "IPsec policy out (ip xfrm policy)");
  EXPECT_EQ(judged(tcp_client("10.8.0.5", 80)), "");
  EXPECT_NE(judged(tcp_listener(80, "10.1.0.1")), "") << "its answers may be for one of those";
  run("ip xfrm policy add src 10.1.0.0/24 dst 10.9.0.5/32 proto tcp dport 80 dir out priority 0 "
      "action allow && ip xfrm policy update src 10.1.0.0/24 dst 10.9.0.0/16 dir out priority 9 "
      "tmpl "
      "src 10.1.0.1 dst 10.9.0.1 proto esp mode tunnel");
}

}  // namespace
}  // namespace vireo::filter
