// A doorbell is the device's own call, and the dearest thing on the way out: what one turn answers
// leaves with one of them.
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr unsigned kPeers = 40;  // 32 leave together

class Doorbells : public testing::Test {
 protected:
  Host h;
  Listening& l = h.listen(80, 64);
  std::vector<std::unique_ptr<Peer>> peers = make_peers(h, kPeers);

  uint64_t rung() { return h.link().stats(MemEnd::kA).doorbells; }
  /// @return how many were rung in one turn.
  uint64_t turn() {
    const uint64_t before = rung();
    h.poll();
    return rung() - before;
  }
};

TEST_F(Doorbells, OneForManyWhoKnock) {
  for (auto& p : peers)
    p->say(kSyn, p->iss, Seq32(0), {.options = p->syn_options(), .poll_now = false});
  EXPECT_EQ(turn(), 2u);
  for (auto& p : peers) EXPECT_EQ(p->hear_all().size(), 1u);
}

TEST_F(Doorbells, OneForManyWhoAreAcknowledged) {
  for (auto& p : peers) {
    ASSERT_TRUE(p->connect());
    ASSERT_NE(h.accept(l), nullptr);
    p->hear_all();
  }
  for (auto& p : peers)
    p->say(kAck | kPsh, p->nxt, p->ack,
           {.data = "request", .options = p->options(), .poll_now = false});
  EXPECT_EQ(turn(), 2u);
  for (auto& p : peers) EXPECT_EQ(p->hear_all().size(), 1u);
}

TEST_F(Doorbells, OneForEachThatComesAlone) {
  for (auto& p : peers) {
    p->say(kSyn, p->iss, Seq32(0), {.options = p->syn_options(), .poll_now = false});
    EXPECT_EQ(turn(), 1u);
    EXPECT_EQ(p->hear_all().size(), 1u);
  }
}

// Where a doorbell is a system call.

constexpr Duration kDoorbell = Duration::us(2);
constexpr Duration kNextAnswer = Duration::ns(500);
constexpr unsigned kTrusted = 64;  ///< answers without delay
constexpr unsigned kMaxHeld = 20;  ///< frames

Instant g_now;  ///< of the program, whom a doorbell costs time
Instant after_doorbell() { return g_now = g_now + kDoorbell; }

class DearDoorbells : public testing::Test {
 protected:
  explicit DearDoorbells(bool dear = true, bool on = true)
      : h({.device = {.doorbell_is_call = dear}, .autocork = on, .clock = after_doorbell}) {}

  Host h;
  Listening& l = h.listen(80, 64);
  std::vector<std::unique_ptr<Peer>> peers = make_peers(h, kPeers);
  std::vector<Conn*> conns;
  size_t next = 0;

  void SetUp() override {
    for (auto& p : peers) {
      ASSERT_TRUE(p->connect());
      conns.push_back(h.accept(l));
      ASSERT_NE(conns.back(), nullptr);
    }
    g_now = h.now();
    hear();
  }
  uint64_t rung() { return h.link().stats(MemEnd::kA).doorbells; }
  /// Segments of all that have left.
  size_t hear() {
    h.link().step(g_now);
    size_t n = 0;
    for (auto& p : peers) n += p->hear_all().size();
    return n;
  }
  /// A wait of the program's that tells it of so many events.
  void wait(unsigned events) {
    h.engine().doorbells().tell(0);
    h.engine().poll_to_return(g_now, PollOf::kWait);
    h.engine().doorbells().tell(events);
    next = 0;
  }
  /// A byte on each of the next `n` since the last wait.
  void answer(unsigned n, Duration pause = kNextAnswer) {
    for (unsigned i = 0; i < n; ++i) {
      g_now = g_now + pause;
      const iovec v{const_cast<char*>("a"), 1};
      ASSERT_EQ(h.engine().tcp().send(*conns[next++]->flow, {&v, 1}, false, g_now), 1U);
    }
  }
  /// The first `n` are heard.
  void acknowledge(unsigned n) {
    for (unsigned i = 0; i < n; ++i)
      peers[i]->say(kAck, peers[i]->nxt, conns[i]->tcb().snd_seq(conns[i]->tcb().snd_nxt),
                    {.options = peers[i]->options(), .poll_now = false});
    wait(0);
    hear();
  }
  /// That peer says what is to be acknowledged at once.
  void surprise(unsigned i) {
    peers[i]->say(kAck | kPsh, peers[i]->nxt + 1000, peers[i]->ack,
                  {.data = "out of order", .options = peers[i]->options(), .poll_now = false});
  }
  /// @return doorbells of `n` answers to one wait, and of the wait behind them.
  uint64_t round(unsigned n, Duration pause = kNextAnswer) {
    wait(n);
    const uint64_t before = rung();
    answer(n, pause);
    wait(0);
    const uint64_t n_rung = rung() - before;
    EXPECT_EQ(hear(), n);
    acknowledge(n);
    return n_rung;
  }
  void earn_trust() {
    for (unsigned done = 0; done < kTrusted; done += 4) EXPECT_LE(round(4), 4U);
  }
};

