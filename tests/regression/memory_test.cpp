// Cases 53-57: measured times, large segments, reordering at speed.
#include <gtest/gtest.h>

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

// Reordering on a long fast path: everything arrives, and in the end it is not the sender that is
// in the way.
TEST(Regression, Case57_ReorderingAtSpeed) {
  sim::Scenario s;
  s.seed = 57;
  s.frames = 16384;
  for (unsigned side = 0; side < 2; ++side) {
    s.config[side].mss = 1460;
    s.config[side].wscale = 10;
    s.config[side].rcv_buf = s.config[side].snd_buf = 8'000'000;
    s.wire[side].delay = Duration::ms(10);
  }
  s.wire[0].reorder_ppm = 10'000;
  s.wire[0].reorder_by = Duration::us(200);
  s.app[0].to_send = 8'000'000;
  s.app[0].max_write = s.app[1].max_read = 1'000'000;
  s.app[1].to_send = 0;
  EXPECT_EQ(sim::run(s).failure, "") << s.str();
}

}  // namespace
}  // namespace vireo::tcp
