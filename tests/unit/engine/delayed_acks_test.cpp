// ACKs that wait for what the program does next: what carries them, and what sends them where
// nothing does.
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

class Riding : public Accepted {
 protected:
  /// A segment comes in the turn of a call that returns with it. @return what left in that turn.
  std::vector<Heard> receive(const std::string& data, SegFlags flags = kAck | kPsh) {
    peer.say(flags, peer.nxt, peer.ack,
             {.data = data, .options = peer.options(), .poll_now = false});
    peer.nxt = peer.nxt + static_cast<uint32_t>(data.size()) + (has(flags, kFin) ? 1 : 0);
    h.engine().lock().lock();
    EXPECT_TRUE(h.engine().poll_to_return(h.now()));
    h.engine().unlock();
    h.link().step(h.now());
    return peer.hear_all();
  }
  void return_with_nothing(PollOf call = PollOf::kCall) {
    h.engine().lock().lock();
    h.engine().poll_to_return(h.now(), call);
    h.engine().unlock();
    h.link().step(h.now());
  }
  /// The engine learns what a full segment is; nothing of it is left.
  void show_full(const std::string& segment) {
    receive(segment);
    h.settle();
    h.read(*c);
    peer.hear_all();
  }
  /// Its connection, all heard. Null: there is none.
  Conn* accept(Peer& other) {
    Listening& l = h.listen(other.there.port);
    EXPECT_TRUE(other.connect());
    Conn* const conn = h.accept(l);
    h.close(l);
    other.hear_all();
    return conn;
  }
  /// Of such calls that find nothing: the one that sends the ACK, which is all that is sent.
  int turns_to_the_ack(PollOf call) {
    std::vector<Heard> sent;
    int turns = 0;
    for (; sent.empty() && turns < 100; ++turns) {
      return_with_nothing(call);
      sent = peer.hear_all();
    }
    EXPECT_EQ(sent.size(), 1u);
    if (sent.empty()) return turns;
    EXPECT_TRUE(sent[0].is(kAck));
    EXPECT_EQ(sent[0].ack, peer.nxt);
    return turns;
  }
};

TEST_F(Riding, OnTheAnswer) {
  EXPECT_TRUE(receive("request").empty());
  h.write(*c, "answer");
  const auto sent = peer.hear_all();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].data, "answer");
  EXPECT_EQ(sent[0].ack, peer.nxt);
  h.pass(Duration::ms(5));
  EXPECT_TRUE(peer.hear_all().empty()) << "it was told once";
  EXPECT_EQ(h.read(*c), "request");
}

TEST_F(Riding, OnTheFin) {
  EXPECT_TRUE(receive("", kAck | kFin).empty());
  h.close(*c);
  const auto sent = peer.hear_all();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].is(kAck | kFin));
  EXPECT_EQ(sent[0].ack, peer.nxt);
}

TEST_F(Riding, EndsWithTheNextTurn) {
  EXPECT_TRUE(receive("request").empty());
  h.poll();
  const auto sent = peer.hear_all();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].is(kAck));
  EXPECT_EQ(sent[0].ack, peer.nxt);
}

TEST_F(Riding, EndsWhenTheProgramHasWaitedForAll) {
  EXPECT_TRUE(receive("request").empty());
  const int turns = turns_to_the_ack(PollOf::kWait);
  EXPECT_GT(turns, 2);
  EXPECT_LT(turns, 20);
}

TEST_F(Riding, EndsWhenOneIsAskedInVain) {
  EXPECT_TRUE(receive("request").empty());
  const int turns = turns_to_the_ack(PollOf::kCall);
  EXPECT_GT(turns, 8);
  EXPECT_LT(turns, 40);
}

