#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "core/flow_hash.h"
#include "core/toeplitz.h"

namespace vireo {
namespace {

std::vector<uint8_t> counting(size_t n) {
  std::vector<uint8_t> v(n);
  std::iota(v.begin(), v.end(), uint8_t{0});
  return v;
}

// Reference: the paper's example, as OpenSSL computes it too.
TEST(SipHash, PaperVector24) {
  const FlowHashKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  const auto m = counting(15);
  EXPECT_EQ((siphash<2, 4>(key, m.data(), m.size())), 0xa129ca6149be45e5U);
}

// Reference: CPython's hash() of bytes with PYTHONHASHSEED=0 (key zero).
TEST(SipHash, CPythonVectors13) {
  const std::pair<size_t, uint64_t> cases[] = {{1, 0x68a914128e01e473},
                                               {7, 0x2f098ab0c751325a},
                                               {8, 0xead411e67ebe2eea},
                                               {40, 0x95bc321ab41d8206}};
  for (const auto& [n, want] : cases) {
    const auto m = counting(n);
    EXPECT_EQ((siphash<1, 3>(FlowHashKey{}, m.data(), n)), want) << n;
  }
}

TEST(FlowHash, KeysAreRandomAndMatter) {
  const auto a = FlowHashKey::random();
  const auto b = FlowHashKey::random();
  EXPECT_FALSE(a.k0 == b.k0 && a.k1 == b.k1);
  const auto m = counting(40);
  EXPECT_NE(flow_hash(a, m.data(), m.size()), flow_hash(b, m.data(), m.size()));
}

constexpr uint8_t kMicrosoftKey[40] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                       0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                       0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                       0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

Endpoint endpoint(const char* a, uint16_t port) { return {*IpAddr::parse(a), port, 0}; }

// Source: "Verifying the RSS hash calculation", Microsoft.
TEST(Toeplitz, MicrosoftVectors) {
  const auto v4 = [](const char* s, uint16_t sp, const char* d, uint16_t dp, bool ports) {
    return rss_hash(kMicrosoftKey, endpoint(s, sp), endpoint(d, dp), ports);
  };
  EXPECT_EQ(v4("66.9.149.187", 2794, "161.142.100.80", 1766, false), 0x323e8fc2U);
  EXPECT_EQ(v4("66.9.149.187", 2794, "161.142.100.80", 1766, true), 0x51ccc178U);
  EXPECT_EQ(v4("199.92.111.2", 14230, "65.69.140.83", 4739, false), 0xd718262aU);
  EXPECT_EQ(v4("199.92.111.2", 14230, "65.69.140.83", 4739, true), 0xc626b0eaU);
  EXPECT_EQ(v4("24.19.198.95", 12898, "12.22.207.184", 38024, true), 0x5c2b394aU);
  const auto s = "3ffe:2501:200:1fff::7";
  const auto d = "3ffe:2501:200:3::1";
  EXPECT_EQ(v4(s, 2794, d, 1766, false), 0x2cc18cd5U);
  EXPECT_EQ(v4(s, 2794, d, 1766, true), 0x40207d3dU);
}

}  // namespace
}  // namespace vireo