TEST_F(DearDoorbells, AnswersToOneWaitShareThem) {
  EXPECT_EQ(round(4), 4U) << "not yet";
  earn_trust();
  EXPECT_EQ(round(4), 2U) << "the first rings, the wait for the others";
  const uint64_t shared = h.stats().shared_doorbells.get();
  EXPECT_EQ(round(12), 2U);
  EXPECT_EQ(h.stats().shared_doorbells.get() - shared, 11U);
}

TEST_F(DearDoorbells, TheFirstAnswerLeavesAtOnce) {
  earn_trust();
  wait(4);
  answer(1);
  EXPECT_EQ(hear(), 1U);
}

TEST_F(DearDoorbells, WhatIsAnsweredAloneLeavesAtOnce) {
  earn_trust();
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(round(1), 1U);
  wait(1);
  answer(4);
  EXPECT_EQ(hear(), 4U) << "one event, several connections: nothing says that more is to come";
}

TEST_F(DearDoorbells, ManyRing) {
  earn_trust();
  wait(kPeers);
  answer(1);
  EXPECT_EQ(hear(), 1U);
  answer(kMaxHeld);
  EXPECT_EQ(hear(), 0U);
  answer(1);
  EXPECT_EQ(hear(), kMaxHeld + 1U);
}

TEST_F(DearDoorbells, ALongAnswerRings) {
  earn_trust();
  wait(4);
  answer(1);
  EXPECT_EQ(hear(), 1U);
  Conn& c = *conns[1];
  c.tcb().cc.cwnd = 1 << 20;
  const std::string bytes((kMaxHeld + 1) * c.tcb().mss, 'x');
  const iovec v{const_cast<char*>(bytes.data()), bytes.size()};
  ASSERT_EQ(h.engine().tcp().send(*c.flow, {&v, 1}, false, g_now), bytes.size());
  EXPECT_EQ(hear(), kMaxHeld + 1U);
}

TEST_F(DearDoorbells, TimeRings) {
  earn_trust();
  wait(kPeers);
  answer(3);
  EXPECT_EQ(hear(), 1U);
  answer(1, kDoorbell * 9);
  EXPECT_EQ(hear(), 3U);
}

TEST_F(DearDoorbells, ACallAmidTheAnswersDoesNotRingBeforeTime) {
  earn_trust();
  wait(8);
  answer(3);
  EXPECT_EQ(hear(), 1U);
  h.engine().poll_to_return(g_now, PollOf::kCall);
  EXPECT_EQ(hear(), 0U);
  g_now = g_now + kDoorbell * 9;
  h.engine().poll_to_return(g_now, PollOf::kCall);
  EXPECT_EQ(hear(), 2U);
}

