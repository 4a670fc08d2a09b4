// More frames than the receive ring may hold: what one turn takes, and what connections may invite
// while they share a crowded ring (stack/engine/window_sharing.cpp).
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr uint32_t kRing = 256;
constexpr uint32_t kMss = 1460;
constexpr unsigned kFlows = 8;
/// Half the ring among the connections and the listener.
constexpr uint32_t kShare = kRing / 2 / (kFlows + 1) * kMss;

class Crowd : public ::testing::Test {
 protected:
  Crowd() : l_(h_.listen(80, 16, config())) {
    for (uint16_t i = 0; i < kFlows; ++i) {
      auto& p = peers_.emplace_back(h_, "11.0.0.7", static_cast<uint16_t>(4000 + i), 80);
      EXPECT_TRUE(p.connect());
      conns_.push_back(h_.accept(l_));
    }
  }
  static tcp::Config config() {
    tcp::Config c;
    c.rcv_buf = 64 << 10;
    c.rcv_buf_max = 1 << 20;
    return c;
  }
  /// `frames` full segments from every peer, none taken by the engine yet.
  void pile_up(unsigned frames) {
    const std::string data(1000, 'x');
    for (unsigned i = 0; i < frames; ++i)
      for (Peer& p : peers_) {
        p.Peer::say(kAck, p.nxt, p.ack, {.data = data, .options = p.options(), .poll_now = false});
        p.nxt = p.nxt + 1000;
      }
  }
  /// The program reads all; the bytes that `c` may still be sent, as its peer was last told.
  uint32_t window(unsigned i) {
    h_.read(*conns_[i]);
    h_.pass(Duration::ms(41));  // a delayed ACK
    uint32_t bytes = 0;
    for (const Heard& s : peers_[i].hear_all())
      bytes = (uint32_t{s.window} << 7) - static_cast<uint32_t>(peers_[i].nxt - s.ack);
    return bytes;
  }

  Host h_{{.device = {.rx_ring = kRing}}};
  Listening& l_;
  std::deque<Peer> peers_;
  std::vector<Conn*> conns_;
};

TEST_F(Crowd, OneTurnTakesWhatWaits) {
  const uint64_t before = h_.stats().rx_packets.get();
  pile_up(20);
  h_.poll();
  EXPECT_EQ(h_.stats().rx_packets.get(), before + 20 * kFlows);
  h_.settle();
  for (Conn* c : conns_) EXPECT_EQ(h_.read(*c).size(), 20'000u);
}

TEST_F(Crowd, WindowsShareACrowdedRing) {
  pile_up(20);  // 160 of 256
  h_.poll();
  EXPECT_EQ(h_.engine().pool().window_share(), kRing / 2 / (kFlows + 1));
  h_.settle();
  // What was invited before stays so (RFC 9293 §3.8.6); once it is used up, the share rules.
  for (unsigned round = 0; round < 6; ++round) {
    pile_up(20);
    h_.poll();
    h_.settle();
    for (Conn* c : conns_) EXPECT_EQ(h_.read(*c).size(), round == 0 ? 40'000u : 20'000u);
  }
  EXPECT_EQ(h_.stats().rx_lost_no_frame.get(), 0u);
  for (Peer& p : peers_) {
    int32_t edge = 0;  // from the peer's first byte
    for (const Heard& s : p.hear_all()) {
      const int32_t at = s.ack - p.iss + (s.window << 7);
      EXPECT_GT(at, edge - 128) << "the edge moved left by more than the scale's rounding";
      edge = at;
    }
    const auto window = static_cast<uint32_t>(edge - (p.nxt - p.iss));
    EXPECT_LE(window, kShare + 128);
    EXPECT_GE(window, 4 * kMss);
  }
}

TEST_F(Crowd, CalmWidensThemStepByStep) {
  pile_up(20);
  h_.poll();
  const uint32_t share = h_.engine().pool().window_share();
  h_.pass(Duration::ms(19));
  h_.poll();
  EXPECT_EQ(h_.engine().pool().window_share(), share);
  h_.pass(Duration::ms(2));
  h_.poll();
  EXPECT_EQ(h_.engine().pool().window_share(), 2 * share);
  for (int i = 0; i < 20; ++i) {
    h_.pass(Duration::ms(21));
    h_.poll();
  }
  EXPECT_EQ(h_.engine().pool().window_share(), PacketPool::kNoShare);
  pile_up(1);
  h_.settle();
  EXPECT_GT(window(0), kShare * 2);
}

TEST_F(Crowd, HalfARingIsNoCrowd) {
  pile_up(15);  // 120 of 256
  h_.poll();
  EXPECT_EQ(h_.engine().pool().window_share(), PacketPool::kNoShare);
}

TEST_F(Crowd, APoolThatRunsOutIsShared) {
  PacketPool& pool = h_.engine().pool();
  std::vector<PacketRef> hoard;
  while (pool.free_count() > pool.size() / 8 - 1) hoard.emplace_back(pool.take());
  h_.poll();
  EXPECT_EQ(pool.window_share(), std::max(pool.free_count() / (kFlows + 1), 4u));
  hoard.clear();
  for (int i = 0; i < 20; ++i) {
    h_.pass(Duration::ms(21));
    h_.poll();
  }
  EXPECT_EQ(pool.window_share(), PacketPool::kNoShare);
}

}  // namespace
}  // namespace vireo::test
