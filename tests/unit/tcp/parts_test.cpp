// The parts alone: estimator, congestion window, send ring, reassembly against a naive model, ISN.
#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include "stack/tcp/isn.h"
#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {
namespace {

TEST(Rtt, FirstAndLaterSamples) {  // RFC 6298 §2
  RttEstimator r;
  r.start(Duration::s(1));
  EXPECT_EQ(r.rto, Duration::s(1));
  r.sample(Duration::ms(100), Duration::ms(1), Duration::s(60));
  EXPECT_EQ(r.srtt, Duration::ms(100));
  EXPECT_EQ(r.rttvar, Duration::ms(50));
  EXPECT_EQ(r.rto, Duration::ms(300));
  r.sample(Duration::ms(180), Duration::ms(1), Duration::s(60));
  EXPECT_EQ(r.rttvar, Duration::us(57'500));
  EXPECT_EQ(r.srtt, Duration::ms(110));
  EXPECT_EQ(r.rto, Duration::ms(340));
  EXPECT_EQ(r.min_rtt, Duration::ms(100));
  for (int i = 0; i < 1000; ++i) r.sample(Duration::ms(100), Duration::us(1), Duration::s(60));
  EXPECT_EQ(r.rto - r.srtt, RttEstimator::kGranularity) << "G, where nothing varies";
}

TEST(Rtt, BoundsAndBackoff) {
  RttEstimator r;
  r.start(Duration::s(1));
  r.sample(Duration{}, Duration::ms(200), Duration::s(120));  // loopback: no zero round trip
  EXPECT_EQ(r.srtt, Duration::us(1));
  EXPECT_EQ(r.rto, Duration::ms(200));
  EXPECT_EQ(r.backed_off(3, Duration::s(120)), Duration::ms(1600));
  EXPECT_EQ(r.backed_off(200, Duration::s(120)), Duration::s(120));
  for (int i = 0; i < 1000; ++i) r.sample(Duration::s(100), Duration::ms(200), Duration::s(120));
  EXPECT_NEAR(static_cast<double>((r.rto - Duration::s(100)).ns()), 50e6,
              10.0);  // a margin remains
}

TEST(SendQueue, RandomAgainstADeque) {
  std::vector<std::byte> memory(size_t{4096} * 2048);
  PacketPool pool(memory, 2048);
  std::mt19937 r(7);
  struct Ref {
    StreamOffset offset;
    uint32_t length;
  };
  std::deque<Ref> model;
  SendQueue q;
  StreamOffset end = 1;
  uint32_t passed = 0;  // descriptors of the model before next()
  for (int i = 0; i < 60'000; ++i) {
    switch (r() % 4) {
      case 0:
      case 1: {
        if (model.size() > 3000) break;
        PacketBuf* b = pool.take();
        ASSERT_NE(b, nullptr);
        b->length = static_cast<uint16_t>(1 + r() % 1460);
        ASSERT_TRUE(q.push_back(end, b));
        model.push_back({end, b->length});
        end += b->length;
        break;
      }
      case 2:
        if (model.empty() || r() % 3 == 0) break;
        q.pop_front();
        model.pop_front();
        if (passed > 0) --passed;
        break;
      default:
        if (passed == model.size()) break;
        ASSERT_TRUE(q.has_next());
        ASSERT_EQ(q.next().offset, model[passed].offset);
        q.pass_next();
        ++passed;
        break;
    }
    ASSERT_EQ(q.count(), model.size());
    ASSERT_EQ(q.has_next(), passed < model.size());
    if (!model.empty()) {
      ASSERT_EQ(q.front().offset, model.front().offset);
      const Ref& m = model[r() % model.size()];
      ASSERT_EQ(q[q.find(m.offset + r() % m.length)].offset, m.offset);
    } else if (r() % 8 == 0) {
      q.shrink();
      passed = 0;
    }
  }
  q.clear();
  EXPECT_EQ(pool.free_count(), pool.size());
}

TEST(Reassembly, RandomAgainstABytemap) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    std::vector<std::byte> memory(size_t{2048} * 2048);
    PacketPool pool(memory, 2048);
    {
      std::mt19937 r(seed);
      Reassembly a;
      std::map<StreamOffset, std::byte> model;
      StreamOffset left = (1ULL << 32) - 20'000;  // across a wrap of the wire's numbers
      std::vector<std::byte> taken, expected;
      for (int i = 0; i < 1200; ++i) {
        if (r() % 8 == 0 && !a.empty()) {
          const StreamOffset begin = a.first_begin();
          PacketChain c = a.pop_first();
          StreamOffset at = begin;
          while (!c.empty()) {
            for (std::byte b : c.front()->bytes()) {
              ASSERT_EQ(model.at(at), b);
              model.erase(at++);
            }
            c.pop_front();
          }
          ASSERT_FALSE(model.contains(at));
          ASSERT_TRUE(model.empty() || model.begin()->first > at);
          left = at;
          continue;
        }
        const StreamOffset at = left + 1 + r() % (seed % 2 == 0 ? 30'000 : 6'000);
        const auto n = static_cast<uint32_t>(1 + r() % (seed % 2 == 0 ? 1460 : 40));
        PacketRef b(pool.take());
        ASSERT_TRUE(b);
        b->length = static_cast<uint16_t>(n);
        for (std::byte& v : b->bytes()) v = static_cast<std::byte>(r());
        const std::vector<std::byte> copy(b->bytes().begin(), b->bytes().end());
        const auto result = a.insert(at, PacketChain(std::move(b)), r() % 2 == 0);
        bool overlapped = false;
        for (uint32_t k = 0; k < n; ++k) overlapped |= model.contains(at + k);
        if (!result.dropped) {
          EXPECT_EQ(result.duplicate, overlapped);
          for (uint32_t k = 0; k < n; ++k) model.try_emplace(at + k, copy[k]);  // first copy wins
        } else {
          // Refused in part: what it now holds is what the ranges say.
          ASSERT_EQ(a.count(), Reassembly::kMaxRanges);
          for (uint32_t k = 0; k < n; ++k)
            for (uint32_t g = 0; g < a.count(); ++g)
              if (a.at(g).begin <= at + k && at + k < a.at(g).end)
                model.try_emplace(at + k, copy[k]);
        }
        ASSERT_EQ(a.bytes(), model.size());
        uint32_t buffers = 0;
        StreamOffset last = 0;
        for (uint32_t g = 0; g < a.count(); ++g) {
          ASSERT_GT(a.at(g).begin, last);
          ASSERT_EQ(a.at(g).data.bytes(), a.at(g).end - a.at(g).begin);
          last = a.at(g).end;
          buffers += a.at(g).data.buffers();
        }
        ASSERT_EQ(buffers, a.buffers());
      }
    }
    ASSERT_EQ(pool.free_count(), pool.size());
  }
}

/// Every other segment of a large window was lost, then the holes are filled from either side.
TEST(Reassembly, ThousandsOfHoles) {
  std::vector<std::byte> memory(size_t{6500} * 2048);
  PacketPool pool(memory, 2048);
  {
    Reassembly a;
    const auto insert = [&](StreamOffset at) {
      PacketRef b(pool.take());
      b->length = 10;
      return a.insert(at, PacketChain(std::move(b)), false);
    };
    for (uint32_t i = 0; i < Reassembly::kMaxRanges; ++i)
      ASSERT_FALSE(insert(10 + 20 * i).dropped) << i;
    ASSERT_EQ(a.count(), Reassembly::kMaxRanges);
    EXPECT_TRUE(insert(10 + 20 * Reassembly::kMaxRanges).dropped);
    const Reassembly::Range* blocks[4];
    ASSERT_EQ(a.recent(blocks), 4u);
    EXPECT_EQ(blocks[0]->begin, 10 + 20 * (Reassembly::kMaxRanges - 1));
    EXPECT_EQ(blocks[3]->begin, 10 + 20 * (Reassembly::kMaxRanges - 4));
    ASSERT_EQ(a.recent(blocks, Reassembly::kMaxRanges - 2), 2u);
    EXPECT_EQ(blocks[0]->begin, 30u);
    EXPECT_EQ(blocks[1]->begin, 10u);
    insert(10);  // once more: now the latest
    ASSERT_EQ(a.recent(blocks), 4u);
    EXPECT_EQ(blocks[0]->begin, 10u);
    EXPECT_EQ(blocks[1]->begin, 10 + 20 * (Reassembly::kMaxRanges - 1));
    for (uint32_t i = 0; i + 1 < Reassembly::kMaxRanges; i += 2)
      ASSERT_FALSE(insert(20 + 20 * i).dropped) << i;
    ASSERT_EQ(a.count(), Reassembly::kMaxRanges / 2);
    StreamOffset at = 10;
    for (; !a.empty(); at += 40) {
      ASSERT_EQ(a.first_begin(), at);
      ASSERT_EQ(a.pop_first().bytes(), 30u);
    }
    EXPECT_EQ(at, 10 + 20 * Reassembly::kMaxRanges);
    EXPECT_EQ(a.buffers(), 0u);
    EXPECT_EQ(a.recent(blocks), 0u);
  }
  EXPECT_EQ(pool.free_count(), pool.size());
}

TEST(Reassembly, NoFrameForASplitDropsOnlyTheRest) {
  std::vector<std::byte> memory(size_t{3} * 2048);
  PacketPool pool(memory, 2048);
  {
    Reassembly a;
    const auto chain = [&](uint16_t n) {
      PacketRef b(pool.take());
      b->length = n;
      return PacketChain(std::move(b));
    };
    a.insert(200, chain(10), false);
    PacketChain big = chain(200);
    PacketRef last(pool.take());
    const auto r = a.insert(100, std::move(big), false);
    EXPECT_TRUE(r.dropped);
    ASSERT_EQ(a.count(), 1u);
    EXPECT_EQ(a.at(0).begin, 100u);
    EXPECT_EQ(a.at(0).end, 210u);
  }
  EXPECT_EQ(pool.free_count(), pool.size());
}

TEST(Isn, SiphashReference) {  // the reference vectors of SipHash-2-4, key 00..0f
  const IsnSecret key{0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL};
  std::array<uint8_t, 15> in;
  for (uint8_t i = 0; i < 15; ++i) in[i] = i;
  EXPECT_EQ(siphash(key, in), 0xa129ca6149be45e5ULL);
  EXPECT_EQ(siphash(key, {}), 0x726fdb47dd0e0e31ULL);
}

TEST(Isn, MonotonePerTupleAndSpreadOverTuples) {  // RFC 6528 §3
  const IsnSecret key{123, 456};
  Endpoint a{IpAddr::v4(be32(0x0a000001)), 1000, 0};
  const Endpoint b{IpAddr::v4(be32(0x0a000002)), 80, 0};
  const Instant t0 = Instant::from_ns(1'000'000'000'000);
  const Seq32 first = initial_sequence(key, a, b, t0);
  EXPECT_EQ(initial_sequence(key, a, b, t0 + Duration::us(64)) - first, 1000);
  EXPECT_TRUE(initial_sequence(key, a, b, t0 + Duration::s(60)).after(first));
  unsigned bucket[256] = {};
  constexpr unsigned kTuples = 60'000;
  for (unsigned i = 0; i < kTuples; ++i) {
    a.port = static_cast<uint16_t>(i);
    ++bucket[initial_sequence(key, a, b, t0).value() >> 24];
  }
  double chi = 0;
  for (unsigned n : bucket)
    chi += (n - kTuples / 256.0) * (n - kTuples / 256.0) / (kTuples / 256.0);
  EXPECT_LT(chi, 330.0);  // 255 degrees of freedom, one in a thousand
  EXPECT_NE(initial_sequence({1, 2}, a, b, t0), initial_sequence({1, 3}, a, b, t0));
}

TEST(Window, ScaledRoundingNeitherCreepsNorShrinks) {
  Peer p;
  p.config.window_scaling = true;
  p.config.wscale = 7;
  p.config.rcv_buf = 3000;
  p.establish_active();
  uint32_t edge = 0;
  uint32_t seq = 1;
  for (int i = 0; i < 200; ++i) {
    const uint32_t room = static_cast<uint32_t>(p.t.rcv_adv - p.t.rcv_nxt);
    if (room == 0) break;
    p.in(kAck, seq, 1, text(std::min(room, 88u)));
    seq += std::min(room, 88u);
    for (const Out& o : p.after(Duration::ms(50))) {
      EXPECT_GE(o.ack + (o.window << 7) + 127, edge);
      edge = std::max(edge, o.ack + (o.window << 7));
    }
  }
  EXPECT_LE(p.t.recv_queue.bytes(), 3000u + 128);
}

TEST(Tcb, Size) {
  RecordProperty("sizeof_tcb", static_cast<int>(sizeof(Tcb)));
  EXPECT_LE(sizeof(Tcb), 832u);
}

}  // namespace
}  // namespace vireo::tcp
