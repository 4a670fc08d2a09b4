// Attacks on memory and time: reassembly, scoreboard, windows, orphans.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "tests/regression/each_iss.h"
#include "tests/regression/pair.h"
#include "tests/scale/steps.h"

namespace vireo::tcp {
namespace {

using test::begin_steps, test::end_steps;

/// Instructions of the engine for one of `n` segments of a byte, whose numbers `seq` gives: the
/// median of sixteen among the last. `ranges`: as many as it will hold at the end, 0: unasked.
template <class Seq>
uint64_t cost(uint32_t n, Seq seq, uint32_t ranges = 0) {
  Peer p(1000, 5000, ranges == 0 ? 512 : 4 * ranges);
  if (ranges != 0) p.config.rcv_buf = ranges * 2048;
  p.establish_passive();
  std::vector<uint64_t> steps;
  for (uint32_t i = 0; i < n; ++i) {
    Segment s = p.make(kAck, seq(i), 1, "x", {});
    const bool counts = i % 61 == 0 && n - i < 61 * 16;
    Plan plan;
    if (counts) begin_steps();
    (void)input(p.t, std::move(s), p.now);
    while (next_segment(p.t, p.now, plan)) sent(p.t, plan, p.now);
    if (counts) steps.push_back(end_steps());
    if (i % 256 == 255) p.read();
  }
  EXPECT_TRUE(ranges == 0 || p.t.reassembly->count() == ranges);
  std::ranges::sort(steps);
  return steps[steps.size() / 2];
}

// TCP.md 4.59. CVE-2018-6922, CVE-2018-5390: single bytes at even places. The cost of a packet does
// not grow with their number, and is less than twice that of one in order as that was when this was
// written: who makes those in order cheaper need not look here.
TEST(Attack, Row07_ReassemblyTime) {
  const auto holes = [](uint32_t i) { return 3 + 2 * (i % 30'000); };
#ifdef VIREO_DEBUG
  constexpr uint32_t kMany = 131'072;
#else
  constexpr uint32_t kMany = 1'000'000;
#endif
  const uint64_t in_order = cost(4'096, [](uint32_t i) { return 1 + i; });
  const uint64_t few = cost(4'096, holes), many = cost(kMany, holes);
  // Every range there may be, each new one before all that are held.
  constexpr uint32_t kAll = Reassembly::kMaxRanges;
  const uint64_t front = cost(kAll, [](uint32_t i) { return 3 + 2 * (kAll - i); }, kAll);
  std::printf(
      "instructions a segment: %lu in order, %lu and %lu out of order, %lu at the limit of "
      "ranges\n",
      in_order, few, many, front);
#ifndef VIREO_DEBUG  // debug builds check and sanitize as they go
  EXPECT_LE(many, few * 11 / 10);
  EXPECT_LT(many, 1'000u);
  EXPECT_LT(front, 3'000u);
#endif
}

// TCP.md 4.59. CVE-2004-0171: the same on many connections of one pool: each stays below twice its
// buffer in frames, the last quarter of the pool stays free, others go on.
TEST(Attack, Row08_ReassemblyMemory) {
  constexpr uint32_t kFrames = 2048;
  std::vector<std::byte> memory(size_t{kFrames} * 2048);
  PacketPool pool(memory, 2048);
  Config c;
  c.mss = 1460;
  c.timestamps = c.sack = c.window_scaling = false;
  c.rcv_buf = 65536;
  constexpr unsigned kConnections = 10'000;
  constexpr uint32_t kSegments = 1'000'000;
  std::vector<std::unique_ptr<Tcb>> all;
  const Instant now = Instant::from_ns(1'000'000'000);
  const auto feed = [&](Tcb& t, SegFlags flags, uint32_t seq, const char* data) {
    Segment s;
    s.seq = Seq32(seq);
    s.ack = Seq32(1);
    s.window = 65535;
    s.flags = flags;
    if (data != nullptr) {
      PacketRef b(pool.take());
      if (!b) return false;
      b->data()[0] = static_cast<std::byte>(*data);
      b->length = 1;
      s.payload.push_back(std::move(b));
    }
    (void)input(t, std::move(s), now);
    Plan plan;
    while (next_segment(t, now, plan)) sent(t, plan, now);
    return true;
  };
  for (unsigned i = 0; i < kConnections; ++i) {
    all.push_back(std::make_unique<Tcb>());
    Segment syn;
    syn.seq = Seq32(0);
    syn.window = 65535;
    syn.flags = kSyn;
    open_passive(*all.back(), c, pool, syn, Seq32(0), now);
    Plan plan;
    while (next_segment(*all.back(), now, plan)) sent(*all.back(), plan, now);
    feed(*all.back(), kAck, 1, nullptr);
    ASSERT_EQ(state(*all.back()), State::kEstablished);
  }
  // One after another, and some greedy ones faster.
  std::mt19937 rng(8);
  std::vector<uint32_t> holes(kConnections);
  for (uint32_t k = 0; k < kSegments; ++k) {
    const uint32_t n = k % 4 == 0 ? static_cast<uint32_t>(rng()) % 100 : k % (kConnections - 1);
    Tcb& t = *all[n];
    ASSERT_TRUE(feed(t, kAck, 3 + 2 * (holes[n]++ % 30'000), "x")) << "the pool ran dry";
    if (t.reassembly != nullptr) {
      EXPECT_LE(t.reassembly->buffers() * 2048ULL, 2ULL * c.rcv_buf);
    }
    EXPECT_GE(pool.free_count(), kFrames / 4 - 1);
  }
  Tcb& other = *all.back();
  for (uint32_t k = 0; k < 100; ++k) {
    ASSERT_TRUE(feed(other, kAck, 1 + k, "y"));
    EXPECT_EQ(other.rcv_nxt, 2u + k);
    recv_queue(other).clear();
    consumed(other, 1, now);
  }
  for (auto& t : all) release(*t);
  EXPECT_EQ(pool.free_count(), pool.size());
}

// TCP.md 4.60. CVE-2019-11477, 11478, 5599: segments of 48 bytes and SACK blocks made to hurt. No
// counter wraps, the data arrives, an ACK costs little.
TEST(Attack, Row09_SackHoles) {
  Peer p(0xffffff00, 5000, 4096);
  p.config.sack = true;
  p.config.snd_buf = 65536;
  p.peer_mss = 48;
  p.establish_active();
  p.t.cc.cwnd = 100'000;
  const std::string all = text(65'000);
  p.write(all);
  ASSERT_EQ(data_bytes(p.out()), all.size());
  std::mt19937 rng(9);
  std::vector<uint64_t> steps;
  constexpr int kAcks = 5000;
  for (int i = 0; i < kAcks; ++i) {
    std::vector<uint8_t> o(40);
    wire::TcpOptionWriter w(std::span<uint8_t, 40>(o.data(), 40));
    wire::SackBlock blocks[4];
    for (auto& b : blocks) {
      const uint32_t left = 49 + 96 * static_cast<uint32_t>(rng() % 676);
      b = {p.iss + left, p.iss + left + 48};
    }
    w.sack(blocks);
    o.resize(w.size());
    Segment s = p.make(kAck, 1, 1, "", o);
    const bool counts = i % 50 == 0;
    if (counts) begin_steps();
    (void)input(p.t, std::move(s), p.now);
    if (counts) steps.push_back(end_steps());
    for (const Out& one : p.out()) EXPECT_LE(one.data.size(), 48u);
    ASSERT_LE(p.t.in_flight(), p.t.outstanding() + 0u);
    ASSERT_EQ(p.t.outstanding(), all.size());
    p.now = p.now + Duration::us(10);
  }
  std::ranges::sort(steps);
  std::printf("instructions an ACK: %lu, at most %lu\n", steps[steps.size() / 2], steps.back());
#ifndef VIREO_DEBUG  // debug builds check and sanitize as they go
  // Two microseconds, at one instruction a cycle of 3 GHz.
  EXPECT_LE(steps[steps.size() / 2], 6'000u);
  EXPECT_LE(steps.back(), 12'000u);
#endif
  p.in(kAck, 1, static_cast<uint32_t>(all.size()) + 1);
  EXPECT_EQ(p.t.outstanding(), 0u);
}

// The peer takes its window back below what is in flight, to nothing, and opens it: one timer, no
// assertion, no live lock.
TEST(Attack, Row15_WindowShrink) {
  each_iss([](Peer& p) {
    p.establish_active();
    p.write(text(40'000));
    p.out();
    for (uint16_t w : {uint16_t{5000}, uint16_t{1}, uint16_t{0}}) {
      p.window = w;
      p.in(kAck, 1, 1461);
      p.out();
      EXPECT_EQ(p.t.rtx_timer, RtxTimer::kRetransmit);
    }
    const Instant end = p.now + Duration::s(60);
    std::vector<Out> said;
    while (p.now < end) {
      std::ranges::move(p.after(Duration::s(1)), std::back_inserter(said));
      p.in(kAck, 1, 1461);  // mute but alive
      std::ranges::move(p.out(), std::back_inserter(said));
    }
    EXPECT_LE(said.size(), 20u) << "a segment at each doubling, no more";
    for (const Out& o : said) {
      EXPECT_EQ(o.seq, 1461u) << "the first segment beyond the window, no other";
      EXPECT_LE(o.data.size(), 1460u);
    }
    EXPECT_EQ(p.t.rtx_timer, RtxTimer::kRetransmit) << "one timer, and data is outstanding";
    p.window = 65535;
    for (int i = 0; i < 400 && p.t.snd_una <= 40'000; ++i) {  // the backed-off timer comes first
      uint32_t top = 0;
      for (const Out& o : p.after(Duration::s(1)))
        top = std::max(top, o.seq + static_cast<uint32_t>(o.data.size()));
      p.in(kAck, 1, std::max<uint32_t>(top, static_cast<uint32_t>(p.t.snd_una)));
    }
    EXPECT_EQ(p.t.snd_una, 40'001u);
  });
}

// "Sockstress": a window held shut. Probes back off to a minute, what is held stays bounded, and a
// user timeout ends a mute peer.
TEST(Attack, Row16_ZeroWindow) {
  each_iss([](Peer& p) {
    p.config.snd_buf = 20'000;
    p.establish_active();
    p.window = 0;
    p.in(kAck, 1, 1);
    while (p.write(text(1000)) > 0) {
    }
    EXPECT_LE(p.t.queue.count() * 2048u, 2u * 20'000u + 262'144u);
    std::vector<Instant> probes;
    for (int i = 0; i < 3600; ++i) {
      for (const Out& o : p.after(Duration::s(1))) {
        probes.push_back(o.at);
        p.in(kAck, 1, 1);
      }
    }
    ASSERT_GT(probes.size(), 10u);
    EXPECT_LE(probes.size(), 75u);
    EXPECT_GE(probes.back() - probes[probes.size() - 2], Duration::s(59));
    set_user_timeout(p.t, Duration::s(30));
    p.after(Duration::s(200));  // and now it is mute
    EXPECT_EQ(state(p.t), State::kClosed);
  });
}

// An outage of 30 s: each connection sends one segment per doubled timeout and is back within two
// of them; ssthresh falls once.
TEST(Attack, Row17_OutageOfManyConnections) {
  uint64_t during = 0;
  constexpr int kConnections = 200;
  for (int i = 0; i < kConnections; ++i) {
    Pair w(64);
    w.delay = Duration::us(100 + 10 * i);
    w.connect(Seq32(static_cast<uint32_t>(i) * 77777u), Seq32(5));
    w.after(Duration::ms(50));
    w.lose = [](const Pair::Flying&) { return true; };
    w.write(0, text(10'000));
    const uint64_t before = w.a.sent;
    w.after(Duration::s(30));
    during += w.a.sent - before;
    EXPECT_GT(w.a.t.cc.ssthresh, 2u * 1448u) << "halved again and again";
    const Duration rto = w.a.t.rtt.backed_off(w.a.t.backoff, w.a.config.rto_max);
    w.lose = nullptr;
    w.after(rto * 2);
    EXPECT_EQ(w.a.t.outstanding(), 0u) << "not back within two timeouts";
    EXPECT_EQ(w.read(1), text(10'000));
  }
  EXPECT_LE(during, kConnections * 16u);
}

// CVE-2015-5358: a peer that never sends its FIN, or shuts its window at our last one.
TEST(Attack, Row18_OrphansEnd) {
  each_iss([](Peer& p) {
    p.establish_passive();
    close(p.t, p.now);
    p.out();
    p.in(kAck, 1, 2);
    EXPECT_EQ(state(p.t), State::kFinWait2);
    p.after(Duration::s(61));
    EXPECT_EQ(state(p.t), State::kClosed);
  });
  each_iss([](Peer& p) {
    p.establish_passive();
    p.window = 0;
    p.in(kFin | kAck, 1, 1);
    p.out();
    close(p.t, p.now);
    p.after(Duration::s(1200));
    EXPECT_EQ(state(p.t), State::kClosed);
  });
  // The peer answers every probe and never opens its window; with nothing in flight, and with data
  // in flight that it took the window away from. Its answers keep a program's connection, not this.
  for (const bool in_flight : {false, true}) {
    each_iss([in_flight](Peer& p) {
      if (!in_flight) p.window = 0;
      p.establish_passive();
      p.write(text(3000));
      p.out();
      p.window = 0;
      p.in(kFin | kAck, 1, 1);
      p.out();
      close(p.t, p.now);
      EXPECT_EQ(state(p.t), State::kLastAck);
      const Instant start = p.now;
      while (state(p.t) != State::kClosed && p.now < start + Duration::s(3600))
        if (!p.after(Duration::s(1)).empty()) p.in(kAck, 2, 1);
      EXPECT_EQ(state(p.t), State::kClosed);
      EXPECT_LE((p.now - start).s(), 300);
    });
  }
}

}  // namespace
}  // namespace vireo::tcp
