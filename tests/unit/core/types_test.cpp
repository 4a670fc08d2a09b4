#include "core/types.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/byteorder.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/result.h"
#include "core/seq.h"

namespace vireo {

enum class Bits : uint8_t { kNone = 0, kA = 1, kB = 2, kC = 4 };
template <>
inline constexpr bool kIsFlags<Bits> = true;

namespace {

TEST(Flags, Operators) {
  Bits b = Bits::kA | Bits::kB;
  EXPECT_TRUE(has(b, Bits::kB | Bits::kC));
  EXPECT_FALSE(has(b, Bits::kC));
  b &= ~Bits::kA;
  EXPECT_EQ(b, Bits::kB);
}

TEST(BigEndian, LiesAsOnTheWire) {
  const be32 v(0x01020304);
  uint8_t raw[4];
  std::memcpy(raw, &v, 4);
  EXPECT_EQ(raw[0], 1);
  EXPECT_EQ(raw[3], 4);
  EXPECT_EQ(uint32_t{v}, 0x01020304U);
  constexpr be64 c(0x0102030405060708);
  static_assert(uint64_t{c} == 0x0102030405060708);
  constexpr be16 d(0xabcd);
  static_assert(uint16_t{d} == 0xabcd);
  EXPECT_EQ(uint16_t{d}, 0xabcd);
  EXPECT_EQ(d.raw(), 0xcdab);
}

TEST(Seq32, CircleAndWindow) {
  for (uint32_t base : {0U, 1U, 0x7fffffffU, 0x80000000U, 0xffffffffU, 0xfffffa4cU}) {
    const Seq32 a(base);
    EXPECT_TRUE(a.before(a + 1));
    EXPECT_TRUE((a + 0x7fffffff).after(a));
    EXPECT_EQ((a + 10) - a, 10);
    EXPECT_EQ(a - (a + 10), -10);
    EXPECT_TRUE((a + 9).in_window(a, 10));
    EXPECT_FALSE((a + 10).in_window(a, 10));
    EXPECT_FALSE((a - 1).in_window(a, 10));
    EXPECT_FALSE(a.in_window(a, 0));
    EXPECT_TRUE(a.at_or_before(a));
    EXPECT_EQ(unwrap(a + 100, a, 5'000'000'000), 5'000'000'100U);
    EXPECT_EQ(unwrap(a - 100, a, 5'000'000'000), 4'999'999'900U);
  }
}

TEST(Clock, CalibratedTimeFollowsTheKernels) {
  Clock::calibrate();
  Clock::calibrate();
  const Instant k0 = Clock::now_from_kernel();
  Instant last = Clock::now();
  // The calibration interval is a millisecond: a few dozen parts per million off is what it can
  // promise.
  EXPECT_LT(std::abs((last - k0).ns()), 1'000'000);
  for (int i = 0; i < 100000; ++i) {
    const Instant n = Clock::now();
    ASSERT_GE(n, last);
    last = n;
  }
}

TEST(UniqueFd, ClosesOnceAndMoves) {
  int raw = -1;
  {
    UniqueFd a(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(a);
    raw = a.get();
    UniqueFd b(std::move(a));
    EXPECT_FALSE(a);  // NOLINT: moved-from is specified
    EXPECT_EQ(b.get(), raw);
    b = UniqueFd(b.release());
  }
  EXPECT_EQ(::fcntl(raw, F_GETFD), -1);
}

TEST(Result, CarriesErrnoAndPlace) {
  const auto f = [](bool ok) -> Result<int> {
    if (ok) return 3;
    return fail(ENOBUFS, "here");
  };
  EXPECT_EQ(*f(true), 3);
  EXPECT_EQ(f(false).error().code, ENOBUFS);
  EXPECT_STREQ(f(false).error().where, "here");
}

TEST(Log, OneLineAboveTheLevelAndErrnoKept) {
  int p[2];
  ASSERT_EQ(pipe(p), 0);
  const int old_fd = LogSink::fd.exchange(p[1]);
  const int old_level = LogSink::level.exchange(static_cast<int>(LogLevel::kWarn));
  errno = 33;
  log<LogLevel::kInfo>("not {}", "this");
  log<LogLevel::kWarn>("eth{}: {}", 0, "taken");
  EXPECT_EQ(errno, 33);
  LogSink::fd = old_fd;
  LogSink::level = old_level;
  char buf[128] = {};
  const ssize_t n = read(p[0], buf, sizeof buf - 1);
  EXPECT_EQ(std::string(buf, static_cast<size_t>(n)), "Vireo warning: eth0: taken\n");
  close(p[0]);
  close(p[1]);
}

}  // namespace
}  // namespace vireo
