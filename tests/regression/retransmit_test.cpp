// Cases 11-28: retransmission, segment lists, congestion windows.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/regression/each_iss.h"
#include "tests/script/play.h"

namespace vireo::tcp {
namespace {

const char* const kEstablished = R"(// a case
`sysctl -q net.ipv4.tcp_congestion_control=reno`
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 32792 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+0.1 < . 1:1(0) ack 1 win 32792
+0 accept(3, ..., ...) = 4
)";

std::string established(const std::string& rest, unsigned window = 32792) {
  std::string s = kEstablished + rest;
  if (window != 32792)
    for (int i = 0; i < 2; ++i) s.replace(s.find("win 32792"), 9, "win " + std::to_string(window));
  return s;
}

// Four bursts queued, a timeout, a partial ACK inside of the second, a new write: what goes out is
// in order.
TEST(Regression, Case11_OffsetsStayInOrder) {
  each_iss([](Peer& p) {
    p.establish_active();
    for (int i = 0; i < 4; ++i) p.write(text(2500, static_cast<char>('A' + i)));
    p.out();
    p.after(p.t.rtt.rto + Duration::ms(1));
    p.in(kAck, 1, 3001);  // inside of the second burst
    p.write(text(1000, 'n'));
    std::vector<Out> all = p.out();
    for (int i = 0; i < 8; ++i) {
      if (!all.empty())
        p.in(kAck, 1, all.back().seq + static_cast<uint32_t>(all.back().data.size()));
      for (Out& o : p.out()) all.push_back(std::move(o));
    }
    uint32_t at = 0;
    for (const Out& o : all) {
      EXPECT_GE(o.seq, at) << "a segment went out before one that precedes it";
      at = o.seq;
    }
    EXPECT_EQ(p.t.snd_una, 11'001u);
  });
}

// An ACK covers the data of a segment but not its FIN.
TEST(Regression, Case12_AckOfDataWithoutItsFin) {
  script::play_text(established(R"(
+0 write(4, ..., 1500) = 1500
+0 > . 1:1001(1000) ack 1
+0 shutdown(4, SHUT_WR) = 0
+0.1 < . 1:1(0) ack 1001 win 1000
+0 > FP. 1001:1501(500) ack 1
+0.1 < . 1:1(0) ack 1501 win 1000
+0 %{ assert tcpi_state == TCP_FIN_WAIT1 }%
+0.1~+0.3 > F. 1501:1501(0) ack 1
+0.1 < . 1:1(0) ack 1502 win 1000
+0 %{ assert tcpi_state == TCP_FIN_WAIT2 }%
)",
                                1000));
}

// Three segments and FIN through a window of one: FIN and PSH only on the last byte.
TEST(Regression, Case13_FlagsStayOnTheLastByte) {
  script::play_text(established(R"(
+0 write(4, ..., 2900) = 2900
+0 > . 1:1001(1000) ack 1
+0 close(4) = 0
+0.1 < . 1:1(0) ack 1001 win 1000
+0 > . 1001:2001(1000) ack 1
+0.1 < . 1:1(0) ack 2001 win 600
+0 > . 2001:2601(600) ack 1
+0.1 < . 1:1(0) ack 2601 win 1000
+0 > FP. 2601:2901(300) ack 1
)",
                                1000));
}

