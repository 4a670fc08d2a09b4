// Cases 37-52: open, close, listen.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/regression/each_iss.h"
#include "tests/regression/pair.h"
#include "tests/script/play.h"

namespace vireo::tcp {
namespace {

const char* const kListen = R"(// a case
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
)";
const char* const kSynAck = R"(+0 < S 0:0(0) win 32792 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
)";

// A RST in the window but not at rcv_nxt does not end the connection.
TEST(Regression, Case37_ResetInTheWindow) { script::play("rst_challenge"); }

// Two ends whose numbers do not fit answer each other: the answers are limited.
TEST(Regression, Case38_AckLoop) {
  Pair w;
  w.connect(Seq32(1), Seq32(2));
  w.after(Duration::ms(10));
  ASSERT_EQ(state(w.b.t), State::kEstablished);
  w.b.t.irs = w.b.t.irs + 1'000'000;  // as a middle box that forgot its translation would
  w.write(0, "x");
  w.write(1, "y");
  const uint64_t before = w.a.sent + w.b.sent;
  w.after(Duration::s(10));
  EXPECT_LE(w.a.sent + w.b.sent - before, 2u * 20u + 2u * 10u);
}

// A million challenges cost no frame.
TEST(Regression, Case39_ChallengesCostNoFrames) {
  each_iss([](Peer& p) {
    p.establish_passive();
    const uint32_t free = p.pool.free_count();
    size_t answers = 0;
    for (int i = 0; i < 170'000; ++i) {
      p.in(i % 2 == 0 ? kRst : kSyn, 2 + static_cast<uint32_t>(i % 1000), 0);
      answers += p.out().size();
      p.now = p.now + Duration::us(10);
    }
    EXPECT_EQ(p.pool.free_count(), free);
    EXPECT_LE(answers, 5u);
    EXPECT_EQ(state(p.t), State::kEstablished);
  });
}

// What may come in SYN_RECEIVED.
TEST(Regression, Case40_ResetInSynReceived) { script::play("rst_syn_received_passive"); }
TEST(Regression, Case40_FinInSynReceived) {
  script::play_text(std::string(kListen) + kSynAck + R"(
+0.1 < F. 1:1(0) ack 1 win 32792
+0 > . 1:1(0) ack 2
+0 accept(3, ..., ...) = 4
+0 read(4, ..., 10) = 0
+0 %{ assert tcpi_state == TCP_CLOSE_WAIT }%
)");
}
TEST(Regression, Case40_DataInSynReceived) {
  script::play_text(std::string(kListen) + kSynAck + R"(
+0.1 < P. 1:101(100) ack 1 win 32792
+0 > . 1:1(0) ack 101
+0 accept(3, ..., ...) = 4
+0 read(4, ..., 1000) = 100
)");
}
TEST(Regression, Case40_DataAndFinInSynReceived) {
  script::play_text(std::string(kListen) + kSynAck + R"(
+0.1 < FP. 1:101(100) ack 1 win 32792
+0 > . 1:1(0) ack 102
+0 accept(3, ..., ...) = 4
+0 read(4, ..., 1000) = 100
+0 read(4, ..., 1000) = 0
)");
}

// SYNs with what does not belong there: the SYN-ACK acknowledges the SYN only.
TEST(Regression, Case41_SynWithData) { script::play("open_data_on_syn"); }
TEST(Regression, Case41_SynWithUnknownOptions) {
  script::play_text(std::string(kListen) + R"(
+0 < S 0:0(0) win 32792 <mss 1000,raw 254 1 2 3 4,raw 77,nop,nop>
+0 > S. 0:0(0) ack 1 <mss 1460>
)");
}
TEST(Regression, Case41_SynWithFastOpenCookie) {
  script::play_text(std::string(kListen) + R"(
+0 < S 0:50(50) win 32792 <mss 1000,raw 34 1 2 3 4 5 6 7 8,nop,nop>
+0 > S. 0:0(0) ack 1 <mss 1460>
+0.1 < . 1:1(0) ack 1 win 32792
+0 accept(3, ..., ...) = 4
)");
}
TEST(Regression, Case41_SynWithEcnBits) {
  script::play_text(std::string("`sysctl -q net.ipv4.tcp_ecn=0`\n") + kListen + R"(
+0 < SEW 0:0(0) win 32792 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
)");
}

