// Frames that are given to the kernel: it receives them by the interface, as they are.
#include <gtest/gtest.h>

#include <thread>

#include "end.h"
#include "lab.h"
#include "raw_port.h"
#include "sides.h"

namespace vireo::test {
namespace {

class KernelPath : public ::testing::TestWithParam<XdpMode> {
 protected:
  void SetUp() override {
    if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  }
};

TEST_P(KernelPath, TheKernelReceivesWhatItIsGiven) {
  Sides s(GetParam());
  ASSERT_TRUE(s.is_open) << s.end.error.where;
  for (const bool v6 : {false, true})
    for (const size_t n : {0U, 1U, 1472U, 2900U}) {
      FrameSpec spec;
      spec.from = {*IpAddr::parse(v6 ? "fd00::1:2" : "10.0.0.2"), 5000, 0};
      spec.to = {*IpAddr::parse(v6 ? "fd00:ffff::1" : "192.168.250.1"), kPort, 0};
      std::swap(spec.from_mac, spec.to_mac);
      const Bytes frame = build_frame(spec, numbered_payload(1, n));
      const auto given = s.device().give_to_kernel(frame);
      ASSERT_TRUE(given) << given.error().where << ": " << given.error().code;
      const auto got = s.kernel.receive(1000);
      ASSERT_TRUE(got);
      EXPECT_EQ(*got, frame);
    }
}

TEST_P(KernelPath, NoFrameIsLongerThanItsPage) {
  Sides s(GetParam());
  ASSERT_TRUE(s.is_open) << s.end.error.where;
  const auto given = s.device().give_to_kernel(Bytes(3073));
  EXPECT_FALSE(given);
  EXPECT_EQ(given.error().code, EMSGSIZE);
}

TEST_P(KernelPath, NotInAnotherNamespace) {
  Sides s(GetParam());
  ASSERT_TRUE(s.is_open) << s.end.error.where;
  std::thread([&] {
    ASSERT_EQ(unshare(CLONE_NEWNET), 0);
    const auto given = s.device().give_to_kernel(Bytes(60));
    EXPECT_FALSE(given);
    EXPECT_EQ(given.error().code, EPERM);
  }).join();
}

INSTANTIATE_TEST_SUITE_P(Modes, KernelPath, ::testing::Values(XdpMode::kNative, XdpMode::kGeneric),
                         [](const auto& i) {
                           return i.param == XdpMode::kNative ? "native" : "generic";
                         });

}  // namespace
}  // namespace vireo::test
