// Cases 29-36: zero windows, persist, keepalive.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/regression/each_iss.h"
#include "tests/regression/pair.h"
#include "tests/script/play.h"

namespace vireo::tcp {
namespace {

// A window that is open but too small, and the update is lost: the sender must not wait for ever.
TEST(Regression, Case29_SmallWindowAndLostUpdate) {
  each_iss([](Peer& p) {
    p.config.nodelay = false;
    p.establish_active();
    p.write(text(1460));
    p.out();
    p.window = 100;
    p.in(kAck, 1, 1461);
    p.write(text(1460));
    EXPECT_EQ(data_bytes(p.out()), 0u);
    EXPECT_GT(data_bytes(p.after(Duration::s(3))), 0u);
  });
}

// The window closes with three segments in flight: they come again first, then probes; no byte is
// lost.
TEST(Regression, Case30_ZeroWindowWithDataInFlight) {
  each_iss([](Peer& p) {
    p.establish_active();
    const std::string all = text(6 * 1460);
    std::string got(all.size(), '?');
    const auto place = [&got](const std::vector<Out>& out) {
      for (const Out& o : out)
        if (!o.data.empty()) got.replace(o.seq - 1, o.data.size(), o.data);
    };
    p.window = 3 * 1460;
    p.in(kAck, 1, 1);
    p.write(all);
    EXPECT_EQ(p.out().size(), 3u);
    p.window = 0;
    p.in(kAck, 1, 1);
    EXPECT_EQ(p.t.rtx_timer, RtxTimer::kRetransmit);
    place(p.after(p.t.rtt.rto + Duration::ms(1)));
    p.in(kAck, 1, 1 + 3 * 1460);
    place(p.out());
    EXPECT_EQ(p.t.rtx_timer, RtxTimer::kPersist);
    for (int i = 0; i < 3; ++i) {
      const auto probe = p.after(Duration::s(61));
      place(probe);
      EXPECT_FALSE(probe.empty());
      p.in(kAck, 1, 1 + 3 * 1460);
    }
    p.window = 65535;
    p.in(kAck, 1, 1 + 3 * 1460);
    place(p.out());
    EXPECT_EQ(got.substr(3 * 1460), all.substr(3 * 1460));
    EXPECT_EQ(p.t.snd_nxt, 1u + 6 * 1460);
  });
}

// A peer that opens its window only when it gets a probe with data.
TEST(Regression, Case31_ProbeCarriesData) { script::play("zero_window_probe_is_taken"); }

/// A minute after both windows closed, with 20 000 bytes written on either side.
void shut_both(Pair& w, unsigned i) {
  w.a.config.rcv_buf = w.b.config.rcv_buf = 4096;
  w.connect(Seq32(kIss[i]), Seq32(kIss[(i + 3) % 6]));
  w.after(Duration::ms(10));
  ASSERT_EQ(state(w.b.t), State::kEstablished);
  w.write(0, text(20'000));
  w.write(1, text(20'000));
  w.after(Duration::s(60));
}

// Both sides full, nobody reads: no more than a probe and its answer in a persist interval.
TEST(Regression, Case32_BothWindowsClosed) {
  for (unsigned i = 0; i < 6; ++i) {
    Pair w;
    ASSERT_NO_FATAL_FAILURE(shut_both(w, i));
    const uint64_t before = w.a.sent + w.b.sent;
    w.after(Duration::s(600));
    // Probes are a minute apart by now: each side sends one, at most eleven, and answers one.
    EXPECT_LE(w.a.sent + w.b.sent - before, 44u);
    EXPECT_EQ(state(w.a.t), State::kEstablished);
    std::string a, b;
    for (int k = 0; k < 400; ++k) {
      a += w.read(0);
      b += w.read(1);
      w.after(Duration::ms(200));
    }
    EXPECT_EQ(a, text(20'000));
    EXPECT_EQ(b, text(20'000));
  }
}

// And when both have room again but the updates are lost, the probes cross and both are taken: each
// side then says everything from a byte before what the other awaits.
TEST(Regression, Case32_ProbesThatCross) {
  for (unsigned i = 0; i < 6; ++i) {
    Pair w;
    ASSERT_NO_FATAL_FAILURE(shut_both(w, i));
    ASSERT_EQ(w.a.t.rtx_timer, RtxTimer::kPersist);
    ASSERT_EQ(w.a.t.rtx_at, w.b.t.rtx_at);
    w.lose = [](const Pair::Flying&) { return true; };
    std::string a = w.read(0);
    std::string b = w.read(1);
    w.lose = nullptr;
    w.after(Duration::s(61));
    EXPECT_EQ(w.a.t.rcv_nxt, w.b.t.snd_una);
    EXPECT_EQ(w.b.t.rcv_nxt, w.a.t.snd_una);
    for (int k = 0; k < 100; ++k) {
      a += w.read(0);
      b += w.read(1);
      w.after(Duration::s(1));
    }
    EXPECT_EQ(a, text(20'000));
    EXPECT_EQ(b, text(20'000));
  }
}

// Keepalive on a connection with timestamps: the probe carries them, an answer counts with or
// without.
TEST(Regression, Case33_KeepaliveWithTimestamps) {
  script::play_text(R"(// case 33
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 32792 <mss 1012,sackOK,TS val 1000 ecr 0>
+0 > S. 0:0(0) ack 1 <mss 1460,sackOK,TS val 100 ecr 1000>
+0.1 < . 1:1(0) ack 1 win 32792 <nop,nop,TS val 1100 ecr 100>
+0 accept(3, ..., ...) = 4
+0 setsockopt(4, SOL_TCP, TCP_KEEPIDLE, [10], 4) = 0
+0 setsockopt(4, SOL_TCP, TCP_KEEPINTVL, [5], 4) = 0
+0 setsockopt(4, SOL_TCP, TCP_KEEPCNT, [2], 4) = 0
+0 setsockopt(4, SOL_SOCKET, SO_KEEPALIVE, [1], 4) = 0
+10 > . 0:0(0) ack 1 <nop,nop,TS val 10200 ecr 1100>
+5 > . 0:0(0) ack 1 <nop,nop,TS val 15200 ecr 1100>
+0.1 < . 1:1(0) ack 1 win 32792 <nop,nop,TS val 16200 ecr 15200>
+10 > . 0:0(0) ack 1 <nop,nop,TS val 25300 ecr 16200>
+5 > . 0:0(0) ack 1 <nop,nop,TS val 30300 ecr 16200>
+0.1 < . 1:1(0) ack 1 win 32792
+10 > . 0:0(0) ack 1 <nop,nop,TS val 40400 ecr 16200>
)");
}

// FIN behind a closed window is probed; a FIN at the edge of our own full window is taken.
TEST(Regression, Case34_FinAndZeroWindow) {
  script::play("zero_window_fin_is_probed");
  script::play_text(R"(// case 34
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
+0.1 < F. 4097:4097(0) ack 1 win 32792
+0 > . 1:1(0) ack 4098 win 0
+0 read(4, ..., 5000) = 4096
+0 read(4, ..., 5000) = 0
)");
}

// TCP_USER_TIMEOUT with a closed window: a mute peer ends it, one that answers does not.
TEST(Regression, Case35_UserTimeoutInPersist) {
  for (const bool answers : {false, true}) {
    each_iss([answers](Peer& p) {
      p.config.user_timeout = Duration::s(5);
      p.establish_active();
      p.window = 0;
      p.in(kAck, 1, 1);
      p.write(text(100));
      for (int i = 0; i < 300 && state(p.t) == State::kEstablished; ++i) {
        const auto o = p.after(Duration::ms(100));
        if (answers && !o.empty()) p.in(kAck, 1, 1);
      }
      EXPECT_EQ(state(p.t), answers ? State::kEstablished : State::kClosed);
      EXPECT_EQ(error(p.t), answers ? 0 : ETIMEDOUT);
    });
  }
}

// The clock passes every 32-bit wrap of a tick it could be kept in: no keepalive kills, and the
// probes come on time.
TEST(Regression, Case36_ClockWraps) {
  for (const int64_t unit : {1LL, 64LL, 1000LL, 4096LL, 1'000'000LL}) {
    for (const int64_t wrap : {int64_t{1} << 31, int64_t{1} << 32}) {
      Peer p;
      p.config.keepalive = true;
      p.config.timestamps = true;
      p.config.keep_idle = p.config.keep_interval = Duration::s(10);
      p.now = Instant::from_ns(wrap * unit) - Duration::s(15);
      if (p.now < Instant::from_ns(1)) p.now = Instant::from_ns(1);
      p.establish_passive();
      unsigned probes = 0;
      for (int i = 0; i < 40; ++i) {
        p.ts_val += 1000;
        for (const Out& o : p.after(Duration::s(1))) {
          EXPECT_EQ(o.seq, 0u);
          ++probes;
          p.in(kAck, 1, 1);
        }
      }
      EXPECT_EQ(probes, 4u) << "unit " << unit;
      EXPECT_EQ(state(p.t), State::kEstablished);
    }
  }
}

}  // namespace
}  // namespace vireo::tcp
