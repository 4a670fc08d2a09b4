// The search for the largest segment of a path: mtu_search.cpp, path.cpp. RFC 4821.
#include <map>

#include "tests/unit/tcp/sack_peer.h"

namespace vireo::tcp {
namespace {

/// Begins with segments of 1000 bytes; peer and link would take 1400. A path that carries less, and
/// says nothing, lies between.
class Prober : public SackPeer {
 public:
  Prober(uint32_t our_iss, uint32_t peer_iss, bool timestamps = false)
      : SackPeer(our_iss, peer_iss, timestamps) {
    config.mtu_probing = MtuProbing::kAlways;
    config.mtu_base = 1000;
    peer_mss = timestamps ? 1412 : 1400;
  }
  static std::vector<size_t> sizes(const std::vector<Out>& all) {
    std::vector<size_t> n;
    for (const Out& o : all) n.push_back(o.data.size());
    return n;
  }
  std::vector<size_t> sizes_now() { return sizes(out()); }
  /// Ten segments in flight, `more` bytes behind them.
  void fill(uint32_t more = 20'000) {
    write(text(10'000 + more));
    ASSERT_EQ(sizes_now(), std::vector<size_t>(10, 1000));
  }
  /// From the SYN to the first probe, and what leaves with it: of a window of 12 segments 8 are in
  /// flight.
  std::vector<Out> probe() {
    establish();
    fill();
    pass(kRtt);
    ack(2);
    return out();
  }
  /// Writes `bytes`; what the path carries arrives and is acknowledged, a round trip later. All
  /// that arrives is what was written.
  void carry(size_t limit, size_t bytes) {
    const std::string all = text(bytes);
    const uint32_t base = static_cast<uint32_t>(t.snd_end);
    size_t written = 0;
    uint32_t next = base;
    std::map<uint32_t, std::string> held;
    while (next < base + bytes) {
      written += write(all.substr(written, 100'000 / 26 * 26));
      const auto said = out();
      if (said.empty()) {
        ASSERT_FALSE(deadline(t).is_never()) << "stuck";
        now = std::max(now, deadline(t));
        on_deadline(t, now);
        continue;
      }
      pass(kRtt);
      for (const Out& o : said) {
        largest = std::max(largest, o.data.size());
        if (o.data.size() > limit) {
          ++swallowed;
          continue;
        }
        if (o.seq >= next && !o.data.empty()) held[o.seq] = o.data;
        while (!held.empty() && held.begin()->first <= next) {
          const auto& [seq, data] = *held.begin();
          if (seq + data.size() > next) {
            ASSERT_EQ(data.substr(next - seq), all.substr(next - base, data.size() - (next - seq)));
            next = seq + static_cast<uint32_t>(data.size());
          }
          held.erase(held.begin());
        }
        std::vector<std::pair<uint32_t, uint32_t>> blocks;
        for (const auto& [seq, data] : held) {
          const auto end = seq + static_cast<uint32_t>(data.size());
          if (!blocks.empty() && blocks.back().second == seq)
            blocks.back().second = end;
          else
            blocks.emplace_back(seq, end);
        }
        if (blocks.size() > 3) blocks.resize(3);
        ack_bytes(next, blocks);
      }
    }
  }
  size_t largest = 0;
  unsigned swallowed = 0;
};

class MtuSearchTest : public TcpTest {};
INSTANTIATE_TEST_SUITE_P(Iss, MtuSearchTest, ::testing::Range(0, 6));

TEST_P(MtuSearchTest, AProbeIsOneLargerSegmentOfUnsentData) {  // RFC 4821 §7.2, §7.4
  Prober p(ours(), theirs());
  const auto o = p.probe();
  EXPECT_EQ(Prober::sizes(o), (std::vector<size_t>{1200, 800, 1000, 1000}));
  EXPECT_EQ(o[0].data, text(30'000).substr(10'000, 1200));
  EXPECT_EQ(o[1].data, text(30'000).substr(11'200, 800));
  p.ack(4);
  for (const size_t n : p.sizes_now()) EXPECT_LE(n, 1000u) << "one probe at a time";
}

TEST_P(MtuSearchTest, ItsAckRaisesTheSegmentSize) {  // RFC 4821 §7.6.1
  Prober p(ours(), theirs());
  p.probe();
  const uint32_t cwnd = p.t.cc.cwnd;
  p.pass(kRtt);
  p.ack_bytes(10'001 + 1199, {});  // all but its last byte
  p.out(1);
  EXPECT_EQ(effective_mss(p.t), 1000u);
  p.ack_bytes(10'001 + 1200, {});
  p.out(1);
  EXPECT_EQ(effective_mss(p.t), 1200u);
  EXPECT_GE(p.t.cc.cwnd, cwnd) << "in bytes it means the same";
}

TEST_P(MtuSearchTest, ItsLossIsNoCongestion) {  // RFC 4821 §7.6.2
  Prober p(ours(), theirs());
  p.probe();
  p.pass(kRtt);
  p.ack(10);
  p.out();
  const uint32_t cwnd = p.t.cc.cwnd;
  p.ack_bytes(10'001, {{11'201, 14'001}});  // three segments behind it
  p.pass(kRtt / 2);
  p.ack_bytes(10'001, {{11'201, 15'001}});
  const auto o = p.out();
  ASSERT_GE(o.size(), 2u);
  EXPECT_EQ(o[0].seq, 10'001u);
  EXPECT_EQ(o[0].data, text(30'000).substr(10'000, 1000));
  EXPECT_TRUE(o[0].retransmission);
  EXPECT_EQ(o[1].data, text(30'000).substr(11'000, 200));
  EXPECT_GE(p.t.cc.cwnd, cwnd);
  EXPECT_EQ(p.t.cc.ssthresh, CongestionControl::kMaxWindow);
  EXPECT_EQ(p.t.mtu_search->search_high, 1199);
  EXPECT_EQ(effective_mss(p.t), 1000u);
}

TEST_P(MtuSearchTest, WithAnotherLossItTellsNothing) {  // RFC 4821 §7.6.4
  Prober p(ours(), theirs());
  p.probe();
  p.pass(kRtt);
  p.ack(10);
  p.out();
  p.ack_bytes(10'001, {{12'001, 15'001}});  // the segment right behind it is missing, too
  p.pass(kRtt / 2);
  p.ack_bytes(10'001, {{12'001, 16'001}});
  p.out();
  EXPECT_LT(p.t.cc.ssthresh, CongestionControl::kMaxWindow);
  EXPECT_EQ(p.t.mtu_search->search_high, 1400);
  EXPECT_EQ(p.t.mtu_search->probe_size, 0);
}

TEST_P(MtuSearchTest, ATimeoutTellsNothing) {  // RFC 4821 §7.6.3: it may be sent again
  Prober p(ours(), theirs());
  p.probe();
  p.after(Duration::ms(700));
  EXPECT_EQ(p.t.mtu_search->search_high, 1400);
  EXPECT_EQ(p.t.mtu_search->search_low, 1000);
  EXPECT_EQ(p.t.mtu_search->probe_size, 0);
}

TEST_P(MtuSearchTest, TheSearchFindsWhatThePathCarries) {  // RFC 4821 §7.3
  for (const size_t limit : {1000u, 1017u, 1233u, 1400u}) {
    for (const bool timestamps : {false, true}) {
      Prober p(ours(), theirs(), timestamps);
      p.establish();
      p.carry(limit, 500'000);
      EXPECT_LE(effective_mss(p.t), limit);
      EXPECT_GT(effective_mss(p.t) + p.config.mtu_threshold, limit);
      EXPECT_LE(p.swallowed, 6u) << "half of 400, and so on, down to 8";
      EXPECT_EQ(p.t.cc.ssthresh, CongestionControl::kMaxWindow) << "taken for congestion";
      EXPECT_EQ(p.t.retransmits, 0);
    }
  }
}

TEST_P(MtuSearchTest, WithoutSackToo) {
  Prober p(ours(), theirs());
  p.config.sack = false;
  p.establish();
  p.carry(1233, 500'000);
  EXPECT_LE(effective_mss(p.t), 1233);
  EXPECT_GT(effective_mss(p.t) + 8, 1233);
}

TEST_P(MtuSearchTest, WhatFailedIsTriedAgainAfterTheInterval) {  // RFC 4821 §7.3
  Prober p(ours(), theirs());
  p.establish();
  p.carry(1100, 500'000);
  const uint32_t found = effective_mss(p.t);
  p.largest = 0;
  p.carry(1400, 500'000);
  EXPECT_EQ(p.largest, found) << "found, and not looked for";
  p.pass(Duration::s(600));
  p.carry(1400, 500'000);
  EXPECT_GT(effective_mss(p.t), 1392u);
}

TEST_P(MtuSearchTest, NoProbeWithoutEnoughToSend) {  // RFC 4821 §7.4: its loss must be seen
  Prober p(ours(), theirs());
  p.establish();
  p.fill(5000);
  p.pass(kRtt);
  p.ack(2);  // 1200, and four segments behind it, are more
  EXPECT_EQ(p.sizes_now(), std::vector<size_t>(4, 1000));
}

TEST_P(MtuSearchTest, NoProbeIntoASmallWindow) {
  Prober p(ours(), theirs());
  p.window = 5000;
  p.establish();
  p.carry(1400, 200'000);
  EXPECT_EQ(p.largest, 1000u);
}

TEST_P(MtuSearchTest, AProbeWaitsForTheWindowToDrain) {  // RFC 4821 §7.4; Linux
  Prober p(ours(), theirs());
  p.window = 10'000;
  p.establish();
  p.fill();
  p.t.cc.cwnd = 20'000;
  p.pass(kRtt);
  p.ack(2);  // 2000 of the 5200 bytes that are needed
  EXPECT_TRUE(p.out().empty());
  p.ack(6);
  EXPECT_EQ(p.sizes_now().front(), 1200u);
}

TEST_P(MtuSearchTest, NoProbeInRecovery) {
  Prober p(ours(), theirs());
  p.establish();
  p.fill();
  p.t.cc.cwnd = 15'000;
  p.pass(kRtt);
  p.ack(0, {{1, 5}});
  for (const size_t n : p.sizes_now()) EXPECT_LE(n, 1000u);
  EXPECT_EQ(p.t.mtu_search->probe_size, 0);
}

TEST_P(MtuSearchTest, ARoutersReportBoundsTheSearch) {  // RFC 4821 §7.1: both may be in use
  Prober p(ours(), theirs());
  p.establish();
  EXPECT_EQ(path_shrunk(p.t, 1100, p.now), Effects::kNone) << "nothing that large is in flight";
  p.carry(1400, 500'000);
  EXPECT_EQ(p.swallowed, 0u);
  EXPECT_LE(p.largest, 1100u);
  EXPECT_GT(effective_mss(p.t), 1092u);
  path_shrunk(p.t, 700, p.now);
  EXPECT_EQ(effective_mss(p.t), 700u);
  p.largest = 0;
  p.carry(1400, 500'000);
  EXPECT_EQ(p.largest, 700u);
  set_mss(p.t, 1460);  // the report is forgotten
  p.carry(1400, 500'000);
  EXPECT_GT(effective_mss(p.t), 1092u);
}

TEST_P(MtuSearchTest, AProbeReportedTooLargeIsCutLikeAnyOther) {  // RFC 1191 §6.4
  Prober p(ours(), theirs());
  p.probe();
  EXPECT_TRUE(has(path_shrunk(p.t, 1150, p.now), Effects::kTransmit));
  const auto o = p.out();
  ASSERT_GE(o.size(), 2u);
  EXPECT_EQ(o[0].seq, 10'001u);
  EXPECT_EQ(o[0].data.size(), 1000u);
  EXPECT_EQ(o[1].seq, 11'001u);
  EXPECT_EQ(o[1].data.size(), 200u);
  EXPECT_EQ(p.t.cc.ssthresh, CongestionControl::kMaxWindow);
  EXPECT_EQ(p.t.mtu_search->probe_size, 0);
}

TEST_P(MtuSearchTest, AHoleDefersTheProbe) {  // SACK blocks would make its size another (Linux)
  Prober p(ours(), theirs());
  p.establish();
  p.fill();
  p.in(kAck, 501, 1, text(100));
  p.out();
  p.pass(kRtt);
  p.ack(2);
  for (const size_t n : p.sizes_now()) EXPECT_LE(n, 1000u);
  EXPECT_EQ(p.t.mtu_search->probe_size, 0);
}

TEST_P(MtuSearchTest, ARefusedFrameLeavesNoProbe) {  // the device's ring was full
  Prober p(ours(), theirs());
  p.establish();
  p.fill();
  p.pass(kRtt);
  p.ack(2);
  Plan plan;
  ASSERT_TRUE(next_segment(p.t, p.now, plan));
  ASSERT_EQ(plan.length, 1200u);
  ASSERT_TRUE(next_segment(p.t, p.now, plan)) << "again the same";
  EXPECT_EQ(plan.length, 1200u);
  EXPECT_EQ(p.t.mtu_search->probe_size, 0);
}

TEST_P(MtuSearchTest, NobodySearchesUnasked) {
  Prober p(ours(), theirs());
  p.config.mtu_probing = MtuProbing::kOff;
  p.peer_mss = 1000;
  p.establish();
  EXPECT_EQ(p.t.mtu_search, nullptr);
}

TEST_P(MtuSearchTest, StoppedItTakesWhatTheLinkTakes) {
  Prober p(ours(), theirs());
  p.establish();
  stop_mtu_probing(p.t);
  EXPECT_EQ(effective_mss(p.t), 1400u);
}

TEST_P(MtuSearchTest, ABlackHoleIsLeftAndThePathSearched) {  // RFC 4821 §7.7
  Prober p(ours(), theirs());
  p.config.mtu_probing = MtuProbing::kOnBlackHole;
  p.peer_mss = 1000;
  p.establish();
  p.t.peer_mss = 1400;
  update_mss(p.t);
  EXPECT_EQ(p.t.mtu_search, nullptr);
  p.carry(1200, 1'000'000);  // three timeouts, then 1000 and upwards
  ASSERT_NE(p.t.mtu_search, nullptr);
  EXPECT_LE(effective_mss(p.t), 1200u);
  EXPECT_GT(effective_mss(p.t), 1192u);
}

TEST_P(MtuSearchTest, NotBelowTheFloor) {  // Linux tcp_mtu_probe_floor
  Prober p(ours(), theirs());
  p.config.mtu_floor = 400;
  p.establish();
  p.write(text(1000));
  size_t least = 10'000;
  for (const Out& o : p.after(Duration::s(300))) least = std::min(least, o.data.size());
  EXPECT_EQ(effective_mss(p.t), 400u);
  EXPECT_GE(least, 200u) << "what is left of a thousand";
}

}  // namespace
}  // namespace vireo::tcp
