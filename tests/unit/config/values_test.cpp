#include "config/values.h"

#include <gtest/gtest.h>

namespace vireo {
namespace {

template <class T>
testing::AssertionResult reads(std::string_view text, const Limits& limits, const T& expected,
                               T start = {}) {
  T v = start;
  if (const Refusal r = read_value(text, limits, v))
    return testing::AssertionFailure() << text << ": " << *r;
  if (value_text(v, limits) != value_text(expected, limits))
    return testing::AssertionFailure() << text << " gave " << value_text(v, limits);
  return testing::AssertionSuccess();
}

/// Refused, and the value as it was.
template <class T>
testing::AssertionResult refuses(std::string_view text, const Limits& limits, T start) {
  T v = start;
  if (!read_value(text, limits, v))
    return testing::AssertionFailure() << text << " was taken as " << value_text(v, limits);
  if (value_text(v, limits) != value_text(start, limits))
    return testing::AssertionFailure() << text << " changed the value";
  return testing::AssertionSuccess();
}

TEST(Values, Bool) {
  for (const auto* t : {"1", "yes", "TRUE", "On", " 1 "}) EXPECT_TRUE(reads(t, any(), true, false));
  for (const auto* t : {"0", "no", "false", "OFF"}) EXPECT_TRUE(reads(t, any(), false, true));
  for (const auto* t : {"", "2", "-1", "y", "1x"}) EXPECT_TRUE(refuses(t, any(), true));
}

TEST(Values, IntKeepsItsRange) {
  const Limits l = count(-1, 100);
  EXPECT_TRUE(reads("-1", l, -1));
  EXPECT_TRUE(reads("+7", l, 7));
  EXPECT_TRUE(reads("100", l, 100));
  for (const auto* t :
       {"-2", "101", "", "abc", "5x", "0x5", "1.5", "99999999999999999999", "+", "- 1"})
    EXPECT_TRUE(refuses(t, l, 42));
}

TEST(Values, PowerOfTwo) {
  const Limits l = power_of_two(64, 65536);
  EXPECT_TRUE(reads("64", l, 64));
  EXPECT_TRUE(reads("65536", l, 65536));
  for (const auto* t : {"63", "32", "131072", "100", "0", "-64"}) EXPECT_TRUE(refuses(t, l, 2048));
}

TEST(Values, BytesWithUnits) {
  const Limits l = bytes(0, int64_t{8} << 30);
  const std::pair<const char*, int64_t> cases[] = {
      {"0", 0},           {"1500", 1500},    {"64k", 65536},    {"64K", 65536},
      {"64kb", 65536},    {"1MiB", 1 << 20}, {"1.5m", 1572864}, {"2g", int64_t{2} << 30},
      {" 3 m ", 3 << 20}, {"0.5k", 512},     {"12b", 12}};
  for (const auto& [t, v] : cases) EXPECT_TRUE(reads(t, l, Bytes(v))) << t;
  for (const auto* t :
       {"", "k", "-1", "1.", ".5m", "1t", "1kk", "9g", "99999999999999999999g", "1 2", "1e3"})
    EXPECT_TRUE(refuses(t, l, Bytes(7))) << t;
  EXPECT_TRUE(reads("0", zero_or(32, 64), Bytes(0), Bytes(40)));
  EXPECT_TRUE(refuses("31", zero_or(32, 64), Bytes(40)));
}

TEST(Values, DurationWithUnits) {
  const Limits l = time_in(kMicrosecond, -1, 100'000'000);
  const std::pair<const char*, Duration> cases[] = {
      {"0", Duration::ns(0)},       {"100", Duration::us(100)}, {"100us", Duration::us(100)},
      {"10ms", Duration::ms(10)},   {"5s", Duration::s(5)},     {"1.5ms", Duration::us(1500)},
      {"250ns", Duration::ns(250)}, {"1m", Duration::s(60)},    {"2 MS", Duration::ms(2)}};
  for (const auto& [t, v] : cases) EXPECT_TRUE(reads(t, l, v)) << t;
  for (const auto* t : {"", "-2", "-1us", "s", "1h", "101s", "5 parsecs", "9223372036854775807s"})
    EXPECT_TRUE(refuses(t, l, Duration::ms(7))) << t;
  Duration forever;
  ASSERT_FALSE(read_value("-1", l, forever));
  EXPECT_LT(forever.ns(), 0);
  EXPECT_EQ(value_text(forever, l), "-1");
  EXPECT_TRUE(refuses("-1", time_in(kSecond, 0, 10), Duration::s(1)));
}

TEST(Values, Processors) {
  const auto list = [](std::vector<int> v) { return CpuList{std::move(v)}; };
  EXPECT_TRUE(reads("-1", any(), list({}), list({3})));
  EXPECT_TRUE(reads("0", any(), list({0})));
  EXPECT_TRUE(reads("0x5", any(), list({0, 2})));
  EXPECT_TRUE(reads("0X13", any(), list({0, 1, 4})));
  EXPECT_TRUE(reads("7,0-2, 2-3", any(), list({0, 1, 2, 3, 7})));
  EXPECT_TRUE(reads("1023", any(), list({1023})));
  EXPECT_TRUE(reads("0x" + std::string(1000, '0') + "1", any(), list({0})));
  EXPECT_TRUE(reads("0x8" + std::string(255, '0'), any(), list({1023})));
  for (const auto* t : {"", "x", "1024", "3-1", "1-", "-3", "0x", "0x0", "0xg", "1,,2", "1,",
                        "0-4294967295", "1-2-3"})
    EXPECT_TRUE(refuses(t, any(), list({9}))) << t;
  EXPECT_TRUE(refuses("0x1" + std::string(256, '0'), any(), list({9})));
}

TEST(Values, ListsAndText) {
  EXPECT_TRUE(reads("eth0, eth1,,", any(), StringList{"eth0", "eth1"}));
  EXPECT_TRUE(reads("", any(), StringList{}, StringList{"x"}));
  EXPECT_TRUE(reads(" as is ", any(), std::string(" as is ")));
}

TEST(Values, Words) {
  EXPECT_TRUE(reads("XDP", any(), DeviceChoice::kXdp));
  EXPECT_TRUE(reads("2", any(), TcpTimestamps::kAsKernel));
  EXPECT_TRUE(reads("31", any(), RingLogic::kCoreAttach));
  EXPECT_TRUE(reads("-2", any(), ExceptionHandling::kExit));
  EXPECT_TRUE(refuses("3", any(), TcpTimestamps::kOn));
  EXPECT_TRUE(refuses("", any(), XdpChoice::kNative));
}

TEST(Values, TraceLevelsHaveLibvmasNumbers) {
  const std::pair<const char*, LogLevel> cases[] = {
      {"none", LogLevel::kNone}, {"0", LogLevel::kPanic},   {"1", LogLevel::kError},
      {"2", LogLevel::kWarn},    {"3", LogLevel::kInfo},    {"details", LogLevel::kDetails},
      {"4", LogLevel::kDebug},   {"func", LogLevel::kFine}, {"6", LogLevel::kAll}};
  for (const auto& [t, v] : cases) {
    LogLevel level = LogLevel::kWarn;
    EXPECT_FALSE(read_value(t, any(), level));
    EXPECT_EQ(level, v) << t;
  }
}

TEST(Values, RangesAreSpelledOut) {
  EXPECT_EQ(describe(static_cast<int*>(nullptr), count(-1, 5)).range, "-1 to 5");
  EXPECT_EQ(describe(static_cast<int*>(nullptr), power_of_two(64, 128)).range,
            "a power of two, 64 to 128");
  EXPECT_EQ(describe(static_cast<Bytes*>(nullptr), zero_or(1024, 1 << 20)).range, "0, or 1k to 1m");
  EXPECT_EQ(describe(static_cast<Duration*>(nullptr), time_in(kMillisecond, 1, 5000)).range,
            "1ms to 5s");
  EXPECT_EQ(describe(static_cast<Duration*>(nullptr), time_in(kMicrosecond, -1, 10)).range,
            "-1 (for ever), or 0 to 10us");
  EXPECT_EQ(describe(static_cast<DeviceChoice*>(nullptr), any()).range,
            "auto, xdp, mlx5, verbs, shm, off");
  EXPECT_EQ(describe(static_cast<TcpTimestamps*>(nullptr), any()).range, "off (0), on (1), os (2)");
}

}  // namespace
}  // namespace vireo
