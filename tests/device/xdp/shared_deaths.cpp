// A member that shares a port is killed or stopped: what it had goes to the other sharers, and its
// half-made changes are finished or undone.
#include <sys/wait.h>

#include <thread>

#include "child.h"
#include "share_lab.h"
#include "stopped_holder.h"

namespace vireo::test {
namespace {

constexpr IpProto kTcp = IpProto::kTcp;
constexpr unsigned kSlotA = GroupLab::kSlotA, kSlotB = GroupLab::kSlotB, kSlotC = GroupLab::kSlotC;
constexpr uint64_t kBitA = uint64_t{1} << kSlotA, kBitB = uint64_t{1} << kSlotB;

class SharedDeaths : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  }
};

TEST_F(SharedDeaths, TheShareOfAKilledProcessGoesToTheOthers) {
  for (const bool v6 : {false, true})
    for (const bool is_first : {true, false}) {
      ShareLab lab;
      ASSERT_TRUE(lab.is_open && lab.add_c());
      for (xdp::Steering* s : {lab.a.get(), lab.c.get()}) ShareLab::accept(*s, true);
      const Flow flow{kTcp, v6};
      const FlowKey key = flow.key(Kind::kWild);
      const auto frames = syns(flow);
      auto kit = lab.a->kit();
      ASSERT_TRUE(kit);
      ASSERT_TRUE(is_first || lab.a->share(key));
      Child b([&](Child& self) {
        auto made = xdp::Steering::join(std::move(*kit), {kSlotB});
        const BareSocket socket(lab.memory, lab.veth.index(0), lab.socket_a.get());
        const bool ok = made && socket.is_open() && (*made)->set_socket(QueueId(0), socket.fd()) &&
                        (*made)->share(key);
        if (ok) ShareLab::accept(**made, true);
        self.report(ok);
        self.wait();
        return 0;
      });
      *kit = {};
      ASSERT_TRUE(b.hear<bool>());
      ASSERT_TRUE(!is_first || lab.a->share(key));
      ASSERT_TRUE(lab.c->share(key));
      EXPECT_EQ(lab.a->holder_of(key).value_or(99), is_first ? kSlotB : kSlotA);
      const Outcomes three = lab.outcomes(frames, 50);
      EXPECT_TRUE(three.is_even({Who::kA, Who::kC, Who::kNobody})) << three;  // whom we do not see
      b.kill_now();
      lab.dead.insert(kSlotB);
      const Outcomes dying = lab.outcomes(syns(flow, kManySyns, 20000));
      EXPECT_TRUE(dying.is_even({Who::kA, Who::kC, Who::kKernel})) << dying;
      lab.a->remove_all_of(kSlotB);
      const Outcomes two = lab.outcomes(frames);
      EXPECT_TRUE(two.is_even({Who::kA, Who::kC})) << two;
      EXPECT_EQ(two.lost(three, Who::kA) + two.lost(three, Who::kC), 0U);
      EXPECT_EQ(lab.outcome(flow.frame()), Who::kA);
      EXPECT_TRUE(leads(*lab.a, key));
      lab.a->remove_all_of(kSlotB);  // a second burial finds nothing
      EXPECT_EQ(lab.outcomes(frames), two);
      lab.a->remove_all_of(kSlotC);
      lab.a->remove_all_of(kSlotA);
      lab.expect_empty();
    }
}

/// What B writes of a change before it dies in the lock.
struct HalfMade {
  const char* name;
  void (*write)(const GroupLab& lab, const FlowKey& shared, const FlowKey& fresh);
};

uint64_t value_of(const GroupLab& lab, const FlowKey& key) {
  return lab.tables().find(*xdp::rule_of(key)).value_or(0);
}

unsigned end_of(const GroupLab& lab, const FlowKey& key) {
  return static_cast<uint8_t>(value_of(lab, key));
}

