#include "core/wheel.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace vireo {
namespace {

Instant at(int64_t ns) { return Instant::from_ns(ns); }
constexpr int64_t kTickNs = Wheel::kTick.ns();
constexpr uint64_t kAll = ~uint64_t{0};

struct Owner : WheelNode {
  int id = 0;
};

unsigned count(Wheel& w, Instant now, uint64_t work = kAll) {
  return w.advance(now, work, [](WheelNode&) {});
}

TEST(Wheel, NeverFiresEarlyAndAtMostATickLate) {
  for (int64_t delay :
       {1L, 4095L, 4096L, 4097L, 1'000'000L, 1'048'576L, 1'048'577L, 200'000'000L, 268'435'456L,
        300'000'000L, 68'719'476'736L, 70'000'000'000L, 7'200'000'000'000L}) {
    for (int64_t start : {0L, 1L, 123'456'789L, (int64_t{1} << 44) - 1}) {
      Wheel w(at(start));
      Owner n;
      const int64_t due = start + delay;
      w.arm(n, at(due));
      // Step as the helper does: from one next_deadline() to the next.
      int steps = 0;
      for (;;) {
        const Instant next = w.next_deadline();
        ASSERT_FALSE(next.is_never());
        ASSERT_LE(next.ns(), due + kTickNs);
        if (count(w, next - Duration::ns(1)) == 1) FAIL() << "fired before next_deadline()";
        if (count(w, next) == 1) {
          ASSERT_GE(next.ns(), due);
          ASSERT_LT(next.ns(), due + kTickNs);
          break;
        }
        ASSERT_LT(++steps, 5) << "one visit a level";
      }
      EXPECT_FALSE(n.is_linked());
      EXPECT_TRUE(w.next_deadline().is_never());
    }
  }
}

TEST(Wheel, BeyondTheSpanIsClampedAndLookedAtAgain) {
  Wheel w(at(0));
  Owner n;
  const int64_t due = int64_t{50} * 3600 * 1'000'000'000;  // 50 h, span 4.9 h
  w.arm(n, at(due));
  int steps = 0;
  for (;;) {
    const Instant next = w.next_deadline();
    ASSERT_FALSE(next.is_never());
    if (count(w, next) == 1) {
      EXPECT_GE(next.ns(), due);
      EXPECT_LT(next.ns(), due + kTickNs);
      break;
    }
    ASSERT_LT(++steps, 100);
  }
}

TEST(Wheel, LaterIsOnlyAStoreAndSoonerRelinks) {
  Wheel w(at(0));
  Owner n;
  w.arm(n, at(1'000'000));
  const Instant first = w.next_deadline();
  w.arm(n, at(500'000'000));
  EXPECT_EQ(w.next_deadline(), first) << "lazy: still at its old place";
  EXPECT_EQ(count(w, at(2'000'000)), 0U);
  EXPECT_TRUE(n.is_linked());
  w.arm(n, at(3'000'000));
  EXPECT_LE(w.next_deadline().ns(), 3'000'000 + kTickNs);
  EXPECT_EQ(count(w, at(3'000'000 + kTickNs)), 1U);
}

TEST(Wheel, NeverDisarmsLazilyAndCancelAtOnce) {
  Wheel w(at(0));
  Owner n;
  w.arm(n, Instant::never());
  EXPECT_FALSE(n.is_linked());
  w.arm(n, at(1'000'000));
  w.arm(n, Instant::never());
  EXPECT_EQ(count(w, at(5'000'000)), 0U);
  EXPECT_FALSE(n.is_linked());
  w.arm(n, at(6'000'000));
  w.cancel(n);
  EXPECT_FALSE(n.is_linked());
  EXPECT_TRUE(w.next_deadline().is_never());
  w.cancel(n);  // twice is harmless
}

TEST(Wheel, OverdueFiresAtTheNextAdvanceButOncePerCall) {
  Wheel w(at(10'000'000));
  Owner n;
  w.arm(n, at(5));
  EXPECT_LE(w.next_deadline(), at(10'000'000));
  int calls = 0;
  w.advance(at(10'000'000), kAll, [&](WheelNode& x) {
    ++calls;
    w.arm(x, at(5));  // a timer that is always late
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(count(w, at(10'000'000)), 1U);
}

TEST(Wheel, WorkIsCappedAndTheRestComesNext) {
  Wheel w(at(0));
  std::deque<Owner> nodes(1000);
  for (auto& n : nodes) w.arm(n, at(1'000'000));
  unsigned fired = 0;
  for (unsigned calls = 1; fired < 1000; ++calls) {
    const unsigned f = count(w, at(2'000'000), 32 * Wheel::kLooksPerFired);
    ASSERT_LE(f, 32U);
    ASSERT_GT(f, 0U);
    fired += f;
    ASSERT_TRUE(fired == 1000 || w.next_deadline() <= at(2'000'000));
    ASSERT_LE(calls, 32U);
  }
  EXPECT_TRUE(w.next_deadline().is_never());
}

TEST(Wheel, HandlersMayCancelAndArmOthersThatAreDueToo) {
  Wheel w(at(0));
  Owner a;
  Owner b;
  Owner c;
  for (Owner* o : {&a, &b, &c}) w.arm(*o, at(1000));
  std::vector<WheelNode*> fired;
  w.advance(at(1'000'000), kAll, [&](WheelNode& n) {
    fired.push_back(&n);
    if (&n == &a) {
      w.cancel(b);
      w.arm(c, at(50'000'000));
    }
  });
  EXPECT_EQ(fired, std::vector<WheelNode*>{&a});
  EXPECT_FALSE(b.is_linked());
  EXPECT_EQ(count(w, at(50'004'096)), 1U);
}

TEST(Wheel, TellsHowLongWhatIsLeftHasWaited) {
  Wheel w(at(0));
  Owner first[3], later[3];
  for (Owner& n : first) w.arm(n, at(1'000'000));
  for (Owner& n : later) w.arm(n, at(1'040'000));
  EXPECT_EQ(count(w, at(1'100'000), 1), 1U);
  const Duration waited = w.backlog();
  EXPECT_GT(waited, Duration::ns(1'100'000 - 1'000'000 - 2 * kTickNs));
  EXPECT_LE(waited, Duration::ns(1'100'000 - 1'000'000));
  EXPECT_EQ(count(w, at(1'100'000), 2 * Wheel::kLooksPerFired), 2U);
  EXPECT_LE(w.backlog(), Duration::ns(1'100'000 - 1'040'000)) << "of the oldest there is";
  EXPECT_EQ(count(w, at(1'300'000)), 3U);
  EXPECT_EQ(w.backlog(), Duration{});
}

TEST(Wheel, WhatIsPlacedAnewHoldsUpLessThanWhatFires) {
  Wheel w(at(0));
  std::vector<Owner> later(80), due(4);
  // One slot of 268 ms: those that come later stand before those that are due as it begins.
  for (Owner& n : later) w.arm(n, at(500'000'000));
  for (Owner& n : due) w.arm(n, at(269'000'000));
  const Instant begins = w.next_deadline();
  EXPECT_EQ(count(w, begins, 32), 0U);  // of them placed anew
  EXPECT_EQ(count(w, at(270'000'000), 32), 0U);
  EXPECT_EQ(count(w, at(270'000'000), 32), 2U);  // 16, and then 16 worth of firing
  EXPECT_EQ(count(w, at(270'000'000), 32), 2U);
  for (Owner& n : later) w.cancel(n);
}

/// Random operations against a map of deadlines. Little `work` exercises the cap.
void run_model(unsigned seed, uint64_t work) {
  std::mt19937_64 rng(seed);
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(rng() % n); };
  int64_t now = below(int64_t{1} << 45);
  Wheel w(at(now));
  std::deque<Owner> nodes(64);
  std::map<WheelNode*, int64_t> model;  // armed only
  const auto delay = [&] { return below(uint64_t{1} << (1 + below(46))) - 5000; };
  for (int op = 0; op < 20000; ++op) {
    Owner& n = nodes[static_cast<size_t>(below(nodes.size()))];
    switch (below(8)) {
      case 0:
      case 1:
      case 2: {
        const int64_t d = std::max<int64_t>(0, now + delay());
        w.arm(n, at(d));
        model[&n] = d;
        break;
      }
      case 3:
        w.cancel(n);
        model.erase(&n);
        break;
      case 4:
        w.arm(n, Instant::never());
        model.erase(&n);
        break;
      default: {
        // Mostly short steps, sometimes a jump over hours, sometimes exactly to the next deadline.
        const int64_t kind = below(10);
        if (kind == 0)
          now += below(uint64_t{1} << 45);
        else if (kind < 4 && !w.next_deadline().is_never())
          now = std::max(now, w.next_deadline().ns());
        else
          now += below(uint64_t{1} << (1 + below(30)));
        std::set<WheelNode*> fired;
        unsigned last = 1;
        for (int guard = 0; last != 0 || w.next_deadline() <= at(now); ++guard) {
          ASSERT_LT(guard, 2000);
          last = w.advance(at(now), work, [&](WheelNode& x) {
            ASSERT_TRUE(model.contains(&x)) << "fired what was not armed";
            ASSERT_LE(model[&x], now) << "early";
            ASSERT_TRUE(fired.insert(&x).second);
            model.erase(&x);
          });
          if (testing::Test::HasFatalFailure()) return;
        }
        const int64_t whole = now / kTickNs * kTickNs;
        for (const auto& [node, due] : model) ASSERT_GT(due, whole) << "a tick late, seed " << seed;
        // The promise to the helper: never later than the earliest deadline, rounded up to a tick.
        if (!model.empty()) {
          int64_t first = INT64_MAX;
          for (const auto& [node, due] : model) first = std::min(first, due);
          ASSERT_LE(w.next_deadline().ns(), (first + kTickNs - 1) / kTickNs * kTickNs);
          ASSERT_GT(w.next_deadline().ns(), now - kTickNs);
        }
      }
    }
  }
  for (auto& n : nodes) w.cancel(n);
  EXPECT_TRUE(w.next_deadline().is_never());
}

TEST(Wheel, EqualsTheModel) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    run_model(seed, kAll);
    if (HasFatalFailure()) return;
    run_model(seed + 100, Wheel::kLooksPerFired * (1 + seed));
    if (HasFatalFailure()) return;
    run_model(seed + 200, 1 + seed % 8);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace vireo
