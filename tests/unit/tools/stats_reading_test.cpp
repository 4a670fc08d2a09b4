#include "core/stats_reading.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/unit/tools/layout.h"

namespace vireo {
namespace {

TEST(StatsReading, AddsEnginesAndSortsSockets) {
  const auto live = test::made_up_process();
  const ProcessReading p = read_stats(*live);
  EXPECT_EQ(p.pid, 4711);
  EXPECT_EQ(p.program, "server");
  EXPECT_EQ(p.engine[counter_index(kEngineCounters, "rx_packets")], 1001U);
  ASSERT_EQ(p.ports.size(), 1U);
  EXPECT_EQ(p.ports[0].mode, "native copy");
  ASSERT_EQ(p.sockets.size(), 4U);
  EXPECT_EQ(p.sockets[0].fd, 3);
  EXPECT_EQ(p.sockets[0].state(), "listen");
  EXPECT_EQ(p.sockets[1].fd, 5);
  EXPECT_EQ(p.sockets[1].state(), "");
  EXPECT_EQ(p.sockets[2].fd, 9);
  EXPECT_EQ(p.sockets[2].state(), "established");
  EXPECT_EQ(p.sockets[2].remote.port, 40000);
  EXPECT_TRUE(p.sockets[3].closed) << "closed ones come last";
  EXPECT_EQ(p.closed[static_cast<size_t>(Carriage::kCarried)].sockets, 5U);
}

TEST(StatsReading, LeavesOutSlotsThatAreFreeOrChanging) {
  const auto live = test::made_up_process();
  live->sockets[0].generation.store(5);
  live->sockets[2].generation.store(0);
  EXPECT_EQ(read_stats(*live).sockets.size(), 2U);
}

/// The other process may be anyone's: nothing it writes may lead us out of a table or an array.
TEST(StatsReading, SurvivesAnyBytes) {
  const auto live = test::made_up_process();
  SocketStats& s = live->sockets[0];
  std::memset(&s.carriage, 0xff, sizeof s.carriage);
  std::memset(s.detail, 'x', sizeof s.detail);
  s.tcp_state = 0xff;
  std::memset(live->program, 'p', sizeof live->program);
  std::memset(live->ports[0].mode, 'm', sizeof live->ports[0].mode);
  const ProcessReading p = read_stats(*live);
  EXPECT_EQ(p.program.size(), sizeof live->program);
  EXPECT_EQ(p.ports[0].mode.size(), sizeof live->ports[0].mode);
  const SocketReading& r = p.sockets[2];
  EXPECT_EQ(r.carriage, Carriage::kUndecided);
  EXPECT_EQ(r.detail.size(), sizeof s.detail);
  EXPECT_EQ(tcp_state_name(0xff), "?");
}

/// And nothing it writes may speak to the terminal of who looks, who is often root.
TEST(StatsReading, TextsHaveNoControlCharacters) {
  const auto live = test::made_up_process();
  const auto write = [](auto& to, const char* text) { std::strncpy(to, text, sizeof to); };
  write(live->program, "\x1b]0;evil\x07\n");
  write(live->sockets[0].detail, "\x1b[2J\x9bH\x7f");
  write(live->ports[0].name, "\xc2\x9b\r");
  const ProcessReading p = read_stats(*live);
  EXPECT_EQ(p.program, "?]0;evil??");
  EXPECT_EQ(p.sockets[2].detail, "?[2J?H?");
  EXPECT_EQ(p.ports[0].name, "???");
}

/// A writer that changes address and port together, as sock does; no reading may mix two of them.
TEST(StatsReading, TextsAreWholeUnderAWriter) {
  auto live = std::make_unique<StatsLayout>();
  SocketStats& s = live->sockets[0];
  s.generation.store(2);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint8_t n = 0; !stop.load(std::memory_order_relaxed); ++n) {
      const uint32_t g = s.generation.load(std::memory_order_relaxed);
      s.generation.store(g + 1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_release);
      std::memset(s.remote_addr, n, sizeof s.remote_addr);
      s.remote_port = n;
      s.generation.store(g + 2, std::memory_order_release);
    }
  });
  unsigned whole = 0;
  // More than 3000 only while the writer, stopped in the middle by the scheduler, lets none be
  // whole.
  for (int i = 0; i < 3000 || (whole == 0 && i < 10'000'000); ++i) {
    const ProcessReading p = read_stats(*live);
    if (p.sockets.empty()) continue;  // it kept changing
    ++whole;
    const Endpoint& e = p.sockets[0].remote;
    for (const uint8_t byte : e.addr.bytes()) ASSERT_EQ(byte, e.port);
  }
  stop = true;
  writer.join();
  EXPECT_GT(whole, 0U);
}

}  // namespace
}  // namespace vireo