TEST_F(DearDoorbells, ABlockedCallRings) {
  earn_trust();
  wait(8);
  answer(3);
  EXPECT_EQ(hear(), 1U);
  std::byte room[16];
  h.engine().poll_for(*conns[5]->flow, iovec{room, sizeof room}, g_now);
  EXPECT_EQ(hear(), 2U);
}

TEST_F(DearDoorbells, WhoWaitsElsewhereEndsIt) {
  earn_trust();
  wait(8);
  answer(2);
  h.engine().doorbells().tell(0);  // another thread of the program begins a wait
  answer(1);
  EXPECT_EQ(hear(), 3U);
}

TEST_F(DearDoorbells, WhoFallsSilentAmidThemIsNotTrusted) {
  earn_trust();
  wait(8);
  answer(3);
  EXPECT_EQ(hear(), 1U);
  g_now = g_now + Duration::ms(2);
  h.engine().poll_for_helper(g_now);
  EXPECT_EQ(hear(), 2U);
  acknowledge(3);
  EXPECT_EQ(round(4), 4U);
}

TEST_F(DearDoorbells, SlowAnswersRingEach) {
  for (unsigned i = 0; i < kTrusted; ++i) EXPECT_EQ(round(4, Duration::us(30)), 4U);
}

TEST_F(DearDoorbells, TwoSendsForEachEventAndNoMore) {
  earn_trust();
  wait(2);
  answer(1);
  EXPECT_EQ(hear(), 1U);
  answer(3);
  EXPECT_EQ(hear(), 0U);
  answer(1);
  EXPECT_EQ(hear(), 4U) << "as if nothing had been told";
  answer(2);
  EXPECT_EQ(hear(), 2U);
}

TEST_F(DearDoorbells, NothingWaitsWhileAnotherThreadSleeps) {
  earn_trust();
  wait(4);
  answer(2);
  ASSERT_TRUE(h.engine().begin_sleep());
  EXPECT_EQ(hear(), 2U);
  answer(2);
  EXPECT_EQ(hear(), 2U);
  h.engine().end_sleep();
}

TEST_F(DearDoorbells, AResetRings) {
  earn_trust();
  wait(4);
  answer(2);
  EXPECT_EQ(hear(), 1U);
  h.engine().tcp().close(*conns[2]->flow, UniqueFd(), true, g_now);
  EXPECT_EQ(hear(), 2U);
}

TEST_F(DearDoorbells, ACallThatFindsItsMessageAtOnceRings) {
  Peer& peer = *peers[1];
  Conn& conn = *conns[1];
  // What comes next in order on conns[1], and acknowledges all.
  const auto say = [&] {
    peer.say(kAck | kPsh, peer.nxt, conn.tcb().snd_seq(conn.tcb().snd_end),
             {.data = "b", .options = peer.options(), .poll_now = false});
    peer.nxt = peer.nxt + 1;
  };
  for (int i = 0; i < 20; ++i) {  // no ACK goes at once any more
    say();
    wait(0);
    h.read(conn);
    next = 1;
    answer(1);
    hear();
  }
  say();
  wait(0);
  h.read(conn);
  earn_trust();
  wait(8);
  answer(3);
  EXPECT_EQ(hear(), 1U);
  say();
  std::byte room[16];
  EXPECT_EQ(h.engine().poll_for(*conn.flow, iovec{room, sizeof room}, g_now).bytes, 1U)
      << "straight to the program";
  EXPECT_EQ(hear(), 2U);
}

TEST_F(DearDoorbells, AFarewellIsAnAnswer) {
  earn_trust();
  wait(4);
  answer(1);
  for (unsigned i = 1; i < 4; ++i)
    h.engine().tcp().close(*conns[i]->flow, UniqueFd(), false, g_now);
  EXPECT_EQ(hear(), 1U);
  wait(0);
  EXPECT_EQ(hear(), 3U);
}