// An epoll_wait that told of many: what is done for the others is no wait.
TEST_F(Riding, OutlivesCallsForOthers) {
  h.listen(81);
  EXPECT_TRUE(receive("request").empty());
  for (uint16_t i = 0; i < 50; ++i) {
    Peer other(h, "11.0.0.8", static_cast<uint16_t>(40'000 + i), 81);
    other.say(kSyn, other.iss, Seq32(0), {.options = other.syn_options(), .poll_now = false});
    return_with_nothing();
    EXPECT_EQ(other.hear_all().size(), 1u);
    EXPECT_TRUE(peer.hear_all().empty()) << i;
  }
  EXPECT_TRUE(peer.hear_all().empty());
  h.write(*c, "answer");
  EXPECT_EQ(peer.hear_all().size(), 1u);
}

// Whose program never comes to wait, as there is always something.
TEST_F(Riding, EndsInTime) {
  EXPECT_TRUE(receive("request").empty());
  size_t sent = 0;
  int calls = 0;
  for (; sent == 0 && calls < 50; ++calls) {
    h.link().step(h.now() + Duration::us(200));
    peer.say(kAck, peer.nxt, peer.ack, {.options = peer.options(), .poll_now = false});
    return_with_nothing();
    sent = peer.hear_all().size();
  }
  EXPECT_GT(calls, 4);
  EXPECT_LT(calls, 20) << "within some milliseconds";
}

TEST_F(Riding, TakesWhatComesMeanwhileWithIt) {
  EXPECT_TRUE(receive("a").empty());
  receive("b");
  for (int i = 0; i < 40; ++i) return_with_nothing();
  const auto sent = peer.hear_all();
  ASSERT_LE(sent.size(), 1u);
  h.pass(Duration::ms(50));
  EXPECT_EQ(h.read(*c), "ab");
  EXPECT_EQ(c->flow->tcb.rcv_acked, c->flow->tcb.rcv_nxt);
}

TEST_F(Riding, OutlivesASetting) {  // TCP_NODELAY right after connect or accept
  EXPECT_TRUE(receive("request").empty());
  h.engine().lock().lock();
  h.engine().tcp().progress(*c->flow, h.now());
  h.engine().unlock();
  h.link().step(h.now());
  EXPECT_TRUE(peer.hear_all().empty());
}

TEST_F(Riding, IsDueWithinTheHelpersGrace) {
  EXPECT_TRUE(receive("request").empty());
  EXPECT_LE(h.engine().next_deadline(), h.now() + Duration::ms(1));
  h.pass(Duration::ms(2));
  EXPECT_EQ(peer.hear_all().size(), 1u);
}

TEST_F(Riding, EndsBeforeASleep) {
  EXPECT_TRUE(receive("request").empty());
  h.engine().lock().lock();
  if (h.engine().begin_sleep()) h.engine().end_sleep();
  h.engine().unlock();
  h.link().step(h.now());
  EXPECT_EQ(peer.hear_all().size(), 1u);
}

// Each by its own time, and who has more to say at once.
TEST_F(Riding, EndsForOneAndGoesOnForAnother) {
  Peer other(h, "11.0.0.8", 40'000, 81);
  Conn* const d = accept(other);
  ASSERT_NE(d, nullptr);
  EXPECT_TRUE(receive("request").empty());
  for (int i = 0; i < 9; ++i) return_with_nothing(PollOf::kWait);  // of which two count
  EXPECT_TRUE(peer.hear_all().empty());
  other.say(kAck | kPsh, other.nxt, other.ack,
            {.data = "later", .options = other.options(), .poll_now = false});
  return_with_nothing(PollOf::kWait);
  EXPECT_EQ(peer.hear_all().size(), 1u);
  EXPECT_TRUE(other.hear_all().empty());
  h.write(*d, "answer");
  EXPECT_EQ(other.hear_all().size(), 1u);
}

// A program that sends much polls between its sends.
TEST_F(Riding, OutlivesTheSendsOfAnother) {
  Peer other(h, "11.0.0.8", 40'000, 81);
  Conn* const d = accept(other);
  ASSERT_NE(d, nullptr);
  d->tcb().cc.cwnd = 1 << 20;
  EXPECT_TRUE(receive("request").empty());
  const uint64_t polls = h.stats().polls.get();
  std::string bytes(1'000, 'x');
  const iovec v{bytes.data(), bytes.size()};
  for (int i = 0; i < 50; ++i) {
    h.engine().lock().lock();
    EXPECT_EQ(h.engine().tcp().send(*d->flow, {&v, 1}, false, h.now()), bytes.size());
    h.engine().unlock();
    h.link().step(h.now());
  }
  EXPECT_GT(h.stats().polls.get(), polls);
  EXPECT_TRUE(peer.hear_all().empty());
  h.write(*c, "answer");
  const auto sent = peer.hear_all();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].data, "answer");
  EXPECT_EQ(sent[0].ack, peer.nxt);
}

TEST_F(Riding, EndsWithASecondSegment) {
  const std::string segment(1'400, 'x');
  show_full(segment);
  EXPECT_TRUE(receive(segment).empty());
  EXPECT_EQ(receive(segment).size(), 1u);
}

TEST_F(Riding, IsNotForTwoSegments) {
  const std::string segment(1'400, 'x');
  show_full(segment);
  peer.say(kAck, peer.nxt, peer.ack,
           {.data = segment, .options = peer.options(), .poll_now = false});
  peer.nxt = peer.nxt + 1'400;
  EXPECT_EQ(receive(segment).size(), 1u);
}

}  // namespace
}  // namespace vireo::test
