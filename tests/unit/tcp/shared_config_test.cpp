// Settings that many connections share: shared_config.h.
#include "stack/tcp/shared_config.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace vireo::tcp {
namespace {

TEST(SharedConfig, EqualSettingsAreOneValue) {
  SharedConfig a, b;
  EXPECT_EQ(&*a, &*b);
  Config c;
  c.keep_count = 3;
  a.set(c);
  c.rcv_buf = c.snd_buf = 1;  // what each connection has for itself is none of it
  c.mss = 1400;
  c.ts_offset = 7;
  b.set(c);
  EXPECT_EQ(&*a, &*b);
  EXPECT_EQ(a->keep_count, 3);
}

TEST(SharedConfig, AChangeIsOfOneConnection) {
  SharedConfig a, b;
  const auto three = [](Config& c) { c.keep_count = 3; };
  a.change(three);
  b.change(three);
  b.change([](Config& c) { c.user_timeout = Duration::s(5); });
  EXPECT_NE(&*a, &*b);
  EXPECT_EQ(a->user_timeout.get(), Duration{});
  EXPECT_EQ(b->keep_count, 3);
  b.change([](Config& c) { c.user_timeout = Duration{}; });
  EXPECT_EQ(&*a, &*b);
  b.set(Config{});
  EXPECT_TRUE(*b == Config{});
  EXPECT_EQ(a->keep_count, 3);
}

TEST(SharedConfig, MoreThanAreLookedAt) {
  std::array<SharedConfig, 100> all;
  for (uint8_t round = 0; round < 3; ++round)
    for (uint8_t i = 0; i < all.size(); ++i)
      all[i].change([&](Config& c) { c.retries2 = static_cast<uint8_t>(i + round); });
  for (uint8_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]->retries2, i + 2);
}

TEST(SharedConfig, OfEnginesInSeveralThreads) {
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n)
    threads.emplace_back([] {
      for (int i = 0; i < 2000; ++i) {
        SharedConfig a, b;
        a.change([&](Config& c) { c.retries1 = static_cast<uint8_t>(i % 12); });
        b.change([&](Config& c) { c.retries1 = static_cast<uint8_t>(i % 5); });
        ASSERT_EQ(a->retries1, i % 12);
        ASSERT_EQ(b->retries1, i % 5);
      }
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace vireo::tcp
