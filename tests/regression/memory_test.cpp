// Cases 53-57: measured times, large segments, reordering at speed.
#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/regression/each_iss.h"
#include "tests/regression/pair.h"
#include "tests/script/play.h"
#include "tests/sim/two_hosts.h"

namespace vireo::tcp {
namespace {

// A round trip keeps its fraction of a millisecond, and is that of the ACK's arrival.
TEST(Regression, Case53_RoundTripIsExact) {
  each_iss([](Peer& p) {
    open_active(p.t, p.config, p.pool, p.iss, p.now);
    p.out();
    p.now = p.now + Duration::ns(250'017);
    p.in(kSyn | kAck, 0, 1);
    EXPECT_EQ(p.t.rtt.srtt, Duration::ns(250'017));
    p.now = p.now + Duration::ms(50);  // the program sleeps: no part of any round trip
    p.out();
    p.write("x");
    p.out();
    p.now = p.now + Duration::ns(250'017);
    p.in(kAck, 1, 2);
    EXPECT_EQ(p.t.rtt.srtt, Duration::ns(250'017));
  });
}

// 24 idle days and timestamps; the parsers of options, SACK and ARP have fuzzers (tests/fuzz/wire).
TEST(Regression, Case54_TwentyFourDays) { script::play("paws_24_days"); }

// MSS 0, and an initial number of 0xffffffff (one of the six of each test).
TEST(Regression, Case55_MssZero) {
  each_iss([](Peer& p) {
    p.peer_mss = 0;
    p.establish_passive();
    EXPECT_EQ(effective_mss(p.t), 536);
    p.write(text(1000));
    EXPECT_EQ(p.out().size(), 2u);
  });
}

// Windows above 64 KB: in-flight data, shown window and edges keep their upper bits.
TEST(Regression, Case56_WindowsAbove64K) {
  for (unsigned i = 0; i < 6; ++i) {
    Pair w(4096);
    w.a.config.snd_buf = w.b.config.rcv_buf = 2'000'000;
    w.connect(Seq32(kIss[i]), Seq32(kIss[(i + 3) % 6]));
    w.after(Duration::ms(10));
    const std::string all = text(3'000'000);
    std::string got;
    size_t written = 0;
    uint64_t most = 0;
    for (int k = 0; k < 2000 && got.size() < all.size(); ++k) {
      written += w.write(0, all.substr(written));
      w.after(Duration::ms(1));
      most = std::max(most, w.a.t.outstanding());
      if (k % 8 == 7) got += w.read(1);
    }
    EXPECT_GT(most, 100'000u);
    EXPECT_TRUE(got == all);
    EXPECT_EQ(info(w.a.t).total_retrans, 0u);
  }
}

// Segments of an MTU of 65535, each in many frames: taken whole, and acknowledged at the latest
// when delayed ACKs are.
TEST(Regression, Case56_LargestSegments) {
  each_iss(
      [](Peer& p) {
        constexpr uint32_t kMss = 65'495;
        p.config.mss = p.peer_mss = kMss;
        p.config.window_scaling = true;
        p.config.rcv_buf = 2'000'000;
        p.establish_passive();
        const std::string all = text(20 * kMss);
        std::string got;
        for (uint32_t at = 0; at < all.size(); at += kMss) {
          Segment s = p.make(kAck, 1 + at, 1, "", {});
          for (uint32_t i = 0; i < kMss;) {
            PacketRef b(p.pool.take());
            ASSERT_TRUE(b);
            const uint32_t n = std::min(kMss - i, 1700U);
            std::memcpy(b->data(), all.data() + at + i, n);
            b->length = static_cast<uint16_t>(n);
            s.payload.push_back(std::move(b));
            i += n;
          }
          (void)input(p.t, std::move(s), p.now);
          const auto acks = p.after(Duration::ms(41));
          ASSERT_EQ(acks.size(), 1u);
          EXPECT_EQ(acks[0].ack, 1 + at + kMss);
          EXPECT_GE(uint64_t{acks[0].window} << p.t.rcv_wscale, 1'000'000u);
          got += p.read();
          p.out();
        }
        EXPECT_TRUE(got == all);
      },
      2048);
}

// Reordering on a long fast path, a segment of a hundred held back for less than a quarter of the
// round trip: everything arrives, and at four fifths of the line's rate at least. VIREO_REORDER=1
// has the full scale, a gigabyte a second over 100 ms; else a fiftieth of the rate over 10 ms.
TEST(Regression, Case57_ReorderingAtSpeed) {
  const bool full = std::getenv("VIREO_REORDER") != nullptr;
  const uint64_t rate = full ? 1'000'000'000 : 20'000'000;
  const Duration rtt = Duration::ms(full ? 100 : 10);
  const auto bdp = static_cast<uint32_t>(rate / 1000 * static_cast<uint64_t>(rtt.ms()));
  sim::Scenario s;
  s.seed = 57;
  s.frames = std::bit_ceil(6 * bdp / 1460);
  for (unsigned side = 0; side < 2; ++side) {
    s.config[side].mss = 1460;
    s.config[side].wscale = 14;
    s.config[side].rcv_buf = s.config[side].snd_buf = 2 * bdp;
    s.wire[side].delay = rtt / 2;
  }
  s.wire[0].bytes_per_second = rate;
  s.wire[0].reorder_ppm = 10'000;
  s.wire[0].reorder_by = rtt / 10;
  s.app[0].to_send = 60ULL * bdp;
  s.app[0].max_write = s.app[1].max_read = 1'000'000;
  s.app[1].to_send = 0;
  const sim::Outcome o = sim::run(s);
  EXPECT_EQ(o.failure, "") << s.str();
  const double seconds = static_cast<double>((o.end - o.start).ns()) * 1e-9;
  const double share = static_cast<double>(s.app[0].to_send) / seconds / static_cast<double>(rate);
  std::printf("%.0f %% of the line, %lu of %lu segments sent again\n", 100 * share,
              o.retransmissions, o.segments);
  EXPECT_GE(share, 0.8);
}

}  // namespace
}  // namespace vireo::tcp
