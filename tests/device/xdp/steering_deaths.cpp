// A member of a group is killed or stopped, with rules, in the lock or at any instruction: the
// others keep theirs, and what it had is taken back.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "child.h"
#include "core/fd_messages.h"
#include "group_lab.h"
#include "stopped_holder.h"

namespace vireo::test {
namespace {

constexpr IpProto kTcp = IpProto::kTcp, kUdp = IpProto::kUdp;
constexpr unsigned kSlotB = GroupLab::kSlotB;

class SteeringDeaths : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  }
};

bool send_descriptors(int to, const xdp::SteeringKit& kit) {
  int fds[xdp::kSteeringFds];
  std::ranges::transform(kit, fds, &UniqueFd::get);
  constexpr std::byte kSome{};
  return send_message(to, {&kSome, 1}, fds) == 0;
}

xdp::SteeringKit receive_descriptors(int from) {
  xdp::SteeringKit kit;
  std::byte some;
  pollfd there{from, POLLIN, 0};  // receive_message() does not wait
  (void)poll(&there, 1, -1);
  (void)receive_message(from, {&some, 1}, kit, 0);
  return kit;
}

TEST_F(SteeringDeaths, WhatAKilledProcessHadIsTakenBack) {
  GroupLab lab;
  ASSERT_TRUE(lab.is_open);
  const Flow flows[] = {{kTcp, false, 90}, {kUdp, true, 91}, {kUdp, false, 92}};
  constexpr Kind kKinds[] = {Kind::kExact, Kind::kWild, Kind::kLocal};
  const Flow of_a{kTcp, false, 93}, of_a_there{kTcp, false, 90, 5001};
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  Child b([&](Child& self) {
    auto made = xdp::Steering::join(receive_descriptors(pair[1]), {kSlotB});
    BareSocket socket(lab.memory, lab.veth.index(0), lab.socket_a.get());
    bool ok = made && socket.is_open() && (*made)->set_socket(QueueId(0), socket.fd());
    for (size_t i = 0; ok && i < std::size(flows); ++i)
      ok = (*made)->add(flows[i].key(kKinds[i]), FlowTag()).has_value();
    if (ok) (*made)->ask_kernel(94, true);
    if (ok) GroupLab::tell(**made, true);
    self.report(ok);
    for (;;) {
      self.wait();
      bool got = false;
      for (int tries = 0; !got && tries < 100; ++tries) {
        got = socket.receive().has_value();
        if (!got) usleep(5000);
      }
      self.report(got);
    }
    return 0;
  });
  ASSERT_TRUE(send_descriptors(pair[0], *lab.a->kit()));
  close(pair[0]);
  close(pair[1]);
  ASSERT_TRUE(b.hear<bool>());
  ASSERT_TRUE(lab.a->add(of_a.key(Kind::kLocal), FlowTag()));
  ASSERT_TRUE(lab.a->add(of_a_there.key(Kind::kExact), FlowTag()));
  for (const Flow& f : flows) {
    EXPECT_EQ(lab.outcome(f.frame()), Who::kNobody) << "of those in this process";
    b.go();
    EXPECT_TRUE(b.hear<bool>()) << "the other process did not get it";
  }
  EXPECT_EQ(lab.outcome(of_a.frame()), Who::kA);
  b.kill_now();
  lab.dead.insert(kSlotB);
  EXPECT_EQ(lab.a->add(flows[0].key(kKinds[0]), FlowTag()).error().code, EEXIST);
  lab.a->remove_all_of(kSlotB);
  for (const Flow& f : flows) EXPECT_EQ(lab.outcome(f.frame()), Who::kKernel);
  for (const Flow& f : {of_a, of_a_there}) EXPECT_EQ(lab.outcome(f.frame()), Who::kA);
  EXPECT_EQ(lab.ports.arrays().host.takes_fragments, 0U);
  for (size_t i = 0; i < std::size(flows); ++i) {
    EXPECT_TRUE(lab.a->add(flows[i].key(kKinds[i]), FlowTag()));
    EXPECT_EQ(lab.outcome(flows[i].frame()), Who::kA);
  }
  // A second burial finds nothing.
  lab.a->remove_all_of(kSlotB);
  for (const Flow& f : flows) EXPECT_EQ(lab.outcome(f.frame()), Who::kA);
  lab.a->remove_all_of(GroupLab::kSlotA);
  lab.expect_empty();
}

TEST_F(SteeringDeaths, FramesOfTheOthersArriveMeanwhile) {
  constexpr unsigned kRules = 100, kFrames = 32;
  GroupLab lab;
  ASSERT_TRUE(lab.is_open && lab.add_b());
  const Flow of_a{kTcp, false, 80};
  ASSERT_TRUE(lab.a->add(of_a.key(Kind::kLocal), FlowTag()));
  for (int round = 0; round < 10; ++round) {
    for (uint16_t i = 0; i < kRules; ++i)
      ASSERT_TRUE(lab.b->add(
          Flow{kTcp, false, 80, static_cast<uint16_t>(6000 + i)}.key(Kind::kExact), FlowTag()));
    std::jthread remover([&] { lab.a->remove_all_of(kSlotB); });
    for (unsigned i = 0; i < kFrames; ++i) ASSERT_TRUE(lab.wire.send(of_a.frame()));
    remover.join();
    unsigned got = 0;
    for (int tries = 0; got < kFrames && tries < 1000; ++tries)
      if (lab.socket_a->receive())
        ++got;
      else
        usleep(1000);
    ASSERT_EQ(got, kFrames);
    ASSERT_FALSE(lab.kernel.receive(5));
  }
}

