#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "core/flow_hash.h"

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

}  // namespace
}  // namespace vireo