/// A, the first, and B share `shared`.
const HalfMade kHalfMade[] = {
    {"a_first_one_without_its_rule",
     [](const GroupLab& lab, const FlowKey&, const FlowKey&) {
       const xdp::SteerPorts ports = lab.mapped();
       ports.counts().sharers[9] = kBitB;
       std::ranges::fill(std::span(ports.arrays().sharers[9]).first(20), uint8_t{kSlotB + 1});
     }},
    {"a_first_one_not_counted",
     [](const GroupLab& lab, const FlowKey&, const FlowKey& fresh) {
       const xdp::SteerPorts ports = lab.mapped();
       ports.counts().sharers[9] = kBitB;
       (void)lab.tables().insert(*xdp::rule_of(fresh), STEER_SHARED | STEER_VALUE(kSlotB, 9));
     }},
    {"a_further_one_without_buckets",
     [](const GroupLab& lab, const FlowKey& shared, const FlowKey&) {
       std::ranges::fill(lab.mapped().arrays().sharers[end_of(lab, shared)], uint8_t{kSlotA + 1});
     }},
    {"one_that_left_with_its_buckets",
     [](const GroupLab& lab, const FlowKey& shared, const FlowKey&) {
       lab.mapped().counts().sharers[end_of(lab, shared)] = kBitA;
     }},
    {"a_first_one_that_left",
     [](const GroupLab& lab, const FlowKey& shared, const FlowKey&) {
       const unsigned end = end_of(lab, shared);
       lab.tables().replace(*xdp::rule_of(shared), STEER_SHARED | STEER_VALUE(kSlotB, end));
       lab.mapped().counts().sharers[end] = kBitA;
     }},
    {"buckets_half_dealt",
     [](const GroupLab& lab, const FlowKey& shared, const FlowKey&) {
       const xdp::SteerPorts ports = lab.mapped();
       const std::span<uint8_t> buckets(ports.arrays().sharers[end_of(lab, shared)]);
       std::ranges::fill(buckets.first(20), uint8_t{0});
       std::ranges::fill(buckets.subspan(20, 20), uint8_t{40});
     }},
    {"a_last_one_whose_rule_is_gone",
     [](const GroupLab& lab, const FlowKey& shared, const FlowKey&) {
       lab.mapped().counts().sharers[end_of(lab, shared)] = kBitB;
       lab.tables().erase(*xdp::rule_of(shared));
     }},
};

class WhoDiesInTheLock : public ::testing::TestWithParam<HalfMade> {};

TEST_P(WhoDiesInTheLock, LeavesWhatIsPutRight) {
  if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  ShareLab lab;
  ASSERT_TRUE(lab.is_open);
  ShareLab::accept(*lab.a, true);
  const Flow flow{kTcp, false}, fresh{kTcp, false, 81}, other{kTcp, true, 82};
  const FlowKey key = flow.key(Kind::kWild), fresh_key = fresh.key(Kind::kWild);
  ASSERT_TRUE(lab.a->share(key));
  auto kit = lab.a->kit();
  ASSERT_TRUE(kit);
  Child b([&](Child& self) {
    auto made = xdp::Steering::join(std::move(*kit), {kSlotB});
    bool ok = made && (*made)->share(key);
    if (ok) ShareLab::accept(**made, true);
    const xdp::SteerPorts ports = lab.mapped();
    ok = ok && ports.counts().lock.try_lock(kSlotB);
    GetParam().write(lab, key, fresh_key);
    self.report(ok);
    self.wait();
    return 0;
  });
  *kit = {};
  ASSERT_TRUE(b.hear<bool>());
  b.kill_now();
  lab.dead.insert(kSlotB);

  // Whoever is the next to change something, before B is buried.
  const bool is_kept = value_of(lab, key) != 0;
  const auto next = lab.a->share(other.key(Kind::kLocal));
  ASSERT_TRUE(next) << next.error().where;
  EXPECT_EQ(lab.ports.counts().is_stale, 0U);
  const uint64_t fresh_value = value_of(lab, fresh_key);
  EXPECT_EQ(lab.ports.counts().listeners[0], (is_kept ? 1U : 0U) + (fresh_value != 0 ? 1U : 0U));
  EXPECT_EQ(lab.ports.counts().listeners[1], 1U);
  unsigned ends = 0;
  for (const auto& members : lab.ports.counts().sharers) ends += members != 0;
  EXPECT_EQ(ends, (is_kept ? 2U : 1U) + (fresh_value != 0 ? 1U : 0U));
  if (is_kept) {
    EXPECT_EQ(lab.a->holder_of(key).value_or(99), kSlotA);
    const auto& buckets = lab.ports.arrays().sharers[end_of(lab, key)];
    const auto of = [&](unsigned slot) { return std::ranges::count(buckets, slot + 1); };
    const bool b_is_in = (lab.ports.counts().sharers[end_of(lab, key)] & kBitB) != 0;
    EXPECT_EQ(of(kSlotA), b_is_in ? 32 : 64);
    EXPECT_EQ(of(kSlotB), b_is_in ? 32 : 0);
  }

  lab.a->remove_all_of(kSlotB);
  if (is_kept) {
    EXPECT_EQ(lab.outcomes(syns(flow)).of(Who::kA), kManySyns);
    EXPECT_EQ(lab.outcome(flow.frame()), Who::kA);
  } else {
    EXPECT_EQ(lab.outcome(flow.frame()), Who::kKernel);
  }
  EXPECT_EQ(lab.outcome(fresh.frame()), Who::kKernel);
  EXPECT_EQ(lab.outcomes(syns(other, 64)).of(Who::kA), 64U);
  const auto again = lab.a->share(fresh_key);
  ASSERT_TRUE(again);
  EXPECT_EQ(lab.outcomes(syns(fresh, 64)).of(Who::kA), 64U);
  lab.a->remove_all_of(kSlotA);
  lab.expect_empty();
}

