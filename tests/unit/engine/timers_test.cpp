// What the timers of a connection cost that has nothing to wait for any more.
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

class Timers : public Accepted {
 protected:
  void SetUp() override {
    peer.timestamps = true;
    Accepted::SetUp();
    for (int i = 0; i < 40; ++i) exchange();  // quick ACKs are over
  }
  Instant armed() { return static_cast<WheelNode&>(*c->flow).deadline(); }
  /// A request comes in the turn of a call that returns with it.
  void request() {
    peer.say(kAck | kPsh, peer.nxt, peer.ack,
             {.data = "r", .options = peer.options(), .poll_now = false});
    peer.nxt = peer.nxt + 1;
    h.engine().lock().lock();
    EXPECT_TRUE(h.engine().poll_to_return(h.now()));
    h.engine().unlock();
    h.link().step(h.now());
    EXPECT_EQ(h.read(*c), "r");
  }
  void answer() {
    h.write(*c, "a");
    for (const Heard& s : peer.hear_all())
      peer.ack = peer.ack + static_cast<uint32_t>(s.data.size());
  }
  void exchange() {
    request();
    answer();
  }
  void acknowledge() { peer.say(kAck); }
};

/// The node is looked at when it was armed for, though its deadline has moved since.
TEST_F(Timers, OneThatFiresInVainChangesNothing) {
  exchange();
  exchange();
  ASSERT_TRUE(c->tcb().single_ack);
  const Instant was = armed();
  exchange();
  acknowledge();
  ASSERT_TRUE(c->tcb().single_ack);
  h.pass(was - h.now() + Duration::ms(1));
  EXPECT_NE(armed(), was);
  EXPECT_TRUE(c->tcb().single_ack) << "what is known of the connection still is";
  EXPECT_TRUE(peer.hear_all().empty());
}

/// Many connections whose time comes at once.
class ManyTimers : public testing::Test {
 protected:
  static constexpr unsigned kPeers = 100;
  Host h;
  Listening& l = h.listen(80, kPeers);
  std::vector<std::unique_ptr<Peer>> peers = make_peers(h, kPeers);

  /// To each an ACK is owed, a millisecond from now.
  void SetUp() override {
    for (auto& p : peers) {
      ASSERT_TRUE(p->connect());
      Conn* const c = h.accept(l);
      ASSERT_NE(c, nullptr);
      p->say(kAck | kPsh, "ask");
      h.write(*c, "answer");  // it is interactive from here on
      for (const Heard& s : p->hear_all()) p->ack = p->ack + static_cast<uint32_t>(s.data.size());
    }
    for (auto& p : peers) p->say(kAck | kPsh, "ask");
    h.settle();
    ASSERT_EQ(said(), 0U);
  }
  /// Time goes on, and nobody polls.
  void miss(Duration d) { h.link().step(h.now() + d); }
  /// @return ACKs that left since the last look.
  size_t said() {
    size_t n = 0;
    for (auto& p : peers) n += p->hear_all().size();
    return n;
  }
  size_t turn() {
    h.poll();
    return said();
  }
};

TEST_F(ManyTimers, ATurnLooksAfterAFew) {
  miss(Duration::us(1100));
  size_t first = 0;
  for (unsigned i = 0; i < 10; ++i) {
    const size_t acks = turn();
    EXPECT_LE(acks, 1U);
    first += acks;
  }
  h.settle();
  EXPECT_EQ(first + said(), kPeers);
}

TEST_F(ManyTimers, ManyOnceTimeRunsAway) {
  miss(Duration::us(1100));
  EXPECT_LE(turn(), 1U);
  miss(Duration::us(400));
  size_t most = 0;
  for (unsigned i = 0; i < 3; ++i) most = std::max(most, turn());
  EXPECT_EQ(most, 32U);
}

}  // namespace
}  // namespace vireo::test
