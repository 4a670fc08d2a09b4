// Values that many holders share: shared_values.h.
#include "core/shared_values.h"

#include <gtest/gtest.h>

namespace vireo::test {
namespace {

struct Number {
  int value = 0;
  bool operator==(const Number&) const = default;
};

int g_alive = 0;

/// A Number, and something that is made for it once.
struct Kept : Number {
  Kept(const Number& n, int factor) : Number(n), product(n.value * factor) { ++g_alive; }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() { --g_alive; }
  int product;
};

using Table = SharedValues<Kept, Number>;

TEST(SharedValues, EqualOnesAreOne) {
  Table table;
  const Kept* const one = table.find_or_make({7}, 3);
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->product, 21);
  EXPECT_EQ(table.find_or_make({7}, 3), one);
  const Kept* const other = table.find_or_make({8}, 3);
  EXPECT_NE(other, one);
  EXPECT_EQ(g_alive, 2);
  for (const Kept* k : {one, one, other}) Table::drop(k);
  table.clear();
  EXPECT_EQ(g_alive, 0);
}

TEST(SharedValues, OfThoseThatNobodyHasTheLastStays) {
  Table table;
  const Kept* const one = table.find_or_make({1}, 2);
  Table::drop(one);
  EXPECT_EQ(g_alive, 1);
  EXPECT_EQ(table.find_or_make({1}, 5), one);  // found, not made: it has its first product
  EXPECT_EQ(one->product, 2);

  const Kept* const two = table.find_or_make({2}, 2);
  Table::drop(two);
  EXPECT_EQ(g_alive, 2);
  Table::drop(one);  // the place is its own now
  EXPECT_EQ(g_alive, 1);
  EXPECT_EQ(table.find_or_make({1}, 5), one);
  EXPECT_EQ(g_alive, 1);
  Table::drop(one);
  table.clear();
  EXPECT_EQ(g_alive, 0);
}

TEST(SharedValues, WhatIsHeldOnceMoreStays) {
  Table table;
  const Kept* const one = table.find_or_make({1}, 2);
  Table::hold(one);
  Table::drop(one);
  table.clear();
  EXPECT_EQ(g_alive, 1);
  EXPECT_EQ(one->product, 2);
  Table::drop(one);
  table.clear();
  EXPECT_EQ(g_alive, 0);
}

TEST(SharedValues, FoundAgainAmongManyOnlyByAFewLooks) {
  Table table;
  const Kept* first = table.find_or_make({0}, 1);
  const Kept* many[20];
  for (int i = 0; i < 20; ++i) many[i] = table.find_or_make({i + 1}, 1);
  const Kept* const second = table.find_or_make({0}, 1);
  EXPECT_NE(second, first);  // two equal ones are no harm
  EXPECT_EQ(second->product, first->product);
  for (const Kept* k : many) Table::drop(k);
  Table::drop(first);
  Table::drop(second);
  table.clear();
  EXPECT_EQ(g_alive, 0);
}

}  // namespace
}  // namespace vireo::test
