// TCP.md 3.10 row 1: a flood of SYNs from random sources, and a client that must get through.
// VIREO_FLOOD=10000000 chooses the number of SYNs; with so many the bound holds for the 99th
// percentile, with few the median stands for it, which one interrupt more does not move.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr unsigned kBetweenClients = 1000;

size_t heap() { return ::mallinfo2().uordblks; }

int64_t cpu_ns() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

/// Connects, is accepted, and goes by reset. @return the processor's time from SYN to accept.
int64_t visit(Host& h, Listening& l, uint32_t n) {
  Peer p(h, IpAddr::v4(be32(0x0b000000 + n / 50'000)), static_cast<uint16_t>(1024 + n % 50'000),
         80);
  p.iss = Seq32(n * 77);
  h.heard().clear();
  const int64_t before = cpu_ns();
  EXPECT_TRUE(p.connect()) << "client " << n;
  TcpFlow* const f = h.engine().listeners().accept(*l.listener);
  const int64_t took = cpu_ns() - before;
  EXPECT_NE(f, nullptr) << "client " << n;
  if (f != nullptr) {
    h.engine().tcp().close(*f, UniqueFd(), true, h.now());
    h.settle();
  }
  h.heard().clear();
  return took;
}

/// @param share of the values that are less, 0 to 1.
double quantile(std::vector<int64_t> v, double share) {
  const auto at = v.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(v.size()));
  std::ranges::nth_element(v, at);
  return static_cast<double>(*at);
}

#ifdef VIREO_DEBUG  // sanitized, a million take minutes
constexpr unsigned kSyns = 100'000;
#else
constexpr unsigned kSyns = 1'000'000;
#endif

TEST(Flood, AClientConnectsThroughout) {  // TCP.md 3.10 row 1
  const char* const wish = std::getenv("VIREO_FLOOD");
  const unsigned syns = wish == nullptr ? kSyns : static_cast<unsigned>(std::atol(wish));
  Host quiet;
  Host h;
  Listening& calm = quiet.listen(80, 128);
  Listening& l = h.listen(80, 128);
  for (uint32_t i = 0; i < 100; ++i) visit(h, l, 900'000 + i), visit(quiet, calm, 900'000 + i);
  std::vector<int64_t> in_flood, in_peace;
  in_flood.reserve(syns / kBetweenClients + 1);
  in_peace.reserve(syns / kBetweenClients + 1);
  const size_t baseline = heap();
  const uint32_t frames = h.engine().pool().free_count();
  size_t most = 0;
  std::mt19937 random(42);
  const auto draw = [&] { return static_cast<uint32_t>(random()); };
  const std::vector<uint8_t> options{2, 4, 5, 0xb4, 1, 1, 8, 10, 0, 0,
                                     0, 1, 0, 0,    0, 0, 1, 3,  3, 7};
  for (unsigned i = 0; i < syns; ++i) {
    const bool polled = i % 32 == 31;
    const uint32_t source = 0x0c000000 | (draw() & 0x3ffffff);
    Peer p(h, IpAddr::v4(be32(source)), static_cast<uint16_t>(1024 + draw() % 60'000), 80);
    p.say(kSyn, Seq32(draw()), Seq32(0), {.options = options, .poll_now = polled});
    if (!polled) continue;
    h.forget_heard();
    h.pass(Duration::us(32));
    if (i % kBetweenClients >= 32) continue;
    // The first visit of two finds the code of connections out of the processor's caches.
    const uint32_t client = i / kBetweenClients * 2;
    visit(h, l, client);
    in_flood.push_back(visit(h, l, client + 1));
    visit(quiet, calm, client);
    in_peace.push_back(visit(quiet, calm, client + 1));
    most = std::max(most, heap());
  }
  EXPECT_GE(h.stats().syn_cookies_sent.get(), syns * 9 / 10);
  EXPECT_LE(l.listener->syn_count, 128u);
  EXPECT_LT(most, baseline + (size_t{256} << 10)) << "128 records and what the test holds";
  constexpr unsigned kEnoughForTails = 10'000'000;
  const double p50[] = {quantile(in_flood, 0.5), quantile(in_peace, 0.5)};
  const double p99[] = {quantile(in_flood, 0.99), quantile(in_peace, 0.99)};
  EXPECT_LE(p50[0], 2.0 * p50[1]);
  if (syns >= kEnoughForTails) {
    EXPECT_LE(p99[0], 2.0 * p99[1]);
  }
  std::printf(
      "%u SYNs: %zu clients, %.0f ns each, p99 %.0f ns (in peace %.0f and %.0f ns), heap at most "
      "+%zd bytes\n",
      syns, 2 * in_flood.size(), p50[0], p99[0], p50[1], p99[1],
      static_cast<ssize_t>(most - baseline));
  h.pass(Duration::s(130));
  h.forget_heard();
  EXPECT_EQ(l.listener->syn_count, 0u);
  EXPECT_LE(heap(), baseline + (size_t{32} << 10)) << "all but what the next SYN needs";
  EXPECT_EQ(h.engine().pool().free_count(), frames);
  EXPECT_EQ(h.engine().live_flows(), 1u);
}

}  // namespace
}  // namespace vireo::test
