// A SYN of the addresses and ports of a connection that is over (RFC 9293 §3.10.7.1: there is no
// such connection), while something of that is still here: nobody has looked at the end yet, or its
// program still has the socket. As Linux, which takes a closed socket out of its table at once.
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

using enum tcp::SegFlags;

class Reborn : public testing::Test {
 protected:
  /// A connection that the host has accepted.
  Conn* accepted() {
    if (!p.connect()) return nullptr;
    return h.accept(l);
  }
  /// The same addresses and ports once more.
  void knock_again() {
    p.iss = p.nxt + 1000;
    p.ts_val += 1;
    p.syn();
  }
  void expect_welcome();

  Host h;
  Listening& l = h.listen(80);
  Peer p{h, "11.0.0.7", 4000, 80};
};

void Reborn::expect_welcome() {
  std::optional<Heard> answer;
  for (const Heard& heard : p.hear_all())
    if (heard.is(kSyn | kAck)) answer = heard;
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->ack, p.iss + 1);
  p.irs = answer->seq;
  p.ack = p.irs + 1;
  p.say(kAck | kPsh, "again");
  Conn* const c = h.accept(l);
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(h.read(*c), "again");
}

TEST_F(Reborn, WithTheAckThatEndsTheOldOne) {
  Conn* const c = accepted();
  ASSERT_NE(c, nullptr);
  p.say(kAck | kFin);
  h.close(*c);
  const auto heard = p.hear_all();
  ASSERT_FALSE(heard.empty());
  ASSERT_TRUE(has(heard.back().flags, kFin));
  p.ack = heard.back().seq + 1;
  p.Peer::say(kAck, p.nxt, p.ack, {.options = p.options(), .poll_now = false});
  knock_again();  // both in one turn
  expect_welcome();
}

TEST_F(Reborn, WithTheResetThatEndsTheOldOne) {
  Conn* const c = accepted();
  ASSERT_NE(c, nullptr);
  p.Peer::say(kRst, p.nxt, Seq32(0), {.poll_now = false});
  knock_again();
  expect_welcome();
  EXPECT_EQ(tcp::error(c->tcb()), ECONNRESET);
  h.close(*c);
}

TEST_F(Reborn, WhileTheProgramHasTheOldSocket) {
  Conn* const old = accepted();
  ASSERT_NE(old, nullptr);
  p.say(kRst, p.nxt, Seq32(0));
  h.pass(Duration::ms(500));
  const uint32_t flows = h.engine().live_flows();
  knock_again();
  ASSERT_NO_FATAL_FAILURE(expect_welcome());
  EXPECT_EQ(h.engine().live_flows(), flows + 1);
  // The old one's end takes nothing from the new one.
  EXPECT_EQ(tcp::error(old->tcb()), ECONNRESET);
  h.close(*old);
  EXPECT_EQ(h.engine().live_flows(), flows);
  p.say(kAck | kPsh, "more");
  const auto answer = p.hear_all();
  for (const Heard& heard : answer) EXPECT_FALSE(has(heard.flags, kRst));
  p.say(kRst, p.nxt, Seq32(0));
}

TEST_F(Reborn, WhileTheOldOneWaitsToBeAccepted) {
  ASSERT_TRUE(p.connect());
  p.say(kRst, p.nxt, Seq32(0));
  knock_again();
  const auto answer = p.hear();
  ASSERT_TRUE(answer && answer->is(kSyn | kAck));
  p.ack = answer->seq + 1;
  p.say(kAck | kPsh, "again");
  Conn* const dead = h.accept(l);
  ASSERT_NE(dead, nullptr);
  EXPECT_EQ(tcp::error(dead->tcb()), ECONNRESET);
  Conn* const c = h.accept(l);
  ASSERT_NE(c, nullptr);
  h.close(*dead);
  EXPECT_EQ(h.read(*c), "again");
}

// Who has said its last and heard the peer's, and still has the socket, waits as Linux's does that
// has none: a later SYN opens, with a number above.
TEST_F(Reborn, WhileTheOldOneWaitsForItsProgram) {
  Conn* const old = accepted();
  ASSERT_NE(old, nullptr);
  tcp::shutdown_write(old->tcb(), h.now());
  h.engine().tcp().progress(*old->flow, h.now());
  const auto fin = p.hear();
  ASSERT_TRUE(fin && has(fin->flags, kFin));
  p.ack = fin->seq + 1;
  p.say(kAck | kFin);
  const auto last = p.hear();
  ASSERT_TRUE(last && last->is(kAck));
  ASSERT_EQ(old->state(), tcp::State::kTimeWait);
  const Seq32 before = p.ack;

  const Seq32 nxt = p.nxt;  // an older one: as ever
  p.iss = p.nxt - 5000;
  p.ts_val -= 1;
  p.syn();
  const auto refused = p.hear();
  ASSERT_TRUE(refused && refused->is(kAck));
  p.nxt = nxt;
  p.ts_val += 1;

  knock_again();
  ASSERT_NO_FATAL_FAILURE(expect_welcome());
  EXPECT_GE(p.irs - before, 65'537);
  EXPECT_EQ(old->state(), tcp::State::kClosed);
  EXPECT_EQ(tcp::error(old->tcb()), 0);
  const uint32_t flows = h.engine().live_flows();
  h.close(*old);
  EXPECT_EQ(h.engine().live_flows(), flows - 1);
  EXPECT_EQ(h.stats().time_waits.get(), 0u);
  p.say(kAck | kPsh, "more");
  for (const Heard& heard : p.hear_all()) EXPECT_FALSE(has(heard.flags, kRst));
}

TEST_F(Reborn, OftenLeavesNothing) {
  const uint32_t flows = h.engine().live_flows();
  std::vector<Conn*> old;
  ASSERT_TRUE(p.connect());
  for (int i = 0; i < 20; ++i) {
    Conn* const c = h.accept(l);
    ASSERT_NE(c, nullptr) << i;
    old.push_back(c);
    p.say(kRst, p.nxt, Seq32(0));
    knock_again();
    const auto answer = p.hear();
    ASSERT_TRUE(answer && answer->is(kSyn | kAck)) << i;
    p.ack = answer->seq + 1;
    p.say(kAck);
  }
  for (Conn* c : old) h.close(*c);
  Conn* const last = h.accept(l);
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(h.engine().live_flows(), flows + 1);
  h.close(*last, /*reset=*/true);
  h.settle();
  EXPECT_EQ(h.engine().live_flows(), flows);
}

}  // namespace
}  // namespace vireo::test