/// The bits of a port in the program's filter.
uint16_t kinds_of(const GroupLab& lab, const Flow& f) {
  return lab.ports.arrays()
      .port_kinds[STEER_PORT_SLOT(f.proto == kUdp, uint32_t{be16(f.port).raw()})];
}

TEST_F(SteeringDeaths, WhoDiesInTheLockLeavesTheTablesToBeCounted) {
  GroupLab lab;
  ASSERT_TRUE(lab.is_open);
  const Flow of_a{kTcp, false, 90}, of_a_too{kUdp, false, 92}, second{kTcp, true, 93};
  const Flow half_made{kUdp, false, 91}, half_removed{kUdp, false, 95};
  const auto rule = lab.a->add(of_a.key(Kind::kExact), FlowTag());
  ASSERT_TRUE(rule && lab.a->add(of_a_too.key(Kind::kWild), FlowTag()));
  auto kit = lab.a->kit();
  ASSERT_TRUE(kit);
  Child b([&](Child& self) {
    auto made = xdp::Steering::join(std::move(*kit), {kSlotB});
    if (!made || !(*made)->add(half_removed.key(Kind::kLocal), FlowTag())) return 1;
    (*made)->ask_kernel(97, true);
    const xdp::SteerPorts ports = lab.mapped();
    auto& c = ports.counts();
    const auto added = xdp::rule_of(half_made.key(Kind::kWild));
    const auto removed = xdp::rule_of(half_removed.key(Kind::kLocal));
    bool ok = c.lock.try_lock(kSlotB) && lab.tables().insert(*added, STEER_VALUE(kSlotB, 0)) &&
              lab.tables().erase(*removed);
    // Whatever it was about to write.
    for (uint32_t& n : c.ports[added->port_slot].rules) n += 3;
    c.listeners[0] += 7;
    self.report(ok);
    self.wait();
    return 0;
  });
  *kit = {};
  ASSERT_TRUE(b.hear<bool>());
  b.kill_now();
  lab.dead.insert(kSlotB);
  EXPECT_TRUE(lab.ports.counts().lock.is_held_by(kSlotB));

  const auto next = lab.a->add(second.key(Kind::kWild), FlowTag());
  ASSERT_TRUE(next) << next.error().where;
  EXPECT_EQ(kinds_of(lab, half_made) & ~STEER_LONE4, STEER_WILD4);
  EXPECT_EQ(kinds_of(lab, half_removed), 0);
  EXPECT_EQ(kinds_of(lab, of_a), STEER_EXACT4 | STEER_LONE4);
  EXPECT_EQ(kinds_of(lab, of_a_too), STEER_WILD4 | STEER_LONE4);
  EXPECT_EQ(kinds_of(lab, {kTcp, false, 97}), STEER_ASK);
  EXPECT_EQ(lab.ports.counts().listeners[0], 2U);
  EXPECT_EQ(lab.ports.counts().listeners[1], 1U);
  for (const Flow& f : {of_a, of_a_too, second}) EXPECT_EQ(lab.outcome(f.frame()), Who::kA);
  lab.a->remove_all_of(kSlotB);
  EXPECT_EQ(lab.outcome(half_made.frame()), Who::kKernel);
  lab.a->remove(*rule);
  EXPECT_EQ(lab.outcome(of_a.frame()), Who::kKernel);
  EXPECT_EQ(lab.outcome(of_a_too.frame()), Who::kA);
  lab.a->remove_all_of(GroupLab::kSlotA);
  lab.expect_empty();
}

TEST_F(SteeringDeaths, BurialFreesTheLockForTheNextOfTheSlot) {
  GroupLab lab;
  ASSERT_TRUE(lab.is_open);
  Child b([&](Child& self) {
    const xdp::SteerPorts ports = lab.mapped();
    self.report(ports.counts().lock.try_lock(kSlotB));
    self.wait();
    return 0;
  });
  ASSERT_TRUE(b.hear<bool>());
  b.kill_now();
  lab.dead.insert(kSlotB);
  lab.a->remove_all_of(kSlotB);
  lab.dead.clear();
  lab.expect_empty();
  EXPECT_TRUE(lab.add_b());
  EXPECT_TRUE(lab.b->add(Flow{}.key(Kind::kWild), FlowTag()));
}

