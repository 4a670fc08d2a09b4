// Attacks by who cannot see the connection: RST, SYN, data, ICMP and timestamps by guess.
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <map>
#include <random>

#include "stack/tcp/isn.h"
#include "tests/regression/each_iss.h"
#include "tests/regression/pair.h"

namespace vireo::tcp {
namespace {

// CVE-2004-0230: every RST of the window but the one exact number is survived.
TEST(Attack, Row03_BlindReset) {
  each_iss([](Peer& p) {
    p.establish_passive();
    for (uint32_t at = 2; at < 65'000; at += 97) {
      p.in(kRst, at, 0);
      ASSERT_EQ(state(p.t), State::kEstablished) << at;
    }
    p.out();
    p.now = p.now + Duration::s(1);
    p.in(kRst, 2, 0);
    const auto o = p.out();
    ASSERT_EQ(o.size(), 1u);
    EXPECT_TRUE(o[0].is(kAck));
    EXPECT_EQ(o[0].ack, 1u);
    p.in(kRst, 1, 0);
    EXPECT_EQ(error(p.t), ECONNRESET);
  });
}

// RFC 5961 §4, §5: a SYN in the window is challenged; data with an ACK outside of
// [una - max_wnd, snd_max] is dropped and challenged.
TEST(Attack, Row04_BlindSynAndData) {
  each_iss([](Peer& p) {
    p.window = 1000;
    p.establish_passive();
    p.write(text(2000));
    p.out();
    p.in(kAck, 1, 1001);
    p.out();
    for (uint32_t at = 0; at < 60'000; at += 997) p.in(kSyn, at, 0);
    EXPECT_EQ(p.out().size(), 1u);
    EXPECT_EQ(state(p.t), State::kEstablished);
    p.now = p.now + Duration::s(1);
    p.in(kAck, 1, 0, "evil");  // una - max_wnd - 1
    auto o = p.out();
    ASSERT_EQ(o.size(), 1u);
    EXPECT_TRUE(o[0].is(kAck));
    EXPECT_EQ(o[0].ack, 1u);
    p.now = p.now + Duration::s(1);
    p.in(kAck, 1, 2002, "evil");  // snd_max + 1
    o = p.out();
    ASSERT_EQ(o.size(), 1u);
    EXPECT_EQ(o[0].ack, 1u);
    // Of all ACK numbers the window admits 3001: a blind injector is right once in a million.
    std::mt19937 rng(4);
    unsigned taken = 0;
    for (int i = 0; i < 100'000; ++i) {
      p.in(kAck, 1, static_cast<uint32_t>(rng()), "evil");
      if (p.t.rcv_nxt != 1) ++taken;
      if (taken != 0) break;
    }
    EXPECT_EQ(taken, 0u);
  });
}

// TCP.md 4.60. CVE-2016-5696: challenges of one connection say nothing of another.
TEST(Attack, Row05_ChallengeSideChannel) {
  Peer a(1000, 5000), b(2000, 7000);
  a.establish_passive();
  b.establish_passive();
  for (int second = 0; second < 5; ++second) {
    for (int i = 0; i < 100; ++i) a.in(kRst, 2, 0);  // what an attacker sends to count
    a.out();
    b.in(kRst, 2, 0);
    EXPECT_EQ(b.out().size(), 1u) << "second " << second;
    a.now = a.now + Duration::s(1);
    b.now = b.now + Duration::s(1);
  }
}

// CVE-2026-4247 and the ACK wars: two ends with numbers that do not fit, for ten seconds.
TEST(Attack, Row06_ChallengeLoop) {
  Pair w;
  w.a.config.timestamps = w.b.config.timestamps = true;
  w.connect(Seq32(1), Seq32(2));
  w.after(Duration::ms(10));
  ASSERT_EQ(state(w.b.t), State::kEstablished);
  w.b.t.irs = w.b.t.irs + 500'000'000;
  const uint32_t free_a = w.a.pool.free_count(), free_b = w.b.pool.free_count();
  w.flying.push_back({.at = w.now,
                      .to = 1,
                      .seq = Seq32(77),
                      .ack = Seq32(99),
                      .window = 100,
                      .flags = kAck,
                      .options = {},
                      .payload = {}});
  for (int i = 0; i < 20; ++i) {
    const uint64_t a = w.a.sent, b = w.b.sent;
    w.after(Duration::ms(500));
    EXPECT_LE(w.a.sent - a, 2u) << "after " << i << " half seconds";
    EXPECT_LE(w.b.sent - b, 2u) << "after " << i << " half seconds";
  }
  EXPECT_EQ(w.a.pool.free_count(), free_a);
  EXPECT_EQ(w.b.pool.free_count(), free_b);
}

// NUMBER:JACK: initial numbers of many tuples are uniform; those of one tuple rise.
TEST(Attack, Row19_InitialNumbers) {
  const IsnSecret secret{.k0 = 0x0123456789abcdef, .k1 = 0xfedcba9876543210};
  std::vector<uint32_t> bins(256);
  constexpr unsigned kDraws = 1'000'000;
  Endpoint local, remote;
  local.port = 80;
  for (unsigned i = 0; i < kDraws; ++i) {
    remote.port = static_cast<uint16_t>(i);
    local.port = static_cast<uint16_t>(i >> 16);
    ++bins[initial_sequence(secret, local, remote, Instant::from_ns(1000)).value() >> 24];
  }
  double chi = 0;
  for (const uint32_t n : bins) {
    const double d = n - kDraws / 256.0;
    chi += d * d / (kDraws / 256.0);
  }
  EXPECT_LT(chi, 330.0);  // 255 degrees of freedom: exceeded by chance once in a thousand
  EXPECT_GT(chi, 190.0);
  Seq32 before = initial_sequence(secret, local, remote, Instant::from_ns(0));
  for (int64_t t = 1; t < 1000; ++t) {
    const Seq32 next = initial_sequence(secret, local, remote, Instant::from_ns(t * 100'000'000));
    EXPECT_TRUE(next.after(before));
    before = next;
  }
}

// RFC 5927: ICMP errors must quote what is in flight; a hard one does not end a connection.
TEST(Attack, Row20_ForgedIcmp) {
  each_iss([](Peer& p) {
    p.establish_passive();
    p.write(text(1000));
    p.out();
    std::mt19937 rng(20);
    for (int i = 0; i < 100'000; ++i) {
      const Seq32 quoted(static_cast<uint32_t>(rng()));
      if (is_in_flight(p.t, quoted)) continue;
      (void)icmp_error(p.t, quoted, ECONNREFUSED, true, p.now);
    }
    EXPECT_EQ(p.t.soft_error, 0);
    (void)icmp_error(p.t, p.iss + 1, ECONNREFUSED, true, p.now);
    EXPECT_EQ(state(p.t), State::kEstablished);
    EXPECT_EQ(error(p.t), 0);
    EXPECT_FALSE(is_in_flight(p.t, p.iss + 1001));
    EXPECT_FALSE(is_in_flight(p.t, p.iss));
  });
}

// Timestamps: a forged future value beyond a hole is not kept; an old one is refused; after 24 idle
// days none is trusted.
TEST(Attack, Row21_TimestampPoisoning) {
  each_iss([](Peer& p) {
    p.config.timestamps = true;
    p.establish_passive();
    p.ts_val = 200;
    p.in(kAck, 1, 1, "a");
    p.out();
    p.ts_val = 0x70000000;
    p.in(kAck, 5000, 1, "forged, beyond a hole");
    p.out();
    EXPECT_EQ(p.t.ts_recent, 200u);
    p.ts_val = 199;
    p.in(kAck, 2, 1, "old");
    EXPECT_EQ(p.t.rcv_nxt, 2u);
    const auto o = p.out();
    ASSERT_EQ(o.size(), 1u);
    EXPECT_EQ(o[0].options.ts_ecr, 200u);
    p.ts_val = 201;
    p.in(kAck, 2, 1, "b");
    EXPECT_EQ(p.t.rcv_nxt, 3u);
    p.out();
    p.after(Duration::s(25LL * 86400));
    p.ts_val = 100;
    p.in(kAck, 3, 1, "c");
    EXPECT_EQ(p.t.rcv_nxt, 4u);
  });
}

}  // namespace
}  // namespace vireo::tcp
