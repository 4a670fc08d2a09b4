// A program that sends and never looks for what came.
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

class OnlySends : public Accepted {
 protected:
  void SetUp() override {
    Accepted::SetUp();
    c->tcb().cc.cwnd = 1 << 20;
  }
  /// In writes of `each`. @return bytes that have left by the end.
  size_t send(size_t n, size_t each) {
    const std::string bytes(each, 'x');
    for (; n != 0; n -= each) {
      const iovec v{const_cast<char*>(bytes.data()), each};
      h.engine().acquire();
      EXPECT_EQ(h.engine().tcp().send(*c->flow, {&v, 1}, false, h.now()), each);
      h.engine().unlock();
      h.link().step(h.now());
    }
    return heard();
  }
  size_t heard() {
    size_t all = 0;
    for (const Heard& s : peer.hear_all()) all += s.data.size();
    return all;
  }
};

TEST_F(OnlySends, TakesTheAcksOfWhatLeft) {
  tcp::Tcb& t = c->tcb();
  const size_t told = send(20'000, 20'000);
  ASSERT_GT(told, 10'000U);
  const StreamOffset before = t.snd_una;
  peer.say(kAck, peer.nxt, peer.ack + static_cast<uint32_t>(told),
           {.options = peer.options(), .poll_now = false});
  const uint64_t polls = h.stats().polls.get();
  send(1000, 1000);
  EXPECT_EQ(h.stats().polls.get(), polls) << "not for so little";
  EXPECT_EQ(t.snd_una, before);
  send(20'000, 20'000);
  EXPECT_GT(h.stats().polls.get(), polls);
  EXPECT_EQ(t.snd_una, before + told);
}

TEST_F(OnlySends, WholeSegmentsOfAStreamRingTogether) {
  EXPECT_EQ(send(100, 100), 100U);
  const uint32_t mss = c->tcb().mss;
  EXPECT_EQ(send(3000, 100), 0U) << "two whole segments, and a rest that is held";
  h.poll();
  EXPECT_EQ(heard(), 2 * mss);
  // A poll between sends would ring, too: fewer than it comes for.
  EXPECT_EQ(send(75 * 400, 400), 20 * mss) << "so many do not wait for a poll";
  h.poll();
  EXPECT_EQ(c->tcb().snd_end - c->tcb().snd_nxt, (100 + 3000 + 30'000 - 100) % mss);
}

TEST_F(OnlySends, ALongWriteTakesAcksBetweenItsPieces) {
  tcp::Tcb& t = c->tcb();
  const size_t told = send(20'000, 20'000);
  ASSERT_GT(told, 10'000U);
  peer.say(kAck, peer.nxt, peer.ack + static_cast<uint32_t>(told),
           {.options = peer.options(), .poll_now = false});
  const size_t more_than_fits = t.snd_buf - (t.snd_end - t.snd_una) + 9000;
  send(more_than_fits, more_than_fits);  // whole, at once
}

TEST_F(OnlySends, PiecesOfALongWriteEndWhereSegmentsDo) {
  EXPECT_EQ(send(100, 100), 100U);
  EXPECT_EQ(send(100, 100), 0U) << "held: no segment ends here";
  const uint32_t mss = c->tcb().mss;
  c->tcb().snd_buf = 1 << 20;
  c->tcb().nodelay = true;  // whatever is short leaves at once
  const std::string bytes(300'000, 'x');
  const iovec v{const_cast<char*>(bytes.data()), bytes.size()};
  h.engine().acquire();
  EXPECT_EQ(h.engine().tcp().send(*c->flow, {&v, 1}, false, h.now()), bytes.size());
  h.engine().unlock();
  size_t all = 0;
  for (bool some = true; some && all < bytes.size() + 100;) {
    h.link().step(h.now());
    const auto frames = peer.hear_all();
    some = !frames.empty();
    for (const Heard& s : frames) {
      all += s.data.size();
      if (all < bytes.size() + 100) {
        EXPECT_EQ(s.data.size(), mss) << "before byte " << all;
      }
    }
    peer.say(kAck, peer.nxt, peer.ack, {.options = peer.options()});
  }
  EXPECT_EQ(all, bytes.size() + 100);
}

TEST_F(OnlySends, WhatIsCompleteRingsAtOnce) {
  EXPECT_EQ(send(100, 100), 100U);
  EXPECT_EQ(send(100, 100), 0U) << "held: no frame";
  // With what was held, all of it in whole segments: nothing more would ring for them.
  const uint32_t mss = c->tcb().mss;
  EXPECT_EQ(send(2 * mss - 100, 2 * mss - 100), 2 * mss);
}

}  // namespace
}  // namespace vireo::test