TEST_F(SteeringDeaths, AStoppedHolderDelaysTheOthersOnce) {
  GroupLab lab;
  ASSERT_TRUE(lab.is_open);
  const Flow flow{kUdp, false, 90}, second{kTcp, true, 91}, third{kUdp, false, 92};
  const auto first_rule = lab.a->add(flow.key(Kind::kLocal), FlowTag());
  const auto second_rule = lab.a->add(second.key(Kind::kWild), FlowTag());
  ASSERT_TRUE(first_rule && second_rule);
  lab.a->ask_kernel(93, true);
  StoppedHolder b(lab, kSlotB);
  ASSERT_TRUE(b.is_stopped());

  const auto took = [](const auto& what) {
    const Instant before = Clock::now_from_kernel();
    what();
    return (Clock::now_from_kernel() - before).ms();
  };
  const auto refused = [&] {
    const auto rule = lab.a->add(third.key(Kind::kLocal), FlowTag());
    ASSERT_FALSE(rule);
    EXPECT_EQ(rule.error().code, ETIMEDOUT);
  };
  const auto first_wait = took(refused);
  EXPECT_GE(first_wait, 100);
  EXPECT_LE(first_wait, 2000);
  EXPECT_LE(took([&] {
              for (int i = 0; i < 10; ++i) refused();
            }),
            100)
      << "it waited again";
  EXPECT_EQ(lab.outcome(flow.frame()), Who::kA);
  lab.a->remove(*first_rule);
  EXPECT_EQ(lab.outcome(flow.frame()), Who::kKernel);
  EXPECT_EQ(lab.outcome(second.frame()), Who::kA);
  lab.a->remove(*second_rule);
  EXPECT_EQ(lab.outcome(second.frame()), Who::kKernel);
  lab.a->ask_kernel(93, false);
  lab.a->ask_kernel(94, true);
  EXPECT_EQ(kinds_of(lab, {kTcp, false, 94}), STEER_ASK);

  ASSERT_TRUE(b.release());
  const auto rule = lab.a->add(third.key(Kind::kLocal), FlowTag());
  ASSERT_TRUE(rule) << rule.error().where;
  EXPECT_EQ(lab.outcome(third.frame()), Who::kA);
  EXPECT_EQ(kinds_of(lab, {kTcp, false, 93}), 0);
  EXPECT_EQ(kinds_of(lab, {kTcp, false, 94}), STEER_ASK);
  lab.a->ask_kernel(94, false);
  lab.a->remove(*rule);
  lab.expect_empty();
  EXPECT_EQ(b.join(), 0);
}

TEST_F(SteeringDeaths, KilledAtAnyInstruction) {
  constexpr int kRounds = 80;
  GroupLab lab;
  ASSERT_TRUE(lab.is_open);
  const Flow of_a{kTcp, false, 80, 4000}, of_a_too{kUdp, true, 81, 4000};
  unsigned in_the_lock = 0;
  for (int round = 0; round < kRounds; ++round) {
    auto kit = lab.a->kit();
    ASSERT_TRUE(kit);
    Child b([&](Child& self) {
      auto made = xdp::Steering::join(std::move(*kit), {kSlotB});
      if (!made) return 1;
      self.report(true);
      for (uint16_t i = 0;; ++i) {
        const Flow flow{i % 2 != 0 ? kTcp : kUdp, i % 4 >= 2, static_cast<uint16_t>(80 + i % 8)};
        const auto one = (*made)->add(flow.key(Kind::kExact), FlowTag());
        const auto two = (*made)->add(flow.key(i % 3 != 0 ? Kind::kLocal : Kind::kWild), FlowTag());
        (*made)->ask_kernel(flow.port, i % 5 != 0);
        if (i % 16 == 0) GroupLab::tell(**made, i % 32 == 0);
        if (one) (*made)->remove(*one);
        if (two && i % 7 != 0) (*made)->remove(*two);
      }
    });
    *kit = {};
    ASSERT_TRUE(b.hear<bool>());
    for (int i = 0; i < 20 + round; ++i) {
      const auto one = lab.a->add(of_a.key(Kind::kExact), FlowTag());
      const auto two = lab.a->add(of_a_too.key(Kind::kExact), FlowTag());
      ASSERT_TRUE(one && two) << one.error().where;
      lab.a->remove(*one);
      lab.a->remove(*two);
    }
    const auto one = lab.a->add(of_a.key(Kind::kExact), FlowTag());
    const auto two = lab.a->add(of_a_too.key(Kind::kExact), FlowTag());
    ASSERT_TRUE(one && two);
    usleep(static_cast<useconds_t>(round * 37 % 500));
    b.kill_now();
    lab.dead.insert(kSlotB);
    in_the_lock += lab.ports.counts().lock.is_held_by(kSlotB);
    lab.a->remove_all_of(kSlotB);
    lab.dead.clear();
    EXPECT_EQ(lab.outcome(of_a.frame()), Who::kA);
    EXPECT_EQ(lab.outcome(of_a_too.frame()), Who::kA);
    lab.a->remove(*one);
    lab.a->remove(*two);
    lab.expect_empty();
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(in_the_lock, 0U) << "no round met it in the lock";
}

}  // namespace
}  // namespace vireo::test
