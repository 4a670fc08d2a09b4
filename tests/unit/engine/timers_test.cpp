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
  ASSERT_TRUE(c->tcb().lone_ack);
  const Instant was = armed();
  exchange();
  acknowledge();
  ASSERT_TRUE(c->tcb().lone_ack);
  h.pass(was - h.now() + Duration::ms(1));
  EXPECT_NE(armed(), was);
  EXPECT_TRUE(c->tcb().lone_ack) << "what is known of the connection still is";
  EXPECT_TRUE(peer.hear_all().empty());
}

}  // namespace
}  // namespace vireo::test
