#include "core/tag_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace vireo {
namespace {

struct Entry {
  uint32_t key = 0;
  uint32_t value = 0;
};

/// A hash of few values: groups overflow, searches go on and round the end.
uint64_t poor_hash(uint32_t key) { return (key % 3) | uint64_t{key % 5} << 57; }
uint64_t good_hash(uint32_t key) {
  uint64_t x = key + 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

class TagTableTest : public testing::TestWithParam<uint64_t (*)(uint32_t)> {};
INSTANTIATE_TEST_SUITE_P(Hashes, TagTableTest, testing::Values(poor_hash, good_hash));

TEST_P(TagTableTest, AgreesWithAMap) {
  const auto hash = GetParam();
  TagTable<Entry> t;
  std::map<uint32_t, uint32_t> model;
  std::mt19937 random(3);
  const auto find = [&](uint32_t key) {
    return t.find(hash(key), [&](const Entry& e) { return e.key == key; });
  };
  EXPECT_EQ(find(1), nullptr);
  for (uint32_t step = 0; step < 100'000; ++step) {
    // Waves of growing and of shrinking.
    const bool grows = step / 10'000 % 2 == 0;
    const auto key = static_cast<uint32_t>(random() % 700);
    Entry* const e = find(key);
    ASSERT_EQ(e != nullptr, model.contains(key));
    ASSERT_TRUE(e == nullptr || e->value == model[key]);
    if (e == nullptr && (grows || random() % 4 == 0)) {
      ASSERT_TRUE(t.insert(hash(key), {key, step}, [&](const Entry& x) { return hash(x.key); }));
      model[key] = step;
    } else if (e != nullptr && (!grows || random() % 4 == 0)) {
      t.erase(e);
      model.erase(key);
    }
    ASSERT_EQ(t.size(), model.size());
  }
  for (uint32_t key = 0; key < 700; ++key) ASSERT_EQ(find(key) != nullptr, model.contains(key));
  EXPECT_LE(t.capacity(), 2048u) << "what was erased does not pile up";
}

}  // namespace
}  // namespace vireo
