// Cases 1-10: sequence numbers and windows.
#include <gtest/gtest.h>

#include "stack/tcp/window.h"
#include "tests/regression/each_iss.h"
#include "tests/script/play.h"
#include "tests/sim/two_hosts.h"

namespace vireo::tcp {
namespace {

// A pseudo-random stream across 2^32 with loss, reordering and overlap arrives byte for byte.
TEST(Regression, Case01_StreamAcrossTheWrap) {
  for (unsigned i = 0; i < 6; ++i) {
    sim::Scenario s;
    s.seed = 100 + i;
    for (unsigned side = 0; side < 2; ++side) {
      s.config[side].mss = 1460;
      s.config[side].retries2 = 60;
      s.config[side].rto_max = Duration::s(2);
      s.iss[side] = Seq32(0U - 20'000U * (side + i));
      s.wire[side].loss_ppm = 30'000;
      s.wire[side].reorder_ppm = 50'000;
      s.wire[side].duplicate_ppm = 50'000;
      s.app[side].to_send = 300'000;
    }
    EXPECT_EQ(sim::run(s).failure, "") << s.str();
  }
}

// The window of a SYN-ACK is never scaled.
TEST(Regression, Case02_SynWindowIsNotScaled) { script::play("wscale_syn_ack_unscaled"); }

// A receive buffer that is no multiple of the window's unit, filled exactly to the shown edge.
TEST(Regression, Case03_EdgeOfARoundedWindow) {
  each_iss([](Peer& p) {
    p.config.window_scaling = true;
    p.config.wscale = 7;
    p.config.rcv_buf = 10'001;
    p.establish_passive();
    const auto edge = static_cast<uint32_t>(p.t.rcv_adv);
    ASSERT_GE(edge, 10'001u - 128);
    uint32_t at = 1;
    for (; at + 1000 < edge; at += 1000) p.in(kAck, at, 1, text(1000));
    p.in(kAck, at, 1, text(edge - at - 1));
    p.out();
    p.in(kAck, edge - 1, 1, "x");  // the very last byte that was shown
    const auto last = p.after(Duration::s(1));
    ASSERT_FALSE(last.empty());
    EXPECT_EQ(last.back().ack, edge);
    EXPECT_EQ(last.back().window, 0);
    EXPECT_EQ(p.read().size(), edge - 1);
    const auto reopened = p.out();
    ASSERT_EQ(reopened.size(), 1u);
    EXPECT_GE(uint32_t{reopened[0].window} << 7, 10'001u - 128);
  });
}

// 64 KB in flight; the peer's window falls to 10, to 0, then opens again.
TEST(Regression, Case04_PeerTakesItsWindowBack) {
  each_iss([](Peer& p) {
    p.establish_active();
    p.t.cc.cwnd = 200'000;
    const std::string all = text(70'000);
    p.write(all);
    const auto flight = p.out();
    EXPECT_GE(data_bytes(flight), 64'000u);
    for (const uint16_t w : {uint16_t{10}, uint16_t{0}}) {
      p.window = w;
      p.in(kAck, 1, 1);
      EXPECT_EQ(data_bytes(p.out()), 0u);
      EXPECT_LE(p.t.snd_una, p.t.snd_nxt);
    }
    p.window = 65535;
    std::string got(70'000, '?');
    const auto place = [&got](const std::vector<Out>& out) {
      for (const Out& o : out) got.replace(o.seq - 1, o.data.size(), o.data);
    };
    place(flight);
    p.in(kAck, 1, 60'001);
    place(p.out());
    p.in(kAck, 1, 70'001);
    place(p.out());
    EXPECT_EQ(got, all);
    EXPECT_EQ(p.t.outstanding(), 0u);
  });
}

// Looking at data without taking it moves no window.
TEST(Regression, Case05_PeekMovesNoWindow) {
  std::string peeks;
  for (int i = 0; i < 1000; ++i) peeks += "+0 recv(4, ..., 5000, MSG_PEEK) = 4096\n";
  script::play_text(R"(// case 5
`sysctl -q net.ipv4.tcp_rmem="4096 4096 4096"`
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 32792 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+0.1 < . 1:1(0) ack 1 win 32792
+0 accept(3, ..., ...) = 4
+0 < . 1:4097(4096) ack 1 win 32792
+0 > . 1:1(0) ack 4097 win 0
)" + peeks + R"(
+0.1 < . 4097:4098(1) ack 1 win 32792
+0 > . 1:1(0) ack 4097 win 0
+0 read(4, ..., 5000) = 4096
+0 > . 1:1(0) ack 4097 win 4096
)");
}

// Two segments in one batch, then a write: its segment acknowledges both.
TEST(Regression, Case06_ReplyAcknowledgesTheWholeBatch) {
  each_iss([](Peer& p) {
    p.establish_passive();
    p.in(kAck | kPsh, 1, 1, text(500));
    p.in(kAck | kPsh, 501, 1, text(500));
    p.write("reply");
    const auto o = p.out();
    ASSERT_FALSE(o.empty());
    for (const Out& one : o) EXPECT_EQ(one.ack, 1001u);
  });
}

// The out-of-order limit is reached; the segment at rcv_nxt must still be taken.
TEST(Regression, Case07_FullReassemblyStillAdvances) {
  each_iss([](Peer& p) {
    p.establish_passive();
    for (uint32_t i = 0; i < 200; ++i) p.in(kAck, 3 + 2 * i, 1, "x");
    p.out();
    ASSERT_LT(p.t.reassembly->count(), 200u) << "the limit was not reached";
    p.in(kAck, 1, 1, "ab");
    EXPECT_GE(p.t.rcv_nxt, 4u);
    const auto o = p.out();
    ASSERT_FALSE(o.empty());
    EXPECT_GE(o.back().ack, 4u);
    EXPECT_EQ(p.read().substr(0, 2), "ab");
  });
}

// A held tail, then a longer segment that overlaps it and reaches past the edge.
TEST(Regression, Case08_ReplacementStaysInTheWindow) {
  each_iss([](Peer& p) {
    p.config.rcv_buf = 10'000;
    p.establish_passive();
    p.in(kAck, 9001, 1, text(500, 'A'));
    p.in(kAck, 9001, 1, text(1400, 'A'));
    EXPECT_LE(p.t.reassembly->last_end(), 10'001u);
    for (uint32_t at = 1; at < 9001; at += 1000) p.in(kAck, at, 1, text(1000));
    EXPECT_EQ(p.t.rcv_nxt, 10'001u);
    const std::string all = p.read();
    ASSERT_EQ(all.size(), 10'000u);
    EXPECT_EQ(all.substr(9000), text(1000, 'A'));
  });
}

// A duplicate and a partial overlap are counted once: after reading the window is whole again.
TEST(Regression, Case09_OverlapIsCountedOnce) {
  each_iss([](Peer& p) {
    p.config.rcv_buf = 20'000;
    p.establish_passive();
    p.in(kAck, 1, 1, text(1000));
    p.in(kAck, 1, 1, text(1000));
    p.in(kAck, 501, 1, text(1000));
    p.in(kAck, 1801, 1, text(200));
    p.in(kAck, 1701, 1, text(300));
    p.in(kAck, 1501, 1, text(400));
    EXPECT_EQ(p.t.rcv_nxt, 2001u);
    EXPECT_EQ(p.read().size(), 2000u);
    p.in(kAck, 2001, 1, text(1460));
    EXPECT_EQ(p.read().size(), 1460u);
    EXPECT_EQ(receive_room(p.t), 20'000u);
  });
}

// The window of a challenge ACK is that of its own connection.
TEST(Regression, Case10_ChallengeShowsItsOwnWindow) {
  each_iss([](Peer& p) {
    Peer q(77, 99);
    p.config.rcv_buf = 5000;
    q.config.rcv_buf = 9000;
    p.establish_passive();
    q.establish_passive();
    p.in(kRst, 2, 0);
    q.in(kRst, 2, 0);
    const auto a = p.out();
    const auto b = q.out();
    ASSERT_EQ(a.size(), 1u);
    ASSERT_EQ(b.size(), 1u);
    EXPECT_EQ(a[0].window, 5000);
    EXPECT_EQ(b[0].window, 9000);
  });
}

}  // namespace
}  // namespace vireo::tcp
