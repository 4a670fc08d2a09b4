#include "core/checksum.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace vireo {
namespace {

using checksum::detail::Kernel;

/// RFC 1071 as it is written: big-endian words added one by one.
uint16_t naive(const std::byte* p, size_t n) {
  uint32_t s = 0;
  for (size_t i = 0; i < n; ++i) {
    s += static_cast<uint32_t>(p[i]) << (i % 2 == 0 ? 8 : 0);
    s = (s & 0xffff) + (s >> 16);
  }
  return static_cast<uint16_t>(s);
}

/// A sum of ours as the host-order value the RFC speaks of; the two zeros made one.
uint16_t host(checksum::Sum s) {
  const auto v = std::byteswap(static_cast<uint16_t>(checksum::fold(s)));
  return v == 0xffff ? 0 : v;
}
uint16_t one_zero(uint16_t v) { return v == 0xffff ? 0 : v; }

class ChecksumKernel : public testing::TestWithParam<Kernel> {
 protected:
  void SetUp() override {
    if (!checksum::detail::use_kernel(GetParam())) GTEST_SKIP() << "not on this processor";
  }
  void TearDown() override {
    if (!checksum::detail::use_kernel(Kernel::kAvx512)) checksum::detail::use_kernel(Kernel::kAvx2);
  }
};

std::vector<std::byte> random_bytes(size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<std::byte> v(n);
  for (auto& b : v) b = static_cast<std::byte>(rng());
  return v;
}

TEST_P(ChecksumKernel, SumEqualsTheNaiveOneAtEveryLengthAndAlignment) {
  const auto data = random_bytes(2200, 1);
  for (size_t n = 0; n <= 2048; ++n)
    for (size_t at = 0; at < (n < 300 ? 70U : 9U); ++at)
      ASSERT_EQ(host(checksum::sum(data.data() + at, n)), one_zero(naive(data.data() + at, n)))
          << n << " bytes at " << at;
}

TEST_P(ChecksumKernel, LargestCarriesAreKept) {
  const std::vector<std::byte> ones(70000, std::byte{0xff});
  for (size_t n : {2U, 63U, 64U, 65U, 127U, 1460U, 9000U, 65535U, 70000U})
    EXPECT_EQ(host(checksum::sum(ones.data(), n)), one_zero(naive(ones.data(), n))) << n;
}

TEST_P(ChecksumKernel, CopyCopiesExactlyAndSums) {
  const auto src = random_bytes(2200, 2);
  std::vector<std::byte> dst(2300);
  for (size_t n = 0; n <= 2048; n += n < 200 ? 1 : 37)
    for (size_t from = 0; from < 9; ++from)
      for (size_t to : {0U, 1U, 3U, 8U, 31U}) {
        std::fill(dst.begin(), dst.end(), std::byte{0x5a});
        const auto s = checksum::copy_and_sum(dst.data() + to, src.data() + from, n);
        ASSERT_EQ(host(s), one_zero(naive(src.data() + from, n)));
        ASSERT_EQ(std::memcmp(dst.data() + to, src.data() + from, n), 0);
        for (size_t i = 0; i < to; ++i) ASSERT_EQ(dst[i], std::byte{0x5a}) << "before";
        for (size_t i = to + n; i < dst.size(); ++i) ASSERT_EQ(dst[i], std::byte{0x5a}) << "after";
      }
}

TEST_P(ChecksumKernel, DoesNotReadBeyond) {  // for the sanitizer: exact heap blocks
  for (size_t n = 1; n <= 600; ++n) {
    auto src = std::make_unique<std::byte[]>(n);
    auto dst = std::make_unique<std::byte[]>(n);
    std::fill_n(src.get(), n, std::byte{1});
    ASSERT_EQ(checksum::fold(checksum::sum(src.get(), n)),
              checksum::fold(checksum::copy_and_sum(dst.get(), src.get(), n)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ChecksumKernel,
                         testing::Values(Kernel::kPortable, Kernel::kAvx2, Kernel::kAvx512));

TEST(Checksum, WidestKernelIsChosenBeforeMain) {
  const bool wide = __builtin_cpu_supports("avx512bw") || __builtin_cpu_supports("avx2");
  const auto chosen = checksum::detail::sum_large;
  ASSERT_TRUE(checksum::detail::use_kernel(Kernel::kPortable));
  EXPECT_EQ(chosen != checksum::detail::sum_large, wide);
  if (!checksum::detail::use_kernel(Kernel::kAvx512)) checksum::detail::use_kernel(Kernel::kAvx2);
  EXPECT_EQ(chosen, checksum::detail::sum_large);
}

TEST(Checksum, ExampleOfRfc1071) {
  const uint8_t d[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
  EXPECT_EQ(host(checksum::sum(d, sizeof d)), 0xddf2);
  EXPECT_EQ(static_cast<uint16_t>(checksum::finish(checksum::sum(d, sizeof d))), 0x220d);
}

TEST(Checksum, CombineHandlesOddParts) {
  const auto data = random_bytes(400, 3);
  for (size_t cut = 0; cut <= data.size(); ++cut) {
    const auto a = checksum::sum(data.data(), cut);
    const auto b = checksum::sum(data.data() + cut, data.size() - cut);
    ASSERT_EQ(host(checksum::combine(a, b, cut % 2 == 1)),
              one_zero(naive(data.data(), data.size())));
  }
}

TEST(Checksum, PseudoHeadersEqualTheirBytes) {
  const be32 s(0x0a000001);
  const be32 d(0xc0a801fe);
  const uint8_t v4[] = {10, 0, 0, 1, 192, 168, 1, 254, 0, 6, 0x05, 0xdc};
  const auto want = one_zero(naive(reinterpret_cast<const std::byte*>(v4), sizeof v4));
  EXPECT_EQ(host(checksum::pseudo_v4(s, d, IpProto::kTcp, 1500)), want);
  EXPECT_EQ(host(checksum::pseudo(IpAddr::v4(s), IpAddr::v4(d), IpProto::kTcp, 1500)), want);

  const auto a = *IpAddr::parse("2001:db8::1");
  const auto b = *IpAddr::parse("fe80::f:ffff:abcd");
  std::byte v6[40]{};
  std::memcpy(v6, a.bytes().data(), 16);
  std::memcpy(v6 + 16, b.bytes().data(), 16);
  v6[33] = std::byte{0x01};  // length 0x00011234
  v6[34] = std::byte{0x12};
  v6[35] = std::byte{0x34};
  v6[39] = std::byte{17};
  EXPECT_EQ(host(checksum::pseudo(a, b, IpProto::kUdp, 0x11234)), one_zero(naive(v6, sizeof v6)));
}

/// Step by step, as by hand.
checksum::Sum fold_slowly(uint64_t s) {
  while (s > 0xffff) s = (s & 0xffff) + (s >> 16);
  return static_cast<checksum::Sum>(s);
}

TEST(Checksum, FoldsAndAddsWithTheCarryBroughtRound) {
  const uint64_t edges[] = {0,
                            1,
                            0xffff,
                            0x10000,
                            0x1fffe,
                            0xffffffff,
                            0x100000000,
                            0x1fffffffe,
                            0xffffffff00000000,
                            0xffff0000ffff0000,
                            ~uint64_t{0} - 1,
                            ~uint64_t{0}};
  std::mt19937_64 rng(5);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t a = i % 2 == 0 ? edges[rng() % std::size(edges)] : rng() >> rng() % 64;
    const uint64_t b = i % 3 == 0 ? edges[rng() % std::size(edges)] : rng() >> rng() % 64;
    ASSERT_EQ(checksum::fold(a), fold_slowly(a)) << a;
    ASSERT_EQ(checksum::fold(checksum::add(a, b)),
              fold_slowly(uint64_t{fold_slowly(a)} + fold_slowly(b)))
        << a << " and " << b;
  }
}

TEST(Checksum, UdpZeroIsSentAsOnes) {
  EXPECT_EQ(static_cast<uint16_t>(checksum::finish_udp(0xffff)), 0xffff);
  EXPECT_EQ(static_cast<uint16_t>(checksum::finish(0xffff)), 0);
}

}  // namespace
}  // namespace vireo