// A blocking connect whose first two SYNs are lost: the third succeeds after 3 s; so does one that
// nobody waits for.
TEST(Regression, Case43_ConnectSendsItsSynAgain) {
  for (const char* const wait : {"SOCK_STREAM", "SOCK_STREAM|SOCK_NONBLOCK"}) {
    const bool blocks = std::string(wait) == "SOCK_STREAM";
    script::play_text(std::string("// case 43\n0 socket(..., ") + wait + ", IPPROTO_TCP) = 3\n" +
                      (blocks ? "+0...3.1 connect(3, ..., ...) = 0\n"
                              : "+0 connect(3, ..., ...) = -1 EINPROGRESS\n") +
                      R"(+0 > S 0:0(0) <...>
+1 > S 0:0(0) <...>
+2 > S 0:0(0) <...>
+0.1 < S. 0:0(0) ack 1 win 32792 <mss 1000>
+0 > . 1:1(0) ack 1
+0 %{ assert tcpi_state == TCP_ESTABLISHED }%
)");
  }
}

// Each closes at any time around the handshake, both at every step of it: no FIN is skipped,
// nothing stays, and nobody who was told of a connection is told of an error but by RST.
TEST(Regression, Case44_CloseAtAnyTime) {
  for (unsigned i = 0; i < 6; ++i) {
    for (int64_t first = 1'000; first <= 6'000; first += 100) {
      for (int64_t second = 0; second <= 4'000; second += 250) {
        for (const int side : {0, 1}) {
          Pair w(64);
          w.connect(Seq32(kIss[i]), Seq32(kIss[(i + 3) % 6]));
          const Instant start = w.now;
          const auto end = [&](int which) {
            close(w.host(which).t, w.now);
            w.pump(which);
          };
          w.until(start + Duration::us(first));
          end(side);
          w.until(start + Duration::us(first + second));
          end(1 - side);
          w.after(Duration::s(200));
          ASSERT_EQ(state(w.a.t), State::kClosed) << first << ' ' << second << ' ' << side;
          ASSERT_EQ(state(w.b.t), State::kClosed) << first << ' ' << second << ' ' << side;
          ASSERT_TRUE(deadline(w.a.t).is_never() && deadline(w.b.t).is_never());
          ASSERT_EQ(w.a.pool.free_count(), w.a.pool.size());
          ASSERT_EQ(w.b.pool.free_count(), w.b.pool.size());
        }
      }
    }
  }
}

// Both close as soon as they are connected: no FIN is skipped, nothing stays.
TEST(Regression, Case44_CloseRightAfterConnect) {
  for (unsigned i = 0; i < 6; ++i) {
    for (int order = 0; order < 4; ++order) {
      Pair w(64);
      w.connect(Seq32(kIss[i]), Seq32(kIss[(i + 3) % 6]));
      w.after(order < 2 ? Duration::us(1500) : Duration::us(2500));
      if (order % 2 == 0) {
        close(w.a.t, w.now);
        w.pump(0);
      }
      w.after(Duration::us(1000));
      close(w.b.t, w.now);
      w.pump(1);
      if (order % 2 == 1) {
        close(w.a.t, w.now);
        w.pump(0);
      }
      w.after(Duration::s(200));
      EXPECT_EQ(state(w.a.t), State::kClosed) << i << order;
      EXPECT_EQ(state(w.b.t), State::kClosed) << i << order;
      EXPECT_EQ(error(w.a.t), 0);
      // a gave up before its SYN was answered: b is told by RST.
      EXPECT_EQ(error(w.b.t), order == 0 ? ECONNREFUSED : 0);
    }
  }
}

