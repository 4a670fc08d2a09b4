// Attacks by a receiver that lies in its ACKs, and by the shape of a segment.
#include <gtest/gtest.h>

#include <random>

#include "tests/regression/each_iss.h"

namespace vireo::tcp {
namespace {

// TCP.md 4.60. MSS 0, 1, 8, 47, 48: 536 for none, else never less than 48 payload bytes a segment,
// options or not.
TEST(Attack, Row10_SmallMss) {
  for (const bool timestamps : {false, true}) {
    for (const uint16_t mss : std::initializer_list<uint16_t>{0, 1, 8, 47, 48}) {
      each_iss([=](Peer& p) {
        p.config.timestamps = p.config.sack = timestamps;
        p.peer_mss = mss;
        p.establish_passive();
        EXPECT_EQ(effective_mss(p.t), mss == 0 ? (timestamps ? 524 : 536) : 48);
        p.write(text(2000));
        const auto o = p.out();
        ASSERT_FALSE(o.empty());
        EXPECT_GE(o[0].data.size(), 48u);
        EXPECT_LE(o.size(), 2000 / 48 + 1u);
      });
    }
  }
}

// SACK blocks that are none: reversed, empty, beyond snd_max, straddling una, across the wrap.
TEST(Attack, Row11_InvalidSack) {
  each_iss([](Peer& p) {
    p.config.sack = true;
    p.establish_active();
    p.write(text(10 * 1460));
    p.out();
    p.in(kAck, 1, 1461);
    const auto una = p.t.snd_una;
    const uint32_t ends[][2] = {{3000, 2000},       {3000, 3000},       {14'000, 20'000},
                                {20'000, 30'000},   {0, 2000},          {1000, 3000},
                                {0x80000000, 3000}, {3000, 0x80001000}, {0xffffff00, 0x10}};
    std::mt19937 rng(11);
    for (int i = 0; i < 2000; ++i) {
      std::vector<uint8_t> o(40);
      wire::TcpOptionWriter w(std::span<uint8_t, 40>(o.data(), 40));
      wire::SackBlock b[4];
      for (auto& one : b) {
        const auto& e = ends[rng() % std::size(ends)];
        one = i < 1000 ? wire::SackBlock{p.iss + e[0], p.iss + e[1]}
                       : wire::SackBlock{Seq32(static_cast<uint32_t>(rng())),
                                         Seq32(static_cast<uint32_t>(rng()))};
      }
      w.sack(b);
      o.resize(w.size());
      p.window = static_cast<uint16_t>(65535 - i % 2);  // not duplicates
      (void)input(p.t, p.make(kAck, 1, 1461, "", o), p.now);
      p.out();
      ASSERT_EQ(p.t.snd_una, una);
      ASSERT_LE(p.t.in_flight(), p.t.outstanding());
    }
    p.in(kAck, 1, 10 * 1460 + 1);
    EXPECT_EQ(p.t.outstanding(), 0u);
  });
}

// Optimistic ACKs of what was never sent: dropped, the window does not grow.
TEST(Attack, Row12_OptimisticAck) {
  each_iss([](Peer& p) {
    p.config.snd_buf = 1'000'000;
    p.establish_active();
    p.write(text(200'000));
    p.out();
    const uint32_t cwnd = p.t.cc.cwnd;
    const auto max = static_cast<uint32_t>(p.t.snd_max);
    for (uint32_t i = 1; i < 1000; ++i) {
      p.in(kAck, 1, max + i * 100);
      p.now = p.now + Duration::us(100);
    }
    EXPECT_EQ(p.t.cc.cwnd, cwnd);
    EXPECT_EQ(p.t.snd_una, 1u);
    const auto o = p.out();
    ASSERT_EQ(o.size(), 1u) << "a challenge";
    EXPECT_TRUE(o[0].is(kAck));
  });
}

// ACK division: a segment acknowledged byte by byte opens the window by one segment.
TEST(Attack, Row13_AckDivision) {
  each_iss([](Peer& p) {
    p.config.snd_buf = 1'000'000;
    p.establish_active();
    p.write(text(100'000));
    p.out();
    const uint32_t cwnd = p.t.cc.cwnd;
    for (uint32_t i = 1; i <= 1460; ++i) p.in(kAck, 1, 1 + i);
    EXPECT_LE(p.t.cc.cwnd, cwnd + 1460);
  });
}

// A thousand forged duplicates: one new segment each at most, and never beyond the window.
TEST(Attack, Row14_DuplicateSpoofing) {
  each_iss(
      [](Peer& p) {
        p.config.snd_buf = 3'000'000;
        p.establish_active();
        p.write(text(200'000));
        p.out();
        for (int i = 0; i < 1000; ++i) {
          p.in(kAck, 1, 1);
          const auto o = p.out();
          uint64_t fresh = 0;
          for (const Out& one : o) fresh += one.retransmission ? 0 : one.data.size();
          EXPECT_LE(fresh, 1460u);
        }
        EXPECT_LE(p.t.outstanding(), 65'535u);
        // Nothing outstanding: duplicates are nothing.
        while (p.t.snd_una < p.t.snd_end) {
          p.in(kAck, 1, static_cast<uint32_t>(p.t.snd_nxt));
          p.out();
        }
        ASSERT_EQ(p.t.outstanding(), 0u);
        for (int i = 0; i < 1000; ++i) p.in(kAck, 1, static_cast<uint32_t>(p.t.snd_end));
        EXPECT_TRUE(p.out().empty());
      },
      4096);
}

// Every truncation of a valid SYN's options, and a hundred thousand random ones.
TEST(Attack, Row22_OptionParser) {
  Peer p;
  p.config.sack = p.config.timestamps = p.config.window_scaling = true;
  const std::vector<uint8_t> whole = p.syn_options();
  for (size_t n = 0; n <= whole.size(); ++n) {
    // On the heap and of the exact size, so that a sanitizer sees a byte too far.
    const std::vector<uint8_t> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n));
    open_passive(p.t, p.config, p.pool, p.make(kSyn, 0, 0, "", part), p.iss, p.now);
    const auto o = p.out();
    ASSERT_EQ(o.size(), 1u);
    EXPECT_GE(p.t.mss, 48);
  }
  std::mt19937 rng(22);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<uint8_t> o(rng() % 41);
    for (uint8_t& b : o) b = static_cast<uint8_t>(rng() % 3 == 0 ? rng() % 12 : rng());
    const auto parsed = wire::parse_tcp_options_slow(o, i % 2 == 0);
    EXPECT_LE(parsed.sack_count, 4);
    EXPECT_LE(parsed.window_scale, 14);
  }
}

// Segments for nobody: a RST is never answered, and an answer never draws another.
TEST(Attack, Row24_ResetForStrangers) {
  std::mt19937 rng(24);
  for (int i = 0; i < 100'000; ++i) {
    Segment s;
    s.seq = Seq32(static_cast<uint32_t>(rng()));
    s.ack = Seq32(static_cast<uint32_t>(rng()));
    s.flags = static_cast<SegFlags>(rng() & 0xff);
    Plan reply;
    const bool answered = reset_for(s, static_cast<uint32_t>(rng() % 2000), reply);
    EXPECT_EQ(answered, !has(s.flags, kRst));
    if (!answered) continue;
    EXPECT_TRUE(has(reply.flags, kRst));
    Segment echo;
    echo.seq = reply.seq;
    echo.ack = reply.ack;
    echo.flags = reply.flags;
    Plan second;
    EXPECT_FALSE(reset_for(echo, 0, second));
  }
}

}  // namespace
}  // namespace vireo::tcp
