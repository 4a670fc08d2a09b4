// Writes with TCP_NODELAY: segment by segment, a doorbell each, unless they come as fast as a dear
// one lets them.
#include <thread>

#include "stack/engine/helper.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr Duration kDoorbell = Duration::us(2);
constexpr Duration kAtOnce = Duration::ns(100);
constexpr size_t kMessage = 64;
constexpr size_t kLarge = 1000;    ///< no two of them share a segment
constexpr unsigned kMaxHeld = 20;  ///< segments
constexpr unsigned kHaste = 256;   ///< sends in a row

Instant g_now;  ///< of the program, which spends it by sending
Instant after_doorbell() { return g_now = g_now + kDoorbell; }

class Autocork : public testing::Test {
 protected:
  explicit Autocork(bool dear = true, bool on = true, Duration ahead = Duration::s(10))
      : h({.device = {.doorbell_is_call = dear},
           .ahead = ahead,
           .autocork = on,
           .clock = after_doorbell}) {}

  Host h;
  Listening& l = h.listen(80);
  Peer peer{h, "11.0.0.7", 40'000, 80};
  Conn* c = nullptr;
  std::string wrote;

  void SetUp() override { c = accept(peer); }
  Conn* accept(Peer& p) {
    EXPECT_TRUE(p.connect());
    Conn* const conn = h.accept(l);
    VIREO_ASSERT(conn != nullptr);
    p.hear_all();
    g_now = h.now();
    tcp::set_nodelay(conn->tcb(), true, g_now);
    return conn;
  }
  /// A message, `pause` after the call before it has returned. @return segments that left.
  size_t send(Duration pause = kAtOnce, size_t bytes = kMessage) {
    return send_to(*c, peer, pause, bytes);
  }
  size_t send_to(Conn& to, Peer& p, Duration pause = kAtOnce, size_t bytes = kMessage,
                 bool more = false) {
    g_now = g_now + pause;
    const std::string text(bytes, static_cast<char>('a' + wrote.size() / kMessage % 26));
    const iovec v{const_cast<char*>(text.data()), text.size()};
    EXPECT_EQ(h.engine().tcp().send(*to.flow, {&v, 1}, more, g_now), bytes);
    if (&to == c) wrote += text;
    return hear(p);
  }
  /// All that was heard: the windows stay open.
  void acknowledge() {
    peer.say(kAck, peer.nxt, c->tcb().snd_seq(c->tcb().snd_nxt),
             {.options = peer.options(), .poll_now = false});
    poll();
  }
  size_t poll() {
    h.engine().poll(g_now);
    return hear(peer);
  }
  size_t hear(Peer& p) {
    h.link().step(g_now);
    const auto heard = p.hear_all();
    for (const Heard& s : heard)
      if (&p == &peer) read += s.data;
    return heard.size();
  }
  /// In haste, until a message waits. @return how many left by themselves.
  unsigned hurry(size_t bytes = kMessage) {
    for (unsigned i = 0; i < 2 * kHaste; ++i) {
      if (send(kAtOnce, bytes) == 0) return i;
      if (i % 8 == 0) acknowledge();
    }
    return 2 * kHaste;
  }
  std::string read;
};

TEST_F(Autocork, AShortBurstLeavesSegmentBySegment) {
  for (unsigned i = 0; i < kHaste; ++i) {
    EXPECT_EQ(send(), 1U) << i;
    if (i % 8 == 0) acknowledge();
  }
  EXPECT_EQ(read, wrote);
  EXPECT_EQ(h.stats().corks.get(), 0U);
}

TEST_F(Autocork, WhoeverPausesSendsSegmentBySegment) {
  for (unsigned i = 0; i < 2 * kHaste; ++i) {
    EXPECT_EQ(send(kDoorbell), 1U) << i;
    if (i % 8 == 0) acknowledge();
  }
  EXPECT_EQ(h.stats().corks.get(), 0U);
}

TEST_F(Autocork, InHasteTheyShareSegments) {
  const unsigned alone = hurry();
  EXPECT_LT(alone, kHaste + kHaste / 4);
  EXPECT_EQ(h.stats().corks.get(), 1U);
  size_t segments = 0;
  unsigned sends = 0;
  for (; segments == 0 && sends < 200; ++sends) segments += send();
  EXPECT_EQ(segments, 2U) << "three doorbells' time is over: all leaves";
  EXPECT_GT(sends, 30U);
  EXPECT_EQ(read, wrote);
}

TEST_F(Autocork, NoneWaitsLongerThanThreeDoorbells) {
  hurry();
  const Instant since = g_now;
  EXPECT_EQ(send(Duration::us(2)), 0U);
  EXPECT_EQ(send(Duration::us(2)), 0U);
  EXPECT_EQ(send(Duration::us(2)), 1U) << (g_now - since).ns();
  EXPECT_EQ(read, wrote);
}

TEST_F(Autocork, AfterAPauseTheyAreSegmentsOfTheirOwnAgain) {
  hurry();
  EXPECT_EQ(send(Duration::us(20)), 1U) << "with what waited";
  EXPECT_EQ(read, wrote);
  for (unsigned i = 0; i < 30; ++i) EXPECT_EQ(send(Duration::us(5)), 1U) << i;
  EXPECT_EQ(h.stats().corks.get(), 1U);
}

TEST_F(Autocork, AnyPollSendsWhatWaits) {
  hurry();
  EXPECT_LE(h.engine().next_deadline(), g_now) << "whoever sleeps must look";
  EXPECT_EQ(poll(), 1U);
  EXPECT_EQ(read, wrote);
  EXPECT_TRUE(h.engine().doorbells().corked_until().is_never());
}

TEST_F(Autocork, TheHelperIsToldUntilWhen) {
  EXPECT_TRUE(h.engine().doorbells().corked_until().is_never());
  EXPECT_FALSE(h.engine().doorbells().is_cork_watched());
  hurry();
  EXPECT_EQ(h.engine().doorbells().corked_until(), g_now + Duration::us(20));
  EXPECT_TRUE(h.engine().doorbells().is_cork_watched());
  EXPECT_FALSE(h.engine().doorbells().end_cork_watch()) << "something waits";
  EXPECT_TRUE(h.engine().doorbells().is_cork_watched());
  EXPECT_EQ(h.engine().poll_for_helper(g_now), false);
  EXPECT_EQ(hear(peer), 1U);
  EXPECT_EQ(read, wrote);
  EXPECT_TRUE(h.engine().doorbells().end_cork_watch());
  EXPECT_FALSE(h.engine().doorbells().is_cork_watched());
}

TEST_F(Autocork, WholeSegmentsAndTheRestShareADoorbell) {
  hurry();
  const uint64_t rung = h.link().stats(MemEnd::kA).doorbells;
  size_t segments = 0;
  while (segments == 0) segments = send(kAtOnce, 400);
  EXPECT_GT(segments, 1U);
  EXPECT_EQ(h.link().stats(MemEnd::kA).doorbells - rung, 1U);
  EXPECT_EQ(read, wrote);
}

TEST_F(Autocork, WhatTheProgramCorksItselfIsOnlyWhatFollows) {
  hurry();
  const std::string before = wrote;
  EXPECT_EQ(send_to(*c, peer, kAtOnce, kMessage, true), 1U);
  EXPECT_EQ(read, before);
  tcp::set_cork(c->tcb(), false, g_now);
  EXPECT_EQ(poll(), 0U) << "nobody asked for it";
  h.engine().tcp().progress(*c->flow, g_now);
  EXPECT_EQ(hear(peer), 1U);
  EXPECT_EQ(read, wrote);

  hurry();
  tcp::set_cork(c->tcb(), true, g_now);
  EXPECT_EQ(poll(), 1U);
  EXPECT_EQ(read, wrote);
}

TEST_F(Autocork, WhatElseTheProgramDoesDoesNotHideIt) {
  Peer other{h, "11.0.0.8", 40'000, 80};
  Conn* const second = accept(other);
  hurry();
  h.engine().tcp().close(*second->flow, UniqueFd(), false, g_now);
  EXPECT_LE(h.engine().next_deadline(), g_now);
  EXPECT_EQ(poll(), 1U);
  EXPECT_EQ(read, wrote);
}

TEST_F(Autocork, ALargeWriteGoesWithWhatWaits) {
  hurry();
  EXPECT_EQ(send(kAtOnce, 1000), 1U);
  EXPECT_EQ(read, wrote);
}

TEST_F(Autocork, CloseSendsWhatWaits) {
  hurry();
  h.close(*c);
  hear(peer);
  EXPECT_EQ(read, wrote);
}

TEST_F(Autocork, ResetForgetsIt) {
  hurry();
  h.close(*c, true);
  EXPECT_TRUE(h.engine().doorbells().corked_until().is_never());
  Peer other{h, "11.0.0.8", 40'000, 80};
  c = accept(other);
  for (unsigned i = 0; i < 33; ++i) EXPECT_EQ(send_to(*c, other), 1U) << i;
}

TEST_F(Autocork, AnotherConnectionsSendsLetItGo) {
  Peer other{h, "11.0.0.8", 40'000, 80};
  Conn* const second = accept(other);
  hurry();
  EXPECT_EQ(send_to(*second, other), 1U);
  EXPECT_EQ(hear(peer), 1U);
  EXPECT_EQ(read, wrote);
}

TEST_F(Autocork, NagleTakesOverWhereNodelayIsTakenBack) {
  hurry();
  tcp::set_nodelay(c->tcb(), false, g_now);
  EXPECT_EQ(poll(), 0U) << "a small one is in flight";
  peer.say(kAck, peer.nxt, c->tcb().snd_seq(c->tcb().snd_nxt), {.options = peer.options()});
  hear(peer);
  EXPECT_EQ(read, wrote);
}

// ---- of larger ones each is a segment, and the doorbell waits

TEST_F(Autocork, InHasteLargeOnesShareADoorbell) {
  const unsigned alone = hurry(kLarge);
  EXPECT_LT(alone, kHaste + kHaste / 4);
  acknowledge();
  const uint64_t rung = h.link().stats(MemEnd::kA).doorbells;
  size_t most = 0, segments = 0;
  unsigned batches = 0;
  for (unsigned i = 0; i < 100; ++i) {
    const size_t left = send(kAtOnce, kLarge);
    segments += left;
    most = std::max(most, left);
    if (left == 0) continue;
    ++batches;
    EXPECT_EQ(read, wrote);
    if (left != 1) acknowledge();
  }
  // What has nothing before it in flight leaves alone, and a look at what came, once in 32 KiB,
  // takes along what waits before that is so much.
  EXPECT_EQ(most, kMaxHeld + 1U);
  EXPECT_GT(segments, 80U);
  EXPECT_LT(batches, 20U);
  EXPECT_EQ(h.link().stats(MemEnd::kA).doorbells - rung, batches);
  poll();
  EXPECT_TRUE(h.engine().doorbells().corked_until().is_never());
  EXPECT_EQ(h.stats().corks.get(), 0U);
}

TEST_F(Autocork, InHasteWritesOfSomeSegmentsShareADoorbell) {
  constexpr size_t kSome = 4000;  // three segments
  c->tcb().cc.cwnd = 1 << 20;
  hurry(kSome);
  acknowledge();
  size_t segments = 0, most = 0;
  for (unsigned i = 0; i < 40; ++i) {
    const uint64_t rung = h.link().stats(MemEnd::kA).doorbells;
    const size_t left = send(kAtOnce, kSome);
    EXPECT_LE(h.link().stats(MemEnd::kA).doorbells - rung, 1U);
    segments += left;
    most = std::max(most, left);
    if (left > 3) acknowledge();
  }
  // Each takes as long as a doorbell by this clock, so that three wait and the fourth rings.
  EXPECT_EQ(most, 12U);
  EXPECT_GT(segments, 100U);
  EXPECT_EQ(read, wrote.substr(0, read.size()));
}

TEST_F(Autocork, WhatIsLongerThanMayWaitRings) {
  hurry(kLarge);
  acknowledge();
  c->tcb().cc.cwnd = 1 << 20;
  EXPECT_EQ(send(kAtOnce, (kMaxHeld + 1) * c->tcb().mss), kMaxHeld + 1U);
}

TEST_F(Autocork, WhoeverPausesRingsForEachLargeOne) {
  for (unsigned i = 0; i < 2 * kHaste; ++i) {
    EXPECT_EQ(send(kDoorbell, kLarge), 1U) << i;
    if (i % 8 == 0) acknowledge();
  }
  EXPECT_EQ(h.stats().shared_doorbells.get(), 0U);
}

TEST_F(Autocork, NoLargeOneWaitsLongerThanThreeDoorbells) {
  hurry(kLarge);
  // Each comes at once behind the one before, and time passes all the same.
  for (unsigned i = 1; i < 7; ++i) EXPECT_EQ(send(Duration::ns(900), kLarge), 0U) << i;
  EXPECT_EQ(send(Duration::ns(900), kLarge), 8U);
  EXPECT_EQ(read, wrote);
}

TEST_F(Autocork, AfterAPauseALargeOneRingsForWhatWaited) {
  hurry(kLarge);
  EXPECT_EQ(send(Duration::us(2), kLarge), 2U);
  for (unsigned i = 0; i < 30; ++i) {
    EXPECT_EQ(send(kAtOnce, kLarge), 1U) << i;
    if (i % 8 == 0) acknowledge();
  }
  EXPECT_EQ(read, wrote);
}

TEST_F(Autocork, AnInterruptCostsARowOfHaste) {
  c->tcb().cc.cwnd = 1 << 20;
  const auto go_on = [&](unsigned sends) {
    unsigned held = 0;
    for (unsigned i = 0; i < sends; ++i) {
      const size_t left = send(kAtOnce, kLarge);
      held += left == 0 ? 1 : 0;
      if (left > 1) acknowledge();
    }
    return held;
  };
  hurry(kLarge);
  EXPECT_GT(go_on(2 * kHaste), kHaste);
  EXPECT_GE(send(Duration::us(50), kLarge), 1U) << "with what waited";
  EXPECT_GT(go_on(20), 15U) << "still in haste";
  EXPECT_GE(send(Duration::us(50), kLarge), 1U);
  EXPECT_EQ(go_on(20), 0U) << "one such in a row of haste";
}

TEST_F(Autocork, APauseEndsTheHaste) {
  hurry(kLarge);
  for (unsigned i = 0; i < 2 * kHaste; ++i)
    if (send(kAtOnce, kLarge) != 0) acknowledge();
  EXPECT_GE(send(Duration::us(200), kLarge), 1U) << "with what waited";
  acknowledge();
  EXPECT_GE(hurry(kLarge), kHaste) << "and a whole row is asked for";
}

TEST_F(Autocork, TheHelperLeavesThemToWhoGoesOn) {
  hurry(kLarge);
  const Duration patience = h.engine().doorbells().corked_until() - g_now;
  EXPECT_EQ(send(Duration::ns(900), kLarge), 0U);
  EXPECT_EQ((h.engine().doorbells().corked_until() - g_now).ns(), patience.ns())
      << "of its silence";
}

TEST_F(Autocork, AnyPollRingsForThem) {
  hurry(kLarge);
  EXPECT_LE(h.engine().next_deadline(), g_now) << "whoever sleeps must look";
  EXPECT_EQ(poll(), 1U);
  EXPECT_EQ(read, wrote);
  EXPECT_TRUE(h.engine().doorbells().corked_until().is_never());
}

TEST_F(Autocork, ACallThatReceivesRingsForThem) {
  hurry(kLarge);
  std::byte room[16];
  h.engine().poll_for(*c->flow, iovec{room, sizeof room}, g_now);
  EXPECT_EQ(hear(peer), 1U);
}

TEST_F(Autocork, WhoSleepsRingsForThem) {
  hurry(kLarge);
  ASSERT_TRUE(h.engine().begin_sleep());
  EXPECT_EQ(hear(peer), 1U);
  h.engine().end_sleep();
}

TEST_F(Autocork, TheHelperIsToldUntilWhenTheyWait) {
  const Instant before = g_now;
  hurry(kLarge);
  EXPECT_GT(h.engine().doorbells().corked_until(), before);
  EXPECT_LE(h.engine().doorbells().corked_until(), g_now + Duration::us(20));
  EXPECT_FALSE(h.engine().doorbells().end_cork_watch()) << "something waits";
  h.engine().poll_for_helper(g_now);
  EXPECT_EQ(hear(peer), 1U);
  EXPECT_TRUE(h.engine().doorbells().end_cork_watch());
}

TEST_F(Autocork, SmallAndLargeOnesStayInOrder) {
  hurry(kLarge);
  EXPECT_EQ(send(), 0U) << "it waits for a doorbell as the one before, and for no company besides";
  EXPECT_EQ(h.stats().corks.get(), 0U);
  EXPECT_FALSE(h.engine().doorbells().corked_until().is_never());
  EXPECT_GE(send(kAtOnce, kLarge) + send(kAtOnce, kLarge) + poll(), 3U);
  EXPECT_EQ(read, wrote);
  EXPECT_TRUE(h.engine().doorbells().corked_until().is_never());
}

TEST_F(Autocork, CloseRingsForThem) {
  hurry(kLarge);
  h.close(*c);
  hear(peer);
  EXPECT_EQ(read, wrote);
}

TEST_F(Autocork, ResetRingsForThem) {
  hurry(kLarge);
  h.close(*c, true);
  hear(peer);
  EXPECT_EQ(read, wrote);
  EXPECT_TRUE(h.engine().doorbells().corked_until().is_never());
}

TEST_F(Autocork, AnotherConnectionsSendRingsForThem) {
  Peer other{h, "11.0.0.8", 40'000, 80};
  Conn* const second = accept(other);
  hurry(kLarge);
  EXPECT_EQ(send_to(*second, other), 1U);
  EXPECT_EQ(hear(peer), 1U);
  EXPECT_EQ(read, wrote);
}

TEST_F(Autocork, AForkWaitsForNoneOfThem) {
  for (const size_t bytes : {kMessage, kLarge}) {
    hurry(bytes);
    h.engine().doorbells().release_held(g_now);
    EXPECT_EQ(hear(peer), 1U) << bytes;
    EXPECT_EQ(read, wrote);
    EXPECT_TRUE(h.engine().doorbells().corked_until().is_never());
  }
}

class AutocorkInTime : public Autocork {
 protected:
  AutocorkInTime() : Autocork(true, true, Duration::ms(1)) {}
  /// The program is silent, until the helper has looked and looks no more.
  void be_silent() {
    {
      // By its grace it would look in ten seconds.
      const auto helper =
          Helper::start(h.engine(), h.mirror(), {.grace = Duration::s(10), .cpus = {}});
      ASSERT_TRUE(helper.has_value());
      const Instant end = Clock::now() + Duration::s(5);
      while (!h.engine().doorbells().corked_until().is_never() && Clock::now() < end)
        std::this_thread::yield();
      while (h.engine().doorbells().is_cork_watched() && Clock::now() < end)
        std::this_thread::yield();
    }
    EXPECT_TRUE(h.engine().doorbells().corked_until().is_never());
    EXPECT_FALSE(h.engine().doorbells().is_cork_watched()) << "it looks no more";
    g_now = std::max(g_now, Clock::now());
  }
};
TEST_F(AutocorkInTime, TheHelperSendsWhatASilentProgramLeft) {
  hurry();
  be_silent();
  EXPECT_EQ(hear(peer), 1U);
  EXPECT_EQ(read, wrote);
}
TEST_F(AutocorkInTime, TheHelperRingsForWhatASilentProgramLeft) {
  hurry(kLarge);
  be_silent();
  EXPECT_GE(hear(peer), 1U) << "a tail loss probe may follow";
  EXPECT_EQ(read.substr(0, wrote.size()), wrote);
}

class WhereDoorbellsAreCheap : public Autocork {
 protected:
  WhereDoorbellsAreCheap() : Autocork(false) {}
};
TEST_F(WhereDoorbellsAreCheap, NothingWaits) { EXPECT_EQ(hurry(), 2 * kHaste); }
TEST_F(WhereDoorbellsAreCheap, NoLargeOneWaits) { EXPECT_EQ(hurry(kLarge), 2 * kHaste); }

class AutocorkOff : public Autocork {
 protected:
  AutocorkOff() : Autocork(true, false) {}
};
TEST_F(AutocorkOff, NothingWaits) { EXPECT_EQ(hurry(), 2 * kHaste); }
TEST_F(AutocorkOff, NoLargeOneWaits) { EXPECT_EQ(hurry(kLarge), 2 * kHaste); }

}  // namespace
}  // namespace vireo::test