// What a program does after a farewell: the next connection.
TEST_F(DearDoorbells, ASynIsAnAnswer) {
  Conn asks[3];
  Peer server(h, "11.0.0.9", 80, 50'000);
  const auto route = h.engine().next_hops().route({.dst = server.here.addr, .src = {}});
  ASSERT_TRUE(route);
  const auto connect = [&](unsigned i) {
    const Endpoint from{server.there.addr, static_cast<uint16_t>(50'000 + i), 0};
    const auto f = h.engine().tcp().connect(*route, from, server.here, {{.mss = 1460}}, {},
                                            &asks[i], asks[i].stats, g_now);
    ASSERT_TRUE(f);
    asks[i].flow = *f;
  };
  uint64_t before = rung();
  connect(0);
  EXPECT_EQ(rung() - before, 1U);
  earn_trust();
  wait(4);
  answer(1);
  before = rung();
  connect(1);
  connect(2);
  EXPECT_EQ(rung() - before, 0U);
  wait(0);
  EXPECT_EQ(rung() - before, 1U);
  for (Conn& c : asks) h.engine().tcp().close(*c.flow, UniqueFd(), true, g_now);
}

// A call amid the answers finds segments that are to be acknowledged at once, and who knocks.
TEST_F(DearDoorbells, WhatSuchACallSaysLeavesWithThem) {
  const auto surprise_all = [&] {
    for (unsigned i = 4; i < 7; ++i) surprise(i);
    h.engine().poll_to_return(g_now, PollOf::kCall);
  };
  wait(8);
  answer(2);
  hear();
  surprise_all();
  EXPECT_EQ(hear(), 3U) << "not yet";
  acknowledge(2);
  earn_trust();
  wait(8);
  answer(2);
  EXPECT_EQ(hear(), 1U);
  const uint64_t before = rung();
  surprise_all();
  Peer knocks(h, "11.0.0.9", 40'000, 80);
  knocks.say(kSyn, knocks.iss, Seq32(0), {.options = knocks.syn_options(), .poll_now = false});
  knocks.say(kSyn, knocks.iss, Seq32(0), {.options = knocks.syn_options(), .poll_now = false});
  h.engine().poll_to_return(g_now, PollOf::kCall);
  EXPECT_EQ(hear(), 0U);
  EXPECT_EQ(rung(), before);
  wait(0);
  EXPECT_EQ(hear(), 4U);
  EXPECT_EQ(knocks.hear_all().size(), 2U);
  EXPECT_EQ(rung() - before, 1U);
}

TEST_F(DearDoorbells, WhatACallSaysAfterAPauseRings) {
  earn_trust();
  wait(8);
  answer(1);
  EXPECT_EQ(hear(), 1U);
  g_now = g_now + Duration::us(100);
  surprise(5);
  h.engine().poll_to_return(g_now, PollOf::kCall);
  EXPECT_EQ(hear(), 1U);
}

TEST_F(DearDoorbells, WhatSuchACallSaysRingsWhereAnotherThreadSleeps) {
  earn_trust();
  wait(8);
  answer(2);
  ASSERT_TRUE(h.engine().begin_sleep());
  hear();
  surprise(5);
  h.engine().poll_to_return(g_now, PollOf::kCall);
  EXPECT_EQ(hear(), 1U);
  h.engine().end_sleep();
}

class CheapDoorbells : public DearDoorbells {
 protected:
  CheapDoorbells() : DearDoorbells(false) {}
};
TEST_F(CheapDoorbells, NothingWaits) {
  for (unsigned i = 0; i < kTrusted; ++i) EXPECT_EQ(round(4), 4U);
}

class DearDoorbellsOff : public DearDoorbells {
 protected:
  DearDoorbellsOff() : DearDoorbells(true, false) {}
};
TEST_F(DearDoorbellsOff, NothingWaits) {
  for (unsigned i = 0; i < kTrusted; ++i) EXPECT_EQ(round(4), 4U);
}

}  // namespace
}  // namespace vireo::test