INSTANTIATE_TEST_SUITE_P(SharedDeaths, WhoDiesInTheLock, ::testing::ValuesIn(kHalfMade),
                         [](const auto& i) { return std::string(i.param.name); });

TEST_F(SharedDeaths, AStoppedHolderKeepsNobodyInAShare) {
  ShareLab lab;
  ASSERT_TRUE(lab.add_all());
  const Flow flow{kTcp, false}, last{kTcp, true, 81};
  const FlowKey key = flow.key(Kind::kWild), last_key = last.key(Kind::kLocal);
  const auto of_b = lab.b->share(key), of_a = lab.a->share(key),
             of_b_alone = lab.b->share(last_key);
  ASSERT_TRUE(of_a && of_b && of_b_alone);
  constexpr unsigned kSlotD = 5;
  StoppedHolder d(lab, kSlotD);
  ASSERT_TRUE(d.is_stopped());

  const auto refused = lab.c->share(key);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ETIMEDOUT);
  lab.b->remove(*of_b);
  EXPECT_TRUE(lab.ports.is_stale());
  EXPECT_EQ(lab.outcomes(syns(flow)).of(Who::kA), kManySyns);
  EXPECT_EQ(lab.outcome(flow.frame()), Who::kA);
  lab.b->remove(*of_b_alone);
  EXPECT_EQ(lab.outcome(last.frame()), Who::kKernel);
  EXPECT_EQ(lab.outcomes(syns(last, 64)).of(Who::kKernel), 64U);

  ASSERT_TRUE(d.release());
  const auto of_c = lab.c->share(key);
  ASSERT_TRUE(of_c) << of_c.error().where;
  EXPECT_FALSE(lab.ports.is_stale());
  EXPECT_TRUE(lab.outcomes(syns(flow)).is_even({Who::kA, Who::kC}));
  const auto again = lab.a->share(last_key);
  ASSERT_TRUE(again);
  EXPECT_EQ(lab.outcomes(syns(last, 64)).of(Who::kA), 64U);
  lab.a->remove(*again);
  lab.a->remove(*of_a);
  lab.c->remove(*of_c);
  lab.expect_empty();
  EXPECT_EQ(d.join(), 0);
}

TEST_F(SharedDeaths, KilledAtAnyInstruction) {
  constexpr int kRounds = 80;
  ShareLab lab;
  ASSERT_TRUE(lab.is_open);
  const auto key = [](unsigned i) {
    const Flow flow{kTcp, i % 2 != 0, static_cast<uint16_t>(80 + i % 4)};
    return flow.key(i % 3 != 0 ? Kind::kLocal : Kind::kWild);
  };
  const Flow kept{kTcp, false, 80}, kept6{kTcp, true, 81};
  unsigned in_the_lock = 0;
  for (int round = 0; round < kRounds; ++round) {
    auto kit = lab.a->kit();
    ASSERT_TRUE(kit);
    Child b([&](Child& self) {
      auto made = xdp::Steering::join(std::move(*kit), {kSlotB});
      if (!made) return 1;
      ShareLab::accept(**made, true);
      self.report(true);
      for (unsigned i = 0;; ++i) {
        const auto one = (*made)->share(key(i));
        const auto two = (*made)->share(key(i / 5));
        const auto three = (*made)->share(kept.key(Kind::kWild));
        if (one) (*made)->remove(*one);
        if (two && i % 7 != 0) (*made)->remove(*two);
        if (three) (*made)->remove(*three);
      }
    });
    *kit = {};
    ASSERT_TRUE(b.hear<bool>());
    for (unsigned i = 0; i < 20U + static_cast<unsigned>(round); ++i) {
      const auto one = lab.a->share(key(i));
      const auto two = lab.a->share(key(i + 1));
      ASSERT_TRUE(one && two) << (one ? two : one).error().where;
      lab.a->remove(*one);
      lab.a->remove(*two);
    }
    // B's, or shared with it.
    const auto four = lab.a->share(kept.key(Kind::kWild));
    const auto six = lab.a->share(kept6.key(Kind::kLocal));
    ASSERT_TRUE(four && six);
    usleep(static_cast<useconds_t>(round * 37 % 500));
    b.kill_now();
    lab.dead.insert(kSlotB);
    in_the_lock += lab.ports.counts().lock.is_held_by(kSlotB);
    lab.a->remove_all_of(kSlotB);
    lab.dead.clear();
    ShareLab::accept(*lab.a, true);
    for (const Flow& f : {kept, kept6}) {
      EXPECT_EQ(lab.outcomes(syns(f, 32)).of(Who::kA), 32U);
      EXPECT_EQ(lab.outcome(f.frame()), Who::kA);
    }
    lab.a->remove(*four);
    lab.a->remove(*six);
    lab.expect_empty();
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(in_the_lock, 0U) << "no round met it in the lock";
}

}  // namespace
}  // namespace vireo::test
