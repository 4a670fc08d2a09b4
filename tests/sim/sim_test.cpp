// Two hosts, a harmful wire, thousands of seeded runs. VIREO_SIM_SEED=<n> replays the random run of
// that seed alone; VIREO_SIM_RUNS=<n> sets how many random runs there are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/sim/two_hosts.h"

namespace vireo::sim {
namespace {

Seq32 iss_of(unsigned i) {
  static constexpr uint32_t kIss[6] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0u - 1460u};
  return Seq32(kIss[i % 6]);
}

Scenario base(uint64_t seed) {
  Scenario s;
  s.seed = seed;
  for (unsigned i = 0; i < 2; ++i) {
    s.config[i].mss = 1460;
    s.iss[i] = iss_of(static_cast<unsigned>(seed) + 3 * i);
  }
  return s;
}

void expect_right(const Scenario& s) {
  const Outcome o = run(s);
  EXPECT_EQ(o.failure, "") << s.str() << "\n  after " << o.events << " events";
}

TEST(Sim, PerfectWire) {
  for (unsigned i = 0; i < 6; ++i) expect_right(base(i));
}

TEST(Sim, PerfectWireNeverRetransmits) {
  const Outcome o = run(base(1));
  EXPECT_EQ(o.failure, "");
  EXPECT_EQ(o.retransmissions, 0u);
}

/// Slow start overflows a queue: of a round trip every second segment is lost, in hundreds of
/// holes. What was dropped is sent again, and nothing else.
TEST(Sim, AnOverflowedQueueIsRepairedHoleByHole) {
  Scenario s = base(1);
  for (unsigned i = 0; i < 2; ++i) {
    s.wire[i].delay = Duration::ms(15);
    s.wire[i].bytes_per_second = 12'500'000;
    s.wire[i].queue_bytes = 375'000;  // a bandwidth-delay product
    s.config[i].rcv_buf = s.config[i].snd_buf = 4 << 20;
    s.config[i].wscale = 8;
  }
  s.frames = 8192;
  s.app[0].to_send = 6 << 20;
  s.app[0].max_write = s.app[1].max_read = 200'000;
  s.app[1].to_send = 0;
  const Outcome o = run(s);
  EXPECT_EQ(o.failure, "");
  EXPECT_GT(o.overflowed, 130u) << "holes enough to see a limit";
  EXPECT_EQ(o.retransmissions, o.overflowed);
  EXPECT_EQ(o.timeouts, 0u);
  EXPECT_LT((o.end - o.start).ms(), 800) << "6 MiB at line rate take 0.52 s";
}

/// The same on other links, with what arrives taken in bursts, and with acknowledgments lost or
/// overtaking each other a little: SACK tells what arrived, and nothing else is sent again.
TEST(Sim, AfterAnOverflowOnlyWhatWasDroppedIsSentAgain) {
  constexpr struct {
    int64_t one_way_ms;
    uint64_t rate;
    uint32_t queue;
  } kLinks[] = {{5, 5'000'000, 50'000}, {5, 12'500'000, 31'250}, {25, 12'500'000, 156'250}};
  for (const auto& link : kLinks) {
    for (const uint32_t ack_loss : {0U, 50'000U}) {
      for (const auto cc : {tcp::CcKind::kReno, tcp::CcKind::kCubic}) {
        Scenario s = base(1);
        for (unsigned i = 0; i < 2; ++i) {
          s.wire[i].delay = Duration::ms(link.one_way_ms);
          s.config[i].rcv_buf = s.config[i].snd_buf = 4 << 20;
          s.config[i].wscale = 8;
          s.config[i].congestion = cc;
        }
        s.wire[0].bytes_per_second = link.rate;
        s.wire[0].queue_bytes = link.queue;
        s.wire[1].loss_ppm = ack_loss;
        s.gathers = Duration::us(10);
        s.frames = 8192;
        s.app[0] = {.to_send = 6 << 20, .max_write = 200'000, .max_read = 200'000};
        s.app[1] = {.to_send = 0, .max_write = 1, .max_read = 400'000};
        const Outcome o = run(s);
        EXPECT_EQ(o.failure, "") << s.str();
        EXPECT_GT(o.overflowed, 15u) << s.str();
        EXPECT_EQ(o.retransmissions, o.overflowed) << s.str();
        EXPECT_EQ(o.timeouts, 0u) << s.str();
      }
    }
  }
}

/// A path that becomes narrow and tells nobody, and wide again: RFC 4821 as Linux's
/// tcp_mtu_probing. Data goes on after a few timeouts, in segments as large as it carries, and in
/// full ones once the search is begun anew. Without it nothing gets through.
TEST(Sim, ASilentlyShrunkPathIsSearched) {
  for (const auto when : {tcp::MtuProbing::kOnBlackHole, tcp::MtuProbing::kAlways}) {
    for (const bool sack : {true, false}) {
      for (const auto cc : {tcp::CcKind::kReno, tcp::CcKind::kCubic}) {
        Scenario s = base(1);
        for (unsigned i = 0; i < 2; ++i) {
          s.wire[i].delay = Duration::ms(5);
          s.config[i].rcv_buf = s.config[i].snd_buf = 1 << 20;
          s.config[i].wscale = 8;
          s.config[i].sack = sack;
          s.config[i].congestion = cc;
        }
        s.config[0].mtu_probing = when;
        s.config[0].mtu_interval_s = 10;
        s.wire[0].bytes_per_second = 1'000'000;
        s.wire[0].queue_bytes = 30'000;
        s.wire[0].shrunk_from = Duration::s(2);
        s.wire[0].shrunk_until = Duration::s(12);
        s.wire[0].shrunk_to = 1300;
        s.frames = 8192;
        s.app[0] = {.to_send = 25'000'000, .max_write = 200'000, .max_read = 200'000};
        s.app[1] = {.to_send = 0, .max_write = 1, .max_read = 400'000};
        const Outcome o = run(s);
        EXPECT_EQ(o.failure, "") << s.str();
        EXPECT_GT(o.mss_shrunk, 1288u - 8u) << s.str();
        EXPECT_LE(o.mss_shrunk, 1288u) << s.str();
        EXPECT_GT(o.mss_end, 1448u - 8u) << s.str();
        EXPECT_LT((o.end - o.start).ms(), 32'000) << "25 MB at line rate take 26 s; " << s.str();
      }
    }
  }
}

TEST(Sim, SimultaneousOpen) {
  for (unsigned i = 0; i < 6; ++i) {
    Scenario s = base(i);
    s.simultaneous_open = true;
    expect_right(s);
  }
}

/// RFC 7413 §4.2: data on the SYN is acknowledged with it or comes again, and either way arrives
/// once; nothing else is sent again, and both may speak at once.
TEST(Sim, DataOnTheSyn) {
  for (unsigned i = 0; i < 6; ++i) {
    for (const bool taken : {false, true}) {
      for (const uint64_t bytes : {1ULL, 1000ULL, 100'000ULL}) {
        Scenario s = base(i);
        s.syn_data = true;
        s.takes_syn_data = taken;
        s.app[0].to_send = s.app[1].to_send = bytes;
        const Outcome o = run(s);
        EXPECT_EQ(o.failure, "") << s.str();
        EXPECT_EQ(o.syn_data, taken) << s.str();
        EXPECT_EQ(o.retransmissions, 0u) << s.str();
      }
    }
  }
}

/// A scenario drawn from the whole space.
Scenario random_scenario(uint64_t seed) {
  std::mt19937_64 r(seed * 0x9e3779b97f4a7c15ULL + 1);
  const auto pick = [&r](auto... v) {
    const uint64_t all[] = {static_cast<uint64_t>(v)...};
    return all[r() % (sizeof all / sizeof all[0])];
  };
  Scenario s = base(seed);
  s.iss[0] = iss_of(static_cast<unsigned>(r()));
  s.iss[1] = r() % 4 == 0 ? Seq32(static_cast<uint32_t>(r())) : iss_of(static_cast<unsigned>(r()));
  s.simultaneous_open = r() % 8 == 0;
  if (r() % 2 == 0) s.gathers = Duration::us(10);
  s.ring_full_ppm = static_cast<uint32_t>(pick(0, 0, 1000, 100'000));
  s.device_holds = Duration::us(static_cast<int64_t>(pick(0, 10, 5000)));
  s.frames = static_cast<uint32_t>(pick(4096, 4096, 1024, 512));
  for (int i = 0; i < 2; ++i) {
    WireModel& w = s.wire[i];
    w.delay = Duration::us(static_cast<int64_t>(pick(0, 1, 50, 1000, 40'000)));
    w.jitter = Duration::us(static_cast<int64_t>(pick(0, 0, 20, 500)));
    w.loss_ppm = static_cast<uint32_t>(pick(0, 0, 1000, 10'000, 50'000, 200'000));
    w.duplicate_ppm = static_cast<uint32_t>(pick(0, 0, 1000, 100'000));
    w.reorder_ppm = static_cast<uint32_t>(pick(0, 0, 10'000, 200'000));
    w.reorder_by = Duration::us(static_cast<int64_t>(pick(10, 300, 5000)));
    w.bytes_per_second = pick(0, 0, 1'000'000, 125'000'000);
    w.queue_bytes = w.bytes_per_second == 0 ? 0 : static_cast<uint32_t>(pick(0, 20'000, 100'000));
    AppModel& a = s.app[i];
    a.to_send = pick(0, 1, 1000, 30'000, 200'000);
    a.max_write =
        static_cast<uint32_t>(pick(1 + a.to_send / 50, 100 + a.to_send / 20, 5000, 70'000));
    a.max_read = static_cast<uint32_t>(pick(10 + a.to_send / 50, 1500, 70'000));
    a.think = Duration::us(static_cast<int64_t>(pick(0, 0, 100, 3000)));
    a.read_pause = Duration::us(static_cast<int64_t>(pick(0, 0, 100, 3000)));
    a.more_percent = static_cast<uint32_t>(pick(0, 0, 50));
    tcp::Config& c = s.config[i];
    c.mss = static_cast<uint16_t>(pick(1460, 1460, 536, 1448, 100, 1700));
    c.rcv_buf = static_cast<uint32_t>(pick(131072, 65535, 20'000, 4096, 3001, 1'000'000));
    c.snd_buf = static_cast<uint32_t>(pick(131072, 20'000, 4096, 1'000'000));
    c.wscale = static_cast<uint8_t>(pick(0, 2, 7, 14));
    c.window_scaling = r() % 4 != 0;
    c.timestamps = r() % 3 != 0;
    c.sack = r() % 3 != 0;
    c.nodelay = r() % 2 == 0;
    c.cork = r() % 16 == 0;
    c.quickack = r() % 8 == 0;
    c.ts_offset = static_cast<uint32_t>(r());
    c.retries2 = 60;  // the wire is bad, not cut: the connection must finish
    c.syn_retries = c.synack_retries = 30;
    c.rto_max = Duration::s(2);
  }
  for (tcp::Config& c : s.config) {
    c.mtu_probing = static_cast<tcp::MtuProbing>(pick(0, 0, 1, 2));
    c.mtu_base = static_cast<uint16_t>(pick(1024, 500, 60));
    c.mtu_interval_s = static_cast<uint16_t>(pick(600, 1));
  }
  s.syn_data = r() % 2 == 0;
  s.takes_syn_data = r() % 2 == 0;
  return s;
}

TEST(Sim, RandomScenarios) {
  if (const char* one = std::getenv("VIREO_SIM_SEED")) {
    expect_right(random_scenario(std::strtoull(one, nullptr, 10)));
    return;
  }
  const char* runs = std::getenv("VIREO_SIM_RUNS");
  const uint64_t n = runs != nullptr ? std::strtoull(runs, nullptr, 10) : 400;
  for (uint64_t seed = 1; seed <= n && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("VIREO_SIM_SEED=" + std::to_string(seed));
    expect_right(random_scenario(seed));
  }
}

/// Devices that segment change when nothing, but in how many frames it is told: the same run with
/// and without them puts the same segments on the wire at the same times, retransmissions,
/// recovery, timers and all, to the nanosecond.
TEST(Sim, BurstsAreTheSameSegments) {
  uint64_t bursts = 0, retransmissions = 0;
  const char* runs = std::getenv("VIREO_SIM_RUNS");
  const uint64_t n = runs != nullptr ? std::strtoull(runs, nullptr, 10) : 60;
  for (uint64_t seed = 1; seed <= n && !::testing::Test::HasFailure(); ++seed) {
    Scenario s = random_scenario(seed);
    std::mt19937_64 r(seed);
    s.ring_full_ppm = 0;  // a frame refused is not as many segments in both
    s.logged = true;
    for (int i = 0; i < 2; ++i) {
      tcp::Config& c = s.config[i];
      c.congestion = static_cast<tcp::CcKind>(r() % 3);
      c.ecn = static_cast<tcp::EcnMode>(r() % 3);
      if (s.config[1 - i].rcv_buf > 20'000) s.app[i].to_send = 400'000;
    }
    const Outcome single = run(s);
    constexpr tcp::BurstLimits kLimits[] = {
        {65'415, 64, 64}, {65'415, 15, 64}, {9000, 4, 8}, {3000, 2, 64}, {65'415, 1, 64}};
    s.bursts = kLimits[seed % 5];
    const Outcome cut = run(s);
    EXPECT_EQ(single.failure, "") << s.str();
    EXPECT_EQ(cut.failure, "") << s.str();
    EXPECT_EQ(single.bursts, 0u);
    bursts += cut.bursts;
    retransmissions += cut.retransmissions;
    const auto [one, other] = std::ranges::mismatch(single.log, cut.log);
    EXPECT_TRUE(one == single.log.end() && other == cut.log.end())
        << s.str() << "\n  seed " << seed << ", segment " << one - single.log.begin()
        << "\n  one by one " << (one == single.log.end() ? "(end)" : *one) << "\n  in bursts  "
        << (other == cut.log.end() ? "(end)" : *other);
  }
  EXPECT_GT(bursts, 5000u) << "else nothing was compared";
  EXPECT_GT(retransmissions, 1000u);
}

/// A ring that has no room for a burst took nothing of it.
TEST(Sim, ARefusedBurstIsSentLater) {
  for (unsigned i = 0; i < 6; ++i) {
    Scenario s = base(i);
    s.ring_full_ppm = 300'000;
    s.bursts = {65'415, 64, 64};
    s.device_holds = Duration::us(100);
    const Outcome o = run(s);
    EXPECT_EQ(o.failure, "") << s.str();
    EXPECT_GT(o.bursts, 5u);
    EXPECT_EQ(o.retransmissions, 0u) << s.str();
  }
}

}  // namespace
}  // namespace vireo::sim