// close, shutdown and linger with data unread, unsent, unacknowledged.
TEST(Regression, Case45_CloseMatrix) {
  enum class End { kClose, kShutdown, kAbort };
  for (const bool unread : {false, true})
    for (const bool unsent : {false, true})
      for (const bool unacked : {false, true})
        for (const End end : {End::kClose, End::kShutdown, End::kAbort})
          each_iss([=](Peer& p) {
            p.establish_passive();
            if (unread) p.in(kAck | kPsh, 1, 1, "unread");
            if (unacked) p.write(text(100));
            p.out();
            if (unsent) {
              p.window = 0;
              p.in(kAck, unread ? 7 : 1, 1);
              p.write(text(100));
              p.out();
            }
            switch (end) {
              case End::kClose:
                close(p.t, p.now);
                break;
              case End::kShutdown:
                shutdown_write(p.t, p.now);
                break;
              case End::kAbort:
                abort(p.t, p.now);
                break;
            }
            const auto o = p.out();
            const bool reset = end == End::kAbort || (end == End::kClose && unread);
            if (reset) {
              ASSERT_EQ(o.size(), 1u);
              EXPECT_TRUE(has(o[0].flags, kRst));
              EXPECT_EQ(state(p.t), State::kClosed);
              EXPECT_EQ(p.t.queue.count(), 0u) << "unacknowledged data is still held";
            } else if (!unsent) {
              ASSERT_FALSE(o.empty());
              EXPECT_TRUE(has(o.back().flags, kFin));
            } else {
              for (const Out& one : o) EXPECT_FALSE(has(one.flags, kFin));
              p.window = 65535;
              p.in(kAck, unread ? 7 : 1, unacked ? 101 : 1);
              const auto rest = p.out();
              ASSERT_FALSE(rest.empty());
              EXPECT_TRUE(has(rest.back().flags, kFin));
            }
          });
}

// A SYN for a TIME-WAIT: timestamps compared modulo 2^32, the new ISN above the old one's last.
TEST(Regression, Case47_SynInTimeWait) {
  each_iss([](Peer& p) {
    p.config.timestamps = true;
    p.ts_val = 0x7fffff00;
    p.establish_passive();
    close(p.t, p.now);
    p.out();
    p.in(kFin | kAck, 1, 2);
    p.out();
    ASSERT_EQ(state(p.t), State::kTimeWait);
    TimeWait w = make_time_wait(p.t);
    Plan reply;
    const auto verdict = [&](uint32_t ts, uint32_t seq) {
      p.ts_val = ts;
      const auto o = p.syn_options();
      return time_wait_input(w, p.make(kSyn, seq, 0, "", o), p.now, reply);
    };
    EXPECT_EQ(verdict(0x7ffffe00, 1000), TimeWaitVerdict::kAck);            // older
    EXPECT_EQ(verdict(0x7fffff00, 1), TimeWaitVerdict::kAck);               // equal, lower number
    EXPECT_EQ(verdict(0x7fffff00, 1000), TimeWaitVerdict::kNewConnection);  // equal, higher number
    EXPECT_EQ(verdict(0x80000100, 1), TimeWaitVerdict::kNewConnection);     // beyond 2^31
    EXPECT_EQ(verdict(0xfffffe00, 1), TimeWaitVerdict::kNewConnection);
    EXPECT_EQ(reply.ack.value() - p.irs.value(), 2u);
  });
}

