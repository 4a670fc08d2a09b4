#include "stack/wire/plain.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/wire/frames.h"
#include "tests/unit/wire/plain_agrees.h"

namespace vireo::wire {
namespace {

using namespace testing_frames;

const Bytes kTimestamps = {1, 1, 8, 10, 0, 0, 1, 2, 3, 4, 5, 6};

bool takes(const Bytes& b) {
  bool taken = false;
  const char* const differs =
      plain_disagrees({reinterpret_cast<const std::byte*>(b.data()), b.size()}, taken);
  EXPECT_STREQ(differs, nullptr);
  return taken;
}

class PlainBothFamilies : public testing::TestWithParam<bool> {
 protected:
  static Spec spec(uint8_t proto, Bytes options = {}) {
    Spec s = GetParam() ? v6_spec() : Spec{};
    s.proto = proto;
    s.options = std::move(options);
    s.payload = {1, 2, 3, 4, 5};
    return s;
  }
};
INSTANTIATE_TEST_SUITE_P(Families, PlainBothFamilies, testing::Bool(),
                         [](const auto& i) { return i.param ? "v6" : "v4"; });

TEST_P(PlainBothFamilies, TakesSegmentsAndDatagrams) {
  EXPECT_TRUE(takes(make_frame(spec(6))));
  EXPECT_TRUE(takes(make_frame(spec(6, kTimestamps))));
  EXPECT_TRUE(takes(make_frame(spec(17))));
  Spec s = spec(6, kTimestamps);
  s.flags = 0x18;
  s.tos = 3;  // marked
  s.padding = 6;
  EXPECT_TRUE(takes(make_frame(s)));
  s.payload.clear();
  EXPECT_TRUE(takes(make_frame(s)));
  s.payload.assign(1448, 7);
  EXPECT_TRUE(takes(make_frame(s)));
}

TEST_P(PlainBothFamilies, LeavesTheRest) {
  Spec s = spec(6, kTimestamps);
  for (const int flags : {0x00, 0x08, 0x02, 0x12, 0x11, 0x14, 0x30, 0x50, 0x90}) {
    s.flags = static_cast<uint8_t>(flags);
    EXPECT_FALSE(takes(make_frame(s))) << flags;
  }
  s = spec(6, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_FALSE(takes(make_frame(s)));
  s = spec(6, {1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2});  // a SACK block
  EXPECT_FALSE(takes(make_frame(s)));
  s = spec(6);
  s.tags = {5};
  EXPECT_FALSE(takes(make_frame(s)));
  s = spec(1);
  s.icmp = {3, 1, 0, 0, 0, 0, 0, 0};
  EXPECT_FALSE(takes(make_frame(s)));
  if (GetParam()) {
    s = spec(17);
    s.first_extension = 60;
    s.extensions = {17, 0, 0, 0, 0, 0, 0, 0};
    EXPECT_FALSE(takes(make_frame(s)));
  } else {
    s = spec(17);
    s.ip_options = {1, 1, 1, 1};
    EXPECT_FALSE(takes(make_frame(s)));
    for (const int fragment : {0x2000, 0x0001, 0x1fff}) {
      s = spec(17);
      s.fragment = static_cast<uint16_t>(fragment);
      EXPECT_FALSE(takes(make_frame(s))) << fragment;
    }
  }
}

TEST_P(PlainBothFamilies, NeverReadsBeyondAFrameThatIsCut) {
  for (const Spec& s : {spec(6), spec(6, kTimestamps), spec(17)}) {
    const Bytes whole = make_frame(s);
    for (size_t n = 0; n < whole.size(); ++n)  // an allocation of its own: sanitizers see its end
      EXPECT_FALSE(takes(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n)))) << n;
  }
}

TEST_P(PlainBothFamilies, ReadsWhatTheParserReads) {
  std::mt19937 random(7);
  unsigned taken = 0;
  for (const Spec& s : {spec(6), spec(6, kTimestamps), spec(17)}) {
    const Bytes whole = make_frame(s);
    for (int round = 0; round < 4'000; ++round) {
      Bytes b = whole;
      for (uint64_t changes = 1 + random() % 3; changes > 0; --changes)
        b[random() % b.size()] = static_cast<uint8_t>(random());
      if (random() % 4 == 0) b.resize(random() % (b.size() + 1));
      taken += takes(b) ? 1 : 0;
      if (HasFailure()) FAIL() << "round " << round;
    }
  }
  EXPECT_GT(taken, 2'000U);
}

}  // namespace
}  // namespace vireo::wire
