#include "core/slab.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace vireo {
namespace {

struct Thing {
  static inline int alive = 0;
  Thing() { ++alive; }
  Thing(const Thing&) = delete;
  ~Thing() { --alive; }
  int value = 7;
};

TEST(Slab, HandlesNameOneLife) {
  Slab<Thing, 4> s(16);
  Thing* a = s.alloc();
  ASSERT_NE(a, nullptr);
  a->value = 1;
  const SlabHandle h = s.handle(*a);
  EXPECT_EQ(s.get(h), a);
  EXPECT_EQ(s.get(SlabHandle{}), nullptr) << "the default handle names none";
  s.free(*a);
  EXPECT_EQ(s.get(h), nullptr);
  EXPECT_EQ(s.at(h.index), a) << "the memory is still a Thing";
  EXPECT_EQ(a->value, 7) << "as newly made";
  Thing* b = s.alloc();
  EXPECT_EQ(b, a) << "last in, first out: warm";
  EXPECT_EQ(s.get(h), nullptr) << "an old handle does not name the new life";
  EXPECT_NE(s.handle(*b), h);
  EXPECT_EQ(s.get(SlabHandle{1000, 1}), nullptr);
  s.free(*b);
}

TEST(Slab, GrowsToItsLimitAndNeverMoves) {
  const int before = Thing::alive;
  {
    Slab<Thing, 4> s(10);  // three chunks
    std::vector<Thing*> all;
    while (Thing* t = s.alloc()) {
      t->value = static_cast<int>(all.size());
      all.push_back(t);
    }
    EXPECT_EQ(all.size(), 12U);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i]->value, static_cast<int>(i));
      EXPECT_EQ(s.handle(*all[i]).index, i) << "low indices first";
    }
    EXPECT_EQ(s.capacity(), 12U);
    s.free(*all[5]);
    EXPECT_EQ(s.alloc(), all[5]);
    int seen = 0;
    s.for_each([&](Thing& t) {
      ++seen;
      s.free(t);
    });
    EXPECT_EQ(seen, 12);
    EXPECT_EQ(s.size(), 0U);
  }
  EXPECT_EQ(Thing::alive, before) << "all ended with the slab";
}

struct Recycled {
  int resets = 0;
  void recycle() { ++resets; }
};

TEST(Slab, RecycleInPlaceOfRemaking) {
  Slab<Recycled, 2> s(2);
  Recycled* r = s.alloc();
  s.free(*r);
  EXPECT_EQ(s.alloc()->resets, 1);
}

TEST(Slab, EqualsTheModel) {
  std::mt19937 rng(5);
  Slab<Thing, 8> s(256);
  std::map<Thing*, SlabHandle> live;
  std::vector<SlabHandle> dead;
  for (int i = 0; i < 50000; ++i) {
    if (rng() % 2 == 0) {
      Thing* t = s.alloc();
      ASSERT_EQ(t == nullptr, live.size() == 256);
      if (t != nullptr) {
        ASSERT_TRUE(live.emplace(t, s.handle(*t)).second);
      }
    } else if (!live.empty()) {
      auto it = std::next(live.begin(), static_cast<long>(rng() % live.size()));
      dead.push_back(it->second);
      s.free(*it->first);
      live.erase(it);
    }
    ASSERT_EQ(s.size(), live.size());
  }
  for (const auto& [t, h] : live) EXPECT_EQ(s.get(h), t);
  for (const SlabHandle h : dead) EXPECT_EQ(s.get(h), nullptr);
}

}  // namespace
}  // namespace vireo