// The peer vanishes in each state: whatever the program has closed is over within bounds.
TEST(Regression, Case48_VanishedPeer) {
  struct Way {
    const char* name;
    std::function<void(Peer&)> drive;
  };
  const auto passive = [](Peer& p) { p.establish_passive(); };
  const Way ways[] = {
      {"SYN_SENT", [](Peer& p) { open_active(p.t, p.config, p.pool, p.iss, p.now); }},
      {"SYN_RECEIVED",
       [](Peer& p) {
         const auto o = p.syn_options();
         open_passive(p.t, p.config, p.pool, p.make(kSyn, 0, 0, "", o), p.iss, p.now);
       }},
      {"ESTABLISHED with data",
       [&](Peer& p) {
         passive(p);
         p.write(text(100));
       }},
      {"ESTABLISHED, keepalive",
       [&](Peer& p) {
         passive(p);
         set_keepalive(p.t, true, Duration::s(7200), Duration::s(75), 9, p.now);
       }},
      {"ESTABLISHED, window closed",
       [&](Peer& p) {
         passive(p);
         p.window = 0;
         p.in(kAck, 1, 1);
         p.write(text(100));
       }},
      {"FIN_WAIT_1",
       [&](Peer& p) {
         passive(p);
         close(p.t, p.now);
       }},
      {"FIN_WAIT_1, window closed",
       [&](Peer& p) {
         passive(p);
         p.window = 0;
         p.in(kAck, 1, 1);
         p.write(text(100));
         close(p.t, p.now);
       }},
      {"FIN_WAIT_2",
       [&](Peer& p) {
         passive(p);
         close(p.t, p.now);
         p.out();
         p.in(kAck, 1, 2);
       }},
      {"CLOSE_WAIT, then closed",
       [&](Peer& p) {
         passive(p);
         p.in(kFin | kAck, 1, 1);
         p.out();
         close(p.t, p.now);
       }},
      {"CLOSING",
       [&](Peer& p) {
         passive(p);
         close(p.t, p.now);
         p.out();
         p.in(kFin | kAck, 1, 1);
       }},
      {"LAST_ACK, window closed",
       [&](Peer& p) {
         passive(p);
         p.window = 0;
         p.in(kFin | kAck, 1, 1);
         p.out();
         close(p.t, p.now);
       }},
      {"TIME_WAIT",
       [&](Peer& p) {
         passive(p);
         close(p.t, p.now);
         p.out();
         p.in(kFin | kAck, 1, 2);
       }},
  };
  for (const Way& w : ways) {
    SCOPED_TRACE(w.name);
    each_iss([&w](Peer& p) {
      w.drive(p);
      p.out();
      p.after(Duration::s(3 * 3600));
      EXPECT_EQ(state(p.t), State::kClosed);
      EXPECT_TRUE(deadline(p.t).is_never());
    });
  }
}

// FIN before a hole is filled; crossing FINs; crossing SYNs.
TEST(Regression, Case49_FinOutOfOrder) { script::play("fin_out_of_order"); }
TEST(Regression, Case49_SimultaneousClose) { script::play("close_simultaneous"); }
TEST(Regression, Case49_SimultaneousOpen) { script::play("open_simultaneous"); }

// Each timer fires, once, at its time.
TEST(Regression, Case50_EveryTimerFires) {
  script::play("first_sample");          // retransmission
  script::play("zero_window_probe");     // persist
  script::play("delayed_ack_timer");     // delayed ACK
  script::play("keepalive_answered");    // keepalive
  script::play("cork_200ms");            // cork
  script::play("fin_wait_2_orphan");     // FIN_WAIT_2
  script::play("time_wait_lasts_2msl");  // TIME_WAIT
  script::play("user_timeout");          // user timeout
}

// An error is told once; data right of the window does not draw an ACK each.
TEST(Regression, Case51_ErrorOnce) { script::play("icmp_refuses_a_connect"); }
TEST(Regression, Case51_DataOutOfTheWindowIsLimited) {
  each_iss([](Peer& p) {
    p.config.rcv_buf = 4096;
    p.establish_passive();
    size_t answers = 0;
    for (uint32_t i = 0; i < 1000; ++i) {
      p.in(kAck, 100'000 + i, 1, "x");
      answers += p.out().size();
      p.now = p.now + Duration::ms(1);
    }
    EXPECT_LE(answers, 3u);
  });
}

// A RST while an ACK is delayed: silence.
TEST(Regression, Case52_NoAckAfterReset) {
  script::play_text(std::string(kListen) + kSynAck + R"(
+0.1 < . 1:1(0) ack 1 win 32792
+0 accept(3, ..., ...) = 4
+0 setsockopt(4, SOL_TCP, TCP_QUICKACK, [0], 4) = 0
+0 < P. 1:101(100) ack 1 win 32792
+0 < R 101:101(0) win 0
+10 read(4, ..., 100) = 100
+0 read(4, ..., 100) = -1 ECONNRESET
)");
}

}  // namespace
}  // namespace vireo::tcp
