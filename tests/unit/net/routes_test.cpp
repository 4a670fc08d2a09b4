#include "stack/net/routes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

namespace vireo::net {
namespace {

Route route(const char* dst, uint8_t len, uint32_t metric = 0) {
  Route r;
  r.dst = *IpAddr::parse(dst);
  r.dst_len = len;
  r.metric = metric;
  r.hop.oif = IfIndex(1);
  return r;
}

RouteTable table(std::vector<Route> routes) {
  std::ranges::sort(routes, RouteTable::precedes);
  return {std::move(routes), false};
}

/// Lengths of the prefixes that contain `dst`, longest first.
std::vector<int> chain(const RouteTable& t, const char* dst) {
  std::vector<int> lens;
  for (auto m = t.longest(*IpAddr::parse(dst)); m; m = t.shorter(*m))
    lens.push_back(m->first->dst_len);
  return lens;
}

TEST(RouteTable, ClimbsFromTheLongestPrefix) {
  const RouteTable t = table({route("0.0.0.0", 0), route("10.0.0.0", 8), route("10.1.0.0", 16),
                              route("10.1.2.0", 24), route("10.1.2.3", 32), route("10.1.2.128", 25),
                              route("255.255.255.255", 32)});
  using V = std::vector<int>;
  EXPECT_EQ(chain(t, "10.1.2.3"), (V{32, 24, 16, 8, 0}));
  EXPECT_EQ(chain(t, "10.1.2.4"), (V{24, 16, 8, 0}));
  EXPECT_EQ(chain(t, "10.1.2.200"), (V{25, 24, 16, 8, 0}));
  EXPECT_EQ(chain(t, "10.200.0.0"), (V{8, 0}));
  EXPECT_EQ(chain(t, "0.0.0.0"), (V{0}));
  EXPECT_EQ(chain(t, "255.255.255.255"), (V{32, 0}));
  EXPECT_EQ(chain(table({}), "10.1.2.3"), V{});
  EXPECT_EQ(chain(table({route("10.0.0.0", 8)}), "9.255.255.255"), V{});
  EXPECT_EQ(chain(table({route("10.0.0.0", 8)}), "11.0.0.0"), V{});
}

TEST(RouteTable, KeepsIpv6AndMappedPrefixesApart) {
  const RouteTable t =
      table({route("::", 0), route("::ffff:0:0", 96), route("fe80::", 10), route("fe80::1", 128)});
  EXPECT_EQ(chain(t, "fe80::1"), (std::vector<int>{128, 10, 0}));
  EXPECT_EQ(chain(t, "::ffff:1.2.3.4"), (std::vector<int>{96, 0}));
  EXPECT_EQ(chain(t, "2001:db8::1"), (std::vector<int>{0}));
}

TEST(RouteTable, OrdersOnePrefixByTosThenMetric) {
  Route tos = route("10.0.0.0", 8, 9);
  tos.tos = 0x10;
  const RouteTable t = table({route("10.0.0.0", 8, 5), tos, route("10.0.0.0", 8, 1)});
  const auto m = t.longest(*IpAddr::parse("10.1.1.1"));
  ASSERT_TRUE(m);
  ASSERT_EQ(m->end() - m->begin(), 3);
  EXPECT_EQ(m->first[0].tos, 0x10);
  EXPECT_EQ(m->first[1].metric, 1U);
  EXPECT_EQ(m->first[2].metric, 5U);
}

/// Against the definition, for both families.
TEST(RouteTable, AgreesWithAScan) {
  std::mt19937 rng(7);
  const auto below = [&](unsigned n) {
    return std::uniform_int_distribution<unsigned>(0, n - 1)(rng);
  };
  for (const bool v6 : {false, true}) {
    std::vector<Route> routes;
    const auto random_addr = [&] {
      uint8_t b[16] = {};
      for (unsigned i = v6 ? 0 : 12; i < 16; ++i)
        b[i] = static_cast<uint8_t>(below(4) * 64 + below(2));
      return v6 ? IpAddr::v6(b)
                : IpAddr::v4(be32(uint32_t{b[12]} << 24 | uint32_t{b[13]} << 16 |
                                  uint32_t{b[14]} << 8 | b[15]));
    };
    for (int i = 0; i < 500; ++i) {
      Route r;
      r.dst_len = static_cast<uint8_t>(below(v6 ? 129 : 33));
      auto b = random_addr().bytes();
      for (unsigned bit = (v6 ? 0U : 96U) + r.dst_len; bit < 128; ++bit)
        b[bit / 8] = static_cast<uint8_t>(b[bit / 8] & ~(0x80U >> bit % 8));
      in6_addr in;
      std::ranges::copy(b, in.s6_addr);
      r.dst = IpAddr::v6(in);
      routes.push_back(r);
    }
    const RouteTable t = table(routes);
    for (int i = 0; i < 5000; ++i) {
      const IpAddr a = random_addr();
      int longest = -1;
      for (const Route& r : routes)
        if (a.in_prefix(r.dst, r.dst_len)) longest = std::max<int>(longest, r.dst_len);
      const auto m = t.longest(a);
      ASSERT_EQ(m ? m->first->dst_len : -1, longest) << a.str();
    }
  }
}

TEST(RouteTable, FindsAmongManyInLessThanAMicrosecond) {
  std::mt19937 rng(1);
  std::vector<Route> routes;
  for (int i = 0; i < 100'000; ++i) {
    const auto len = static_cast<uint8_t>(12 + rng() % 17);
    Route r = route("0.0.0.0", len);
    r.dst = IpAddr::v4(be32(static_cast<uint32_t>(rng()) & ~0U << (32 - len)));
    routes.push_back(r);
  }
  const auto begin = std::chrono::steady_clock::now();
  const RouteTable t = table(std::move(routes));
  const auto built = std::chrono::steady_clock::now();
  constexpr int kLookups = 200'000;
  size_t found = 0;
  for (int i = 0; i < kLookups; ++i)
    found += t.longest(IpAddr::v4(be32(static_cast<uint32_t>(rng())))).has_value();
  const auto done = std::chrono::steady_clock::now();
  const auto per =
      std::chrono::duration_cast<std::chrono::nanoseconds>(done - built).count() / kLookups;
  fmt::print("100000 prefixes sorted and built in {} ms, {} ns a look-up, {} found\n",
             std::chrono::duration_cast<std::chrono::milliseconds>(built - begin).count(), per,
             found);
  EXPECT_GT(found, 1000U);
#ifndef VIREO_DEBUG  // sanitizers cost more than the look-up
  EXPECT_LT(per, 1000);
#endif
}

}  // namespace
}  // namespace vireo::net