// Writes and windows of every size with a pool that runs dry: nothing is lost, nothing leaks.
TEST(Regression, Case14_SmallPoolsAndWindows) {
  for (uint32_t frames = 8; frames <= 48; ++frames) {  // so it runs dry at every place
    each_iss(
        [frames](Peer& p) {
          std::mt19937 rng(frames);
          p.establish_active();
          const std::string all = text(20'000);
          std::string got(all.size(), '?');
          size_t written = 0;
          for (int round = 0; round < 4000 && p.t.snd_una <= all.size(); ++round) {
            if (written < all.size()) written += p.write(all.substr(written, 1 + rng() % 1460));
            uint32_t end = 0;
            for (const Out& o : p.after(Duration::ms(20))) {
              if (o.data.empty()) continue;
              got.replace(o.seq - 1, o.data.size(), o.data);
              end = std::max(end, o.seq + static_cast<uint32_t>(o.data.size()));
            }
            p.window = static_cast<uint16_t>(1 + rng() % 1460);
            if (end > p.t.snd_una) p.in(kAck, 1, end);
          }
          EXPECT_EQ(p.t.snd_una, all.size() + 1);
          EXPECT_EQ(got, all);
        },
        frames);
  }
}

// Small writes that Nagle joined, acknowledged in part: the retransmission is the rest of them.
TEST(Regression, Case15_RetransmissionAfterAPartialAck) {
  script::play_text(established(R"(
+0 write(4, ..., 100) = 100
+0 > P. 1:101(100) ack 1
+0 write(4, ..., 100) = 100
+0 write(4, ..., 100) = 100
+0.1 < . 1:1(0) ack 101 win 32792
+0 > P. 101:301(200) ack 1
+0.1 < . 1:1(0) ack 151 win 32792
+0 write(4, ..., 50) = 50
+0.2~+0.4 > . 151:301(150) ack 1
+0.1 < . 1:1(0) ack 301 win 32792
+0 > P. 301:351(50) ack 1
)"));
}

// Duplicate ACKs do not keep the retransmission timer from expiring.
TEST(Regression, Case16_DuplicatesDoNotRestartTheTimer) { script::play("no_restart_on_duplicate"); }

// Nothing can be sent for five seconds; then it goes on without a call of the program.
TEST(Regression, Case17_OutputThatFailsIsMadeUp) {
  each_iss([](Peer& p) {
    p.establish_active();
    p.write(text(3000));
    const Instant end = p.now + Duration::s(5);
    while (p.now < end) {  // the device takes nothing
      const Instant d = deadline(p.t);
      p.now = d.is_never() || d > end ? end : std::max(d, p.now + Duration::ms(1));
      (void)on_deadline(p.t, p.now);
    }
    EXPECT_EQ(data_bytes(p.out()), 3000u);
    p.in(kAck, 1, 3001);
    EXPECT_EQ(p.t.outstanding(), 0u);
    EXPECT_EQ(state(p.t), State::kEstablished);
  });
}

// The fast retransmission is lost as well: one timeout, then the rest.
TEST(Regression, Case18_LostFastRetransmission) {
  script::play_text(established(R"(
+0 write(4, ..., 5000) = 5000
+0 > P. 1:5001(5000) ack 1
+0.1 < . 1:1(0) ack 1 win 32792
+0 < . 1:1(0) ack 1 win 32792
+0 < . 1:1(0) ack 1 win 32792
+0 > . 1:1001(1000) ack 1
+0.3 > . 1:1001(1000) ack 1
+0.1 < . 1:1(0) ack 5001 win 32792
+10 %{ assert tcpi_total_retrans == 2 }%
)"));
}

// After a timeout the ACK of the first transmission arrives: nothing is sent again.
TEST(Regression, Case19_LateAckAfterTimeout) {
  script::play_text(established(R"(
+0 write(4, ..., 5000) = 5000
+0 > P. 1:5001(5000) ack 1
+0.3 > . 1:1001(1000) ack 1
+0.01 < . 1:1(0) ack 5001 win 32792
+0 %{ assert tcpi_unacked == 0 }%
+0 write(4, ..., 1000) = 1000
+0 > P. 5001:6001(1000) ack 1
+0.1 < . 1:1(0) ack 6001 win 32792
)"));
}

// 300 duplicate ACKs with window updates and data among them: one fast retransmission.
TEST(Regression, Case20_ThreeHundredDuplicates) {
  each_iss([](Peer& p) {
    p.establish_active();
    p.write(text(10 * 1460));
    p.out();
    for (int i = 0; i < 300; ++i) {
      if (i % 50 == 49) --p.window;
      p.in(kAck, 1, 1);
    }
    p.in(kAck | kPsh, 1, 1, "data on an old ACK");
    uint64_t again = 0;
    for (const Out& o : p.out()) again += o.retransmission ? 1 : 0;
    EXPECT_EQ(again, 1u);
    p.in(kAck, 19, 10 * 1460 + 1);
    EXPECT_EQ(p.t.outstanding(), 0u);
  });
}

// SACKed, then reneged: after a timeout everything comes again.
TEST(Regression, Case21_RenegedSack) { script::play("reneging"); }

// A tail loss probe and its end.
TEST(Regression, Case22_TailLossProbe) {
  script::play("tail_loss_probe");
  script::play("probe_once");  // lost as well
}

// A round trip of nothing: the window is never below a segment and never falls without loss.
TEST(Regression, Case23_RoundTripOfZero) {
  for (int way = 0; way < 6; ++way) {
    const Duration rtt = way % 2 == 0 ? Duration{} : Duration::us(1);
    const CcKind kind = way < 2 ? CcKind::kCubic : way < 4 ? CcKind::kReno : CcKind::kDctcp;
    each_iss([rtt, kind](Peer& p) {
      p.config.congestion = kind;
      p.establish_active();
      uint32_t cwnd = p.t.cc.cwnd;
      uint32_t acked = 1;
      for (int i = 0; i < 500; ++i) {
        p.write(text(1460 * 4));
        uint32_t end = acked;
        for (const Out& o : p.out())
          end = std::max(end, o.seq + static_cast<uint32_t>(o.data.size()));
        p.now = p.now + rtt;
        p.in(kAck, 1, acked = end);
        EXPECT_GE(p.t.cc.cwnd, p.t.mss);
        EXPECT_GE(p.t.cc.cwnd, cwnd);
        cwnd = p.t.cc.cwnd;
      }
      EXPECT_GT(p.t.rtt.srtt, Duration{});
    });
  }
}

// The path carries less, with ten segments in flight: no loss to congestion control.
TEST(Regression, Case24_SmallerPathIsNoLoss) {
  each_iss([](Peer& p) {
    p.establish_active();
    const std::string all = text(14'600);
    p.write(all);
    EXPECT_EQ(p.out().size(), 10u);
    const uint32_t cwnd = p.t.cc.cwnd;
    const uint32_t ssthresh = p.t.cc.ssthresh;
    path_shrunk(p.t, 1000, p.now);
    std::string got(all.size(), '?');
    uint32_t end = 0;
    const auto place = [&](const std::vector<Out>& out) {
      for (const Out& o : out) {
        EXPECT_LE(o.data.size(), 1000u);
        got.replace(o.seq - 1, o.data.size(), o.data);
        end = std::max(end, o.seq + static_cast<uint32_t>(o.data.size()));
      }
    };
    place(p.out());
    path_shrunk(p.t, 1000, p.now);  // each of the ten was answered so
    EXPECT_TRUE(p.out().empty()) << "once";
    EXPECT_EQ(p.t.cc.cwnd, cwnd);
    EXPECT_EQ(p.t.cc.ssthresh, ssthresh);
    for (int i = 0; i < 20 && p.t.snd_una <= all.size(); ++i) {
      p.in(kAck, 1, end);
      place(p.out());
    }
    EXPECT_EQ(got, all);
    EXPECT_GE(p.t.cc.cwnd, cwnd);
    EXPECT_EQ(p.t.cc.ssthresh, ssthresh);
  });
}

// Five timeouts for the same data: ssthresh is half of the first flight.
TEST(Regression, Case25_SsthreshOncePerLoss) { script::play("ssthresh_once"); }

// A megabyte is written at once: no more than the window is in flight.
TEST(Regression, Case26_FlightIsBoundedByTheWindow) {
  each_iss(
      [](Peer& p) {
        p.config.snd_buf = 2'000'000;
        p.establish_active();
        EXPECT_EQ(p.write(text(1'000'000)), 1'000'000u);
        EXPECT_LE(data_bytes(p.out()), 10u * 1460u);
      },
      2048);
}

// Segments of a batch in the order 1, 3, 2 are joined without a hole between them.
TEST(Regression, Case27_BatchOutOfOrder) {
  each_iss([](Peer& p) {
    p.config.sack = true;
    p.establish_passive();
    const std::string all = text(300);
    p.in(kAck, 1, 1, all.substr(0, 100));
    p.in(kAck | kPsh, 201, 1, all.substr(200));
    EXPECT_EQ(p.t.rcv_nxt, 101u);
    p.in(kAck, 101, 1, all.substr(100, 100));
    EXPECT_EQ(p.t.rcv_nxt, 301u);
    EXPECT_EQ(p.read(), all);
  });
}

// A pending ACK and a burst: the first segment carries it; refused by the device, it stays pending.
TEST(Regression, Case28_PendingAckRidesOnTheBurst) {
  each_iss([](Peer& p) {
    p.establish_passive();
    p.in(kAck, 1, 1, text(100));
    p.write(text(4000));
    Plan first, again;
    ASSERT_TRUE(next_segment(p.t, p.now, first));
    ASSERT_TRUE(next_segment(p.t, p.now, again));  // the first was not taken
    EXPECT_EQ(again.seq, first.seq);
    EXPECT_EQ(again.ack.value() - p.irs.value(), 101u);
    EXPECT_FALSE(p.t.delack_at.is_never() && p.t.acks_due == 0);
    const auto o = p.out();
    ASSERT_EQ(o.size(), 3u);
    EXPECT_EQ(o[0].ack, 101u);
    EXPECT_TRUE(p.t.delack_at.is_never());
    EXPECT_EQ(p.t.acks_due, 0);
  });
}

}  // namespace
}  // namespace vireo::tcp
