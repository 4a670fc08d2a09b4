#include "core/flow_rules.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace vireo {
namespace {

FlowKey exact(uint32_t n) {
  FlowKey k;
  k.local = {IpAddr::v4(be32(0x0a000001)), 80, 0};
  k.remote = {IpAddr::v4(be32(0x0b000000 + n / 50'000)), static_cast<uint16_t>(1 + n % 50'000), 0};
  return k;
}

TEST(FlowRules, AVlanIsPartOfTheKey) {
  FlowRules<> rules;
  FlowKey tagged = exact(1);
  tagged.vlan = VlanId(5);
  ASSERT_TRUE(rules.add(exact(1)));
  ASSERT_TRUE(rules.add(tagged));
  EXPECT_EQ(rules.add(tagged).error().code, EEXIST);
}

TEST(FlowRules, AgreesWithAMap) {
  FlowRules<uint32_t> rules;
  std::map<uint32_t, uint64_t> ids;  // of the keys that are steered
  std::vector<uint64_t> gone;
  std::mt19937 random(7);
  for (uint32_t step = 0; step < 50'000; ++step) {
    const auto n = static_cast<uint32_t>(random() % 700);
    const bool grows = step / 10'000 % 2 == 0;  // waves of growing and of shrinking
    const auto at = ids.find(n);
    if (grows || random() % 4 == 0) {
      const auto id = rules.add(exact(n), n);
      ASSERT_EQ(id.has_value(), at == ids.end());
      if (!id) {
        ASSERT_EQ(id.error().code, EEXIST);
      } else {
        ids[n] = *id;
      }
    } else if (at != ids.end()) {
      rules.remove(at->second);
      gone.push_back(at->second);
      ids.erase(at);
    }
    ASSERT_EQ(rules.size(), ids.size());
    if (!gone.empty()) {
      const uint64_t stale = gone[random() % gone.size()];
      ASSERT_EQ(rules.get(stale), nullptr);
      rules.remove(stale);
      ASSERT_EQ(rules.size(), ids.size()) << "its place has another rule now";
    }
  }
  for (uint32_t n = 0; n < 700; ++n) {
    const uint32_t* const found = rules.find(DemuxKey::of(exact(n)));
    ASSERT_EQ(found != nullptr, ids.contains(n));
    if (found == nullptr) continue;
    ASSERT_EQ(*found, n);
    ASSERT_EQ(rules.get(ids[n]), found);
  }
  size_t seen = 0;
  rules.for_each([&](uint64_t id, uint32_t n) {
    EXPECT_EQ(ids[n], id);
    ++seen;
    rules.remove(id);
  });
  EXPECT_EQ(seen, ids.size());
  EXPECT_EQ(rules.size(), 0U);
}

TEST(FlowRules, KeysThatMeanTheSameAreTheSame) {
  FlowRules<> rules;
  FlowKey wild;
  wild.local = {IpAddr::any_v4(), 80, 0};
  EXPECT_TRUE(rules.add(wild));
  wild.local.addr = IpAddr();
  EXPECT_FALSE(rules.add(wild)) << "the wildcard, spelt in the other family";
  wild.v6 = true;
  EXPECT_TRUE(rules.add(wild));
  FlowKey linked = exact(1);
  EXPECT_TRUE(rules.add(linked));
  linked.remote.scope = 2;
  EXPECT_FALSE(rules.add(linked)) << "no frame says a scope";
  linked.proto = IpProto::kUdp;
  EXPECT_TRUE(rules.add(linked));
}

}  // namespace
}  // namespace vireo
