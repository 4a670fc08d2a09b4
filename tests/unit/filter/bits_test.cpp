#include "stack/filter/bits.h"

#include <gtest/gtest.h>

#include <vector>

namespace vireo::filter {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(Bits, EqualOnlyWhereAllBitsAreKnown) {
  Bits b = Bits::known(Bytes{0x12, 0x34});
  EXPECT_EQ(b.equals(Bytes{0x12, 0x34}), Ternary::kYes);
  EXPECT_EQ(b.equals(Bytes{0x12}), Ternary::kYes);
  EXPECT_EQ(b.equals(Bytes{0x12, 0x35}), Ternary::kNo);
  b.put(1, 0x30, 0xf0);
  EXPECT_EQ(b.equals(Bytes{0x12, 0x34}), Ternary::kMaybe);
  EXPECT_EQ(b.equals(Bytes{0x12, 0x44}), Ternary::kNo);
  EXPECT_EQ(Bits::unknown(2).equals(Bytes{0, 0}), Ternary::kMaybe);
}

TEST(Bits, MaskedOutBitsAreKnown) {
  const Bits b = Bits::unknown(2).masked(Bytes{0x00, 0x0f}, Bytes{0x80, 0x00});
  EXPECT_EQ(b.equals(Bytes{0x80, 0x05}), Ternary::kMaybe);
  EXPECT_EQ(b.equals(Bytes{0x80, 0x15}), Ternary::kNo);
  EXPECT_EQ(b.equals(Bytes{0x00, 0x05}), Ternary::kNo);
}

TEST(Bits, OrderIsThatOfBytes) {
  const Bits port = Bits::known(Bytes{0x1f, 0x90});
  EXPECT_EQ(port.within(Bytes{0x1f, 0x90}, Bytes{0x1f, 0x90}), Ternary::kYes);
  EXPECT_EQ(port.within(Bytes{0x00, 0x50}, Bytes{0x1f, 0x8f}), Ternary::kNo);
  EXPECT_EQ(Bits::unknown(2).within(Bytes{0, 0}, Bytes{0xff, 0xff}), Ternary::kYes);
  EXPECT_EQ(Bits::unknown(2).within(Bytes{0, 1}, Bytes{0xff, 0xff}), Ternary::kMaybe);
  Bits low = Bits::unknown(2);
  low.put(0, 0);
  EXPECT_EQ(low.at_least(Bytes{1, 0}), Ternary::kNo);
  EXPECT_EQ(low.at_most(Bytes{0, 0xff}), Ternary::kYes);
}

TEST(Bits, SwapsEachNumber) {
  Bits b = Bits::unknown(4);
  b.put(0, 1);
  b.put(2, 2);
  const Bits s = b.swapped(2);
  EXPECT_EQ(s.part(1, 1).equals(Bytes{1}), Ternary::kYes);
  EXPECT_EQ(s.part(3, 1).equals(Bytes{2}), Ternary::kYes);
  EXPECT_EQ(s.part(0, 1).equals(Bytes{0}), Ternary::kMaybe);
}

}  // namespace
}  // namespace vireo::filter
