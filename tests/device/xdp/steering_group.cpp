// Members of a group share the steering program: each gets the frames of its own flows only.
#include <bpf/bpf.h>

#include <tuple>

#include "group_lab.h"

namespace vireo::test {
namespace {

constexpr IpProto kTcp = IpProto::kTcp, kUdp = IpProto::kUdp;

class SteeringGroup : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  }
};

class EachKind : public ::testing::TestWithParam<std::tuple<IpProto, bool, Kind, bool, bool>> {};

TEST_P(EachKind, OfRuleBringsItsMembersFramesOnly) {
  if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  const auto& [proto, v6, kind, is_bs, tags] = GetParam();
  GroupLab lab(tags);
  ASSERT_TRUE(lab.is_open && lab.add_b());
  xdp::Steering& owner = is_bs ? *lab.b : *lab.a;
  xdp::Steering& other = is_bs ? *lab.a : *lab.b;
  const Who owners = is_bs ? Who::kB : Who::kA, others = is_bs ? Who::kA : Who::kB;
  const Flow flow{proto, v6}, next{proto, v6, 81}, strange{proto, v6, 80, 6000};

  EXPECT_EQ(lab.outcome(flow.frame()), Who::kKernel);
  const auto rule = owner.add(flow.key(kind), FlowTag(11));
  ASSERT_TRUE(rule);
  EXPECT_EQ(lab.outcome(flow.frame()), owners);
  EXPECT_EQ(lab.tag, tags ? 11U : 0U);
  EXPECT_EQ(lab.outcome(next.frame()), Who::kKernel);
  const auto neighbour = other.add(next.key(kind), FlowTag(12));
  ASSERT_TRUE(neighbour);
  EXPECT_EQ(lab.outcome(flow.frame()), owners);
  EXPECT_EQ(lab.outcome(next.frame()), others);
  EXPECT_EQ(lab.tag, tags ? 12U : 0U);

  // The same port has rules of both.
  const auto stranger = other.add(strange.key(Kind::kExact), FlowTag(13));
  ASSERT_TRUE(stranger);
  EXPECT_EQ(lab.outcome(flow.frame()), owners);
  EXPECT_EQ(lab.outcome(strange.frame()), others);
  const auto again = other.add(flow.key(kind), FlowTag(14));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, EEXIST);
  EXPECT_EQ(other.holder_of(flow.key(kind)).value_or(99), owner.slot());
  EXPECT_EQ(owner.holder_of(strange.key(Kind::kExact)).value_or(99), other.slot());

  owner.remove(*rule);
  EXPECT_EQ(owner.holder_of(flow.key(kind)).error().code, ENOENT);
  EXPECT_EQ(lab.outcome(flow.frame()), Who::kKernel);
  EXPECT_EQ(lab.outcome(strange.frame()), others);
  const auto taken = other.add(flow.key(kind), FlowTag(15));
  ASSERT_TRUE(taken);
  EXPECT_EQ(lab.outcome(flow.frame()), others);
  for (const uint64_t id : {*neighbour, *stranger, *taken}) other.remove(id);
  for (const Flow& f : {flow, next, strange}) EXPECT_EQ(lab.outcome(f.frame()), Who::kKernel);
  lab.expect_empty();
}

std::string name_of(const ::testing::TestParamInfo<EachKind::ParamType>& i) {
  const auto& [proto, v6, kind, is_bs, tags] = i.param;
  constexpr const char* kKinds[] = {"_exact", "_local", "_wild"};
  return std::string(proto == kTcp ? "tcp" : "udp") + (v6 ? "6" : "4") +
         kKinds[static_cast<int>(kind)] + (is_bs ? "_of_b" : "_of_a") + (tags ? "_tags" : "");
}

INSTANTIATE_TEST_SUITE_P(SteeringGroup, EachKind,
                         ::testing::Combine(::testing::Values(kTcp, kUdp), ::testing::Bool(),
                                            ::testing::Values(Kind::kExact, Kind::kLocal,
                                                              Kind::kWild),
                                            ::testing::Bool(), ::testing::Bool()),
                         name_of);

TEST_F(SteeringGroup, ExactRulesOfOneComeBeforeWildcardsOfAnother) {
  GroupLab lab;
  ASSERT_TRUE(lab.is_open && lab.add_b());
  for (const bool v6 : {false, true}) {
    const Flow flow{kTcp, v6}, second{kTcp, v6, 80, 5001};
    const auto wild = lab.a->add(flow.key(Kind::kWild), FlowTag());
    const auto exact = lab.b->add(flow.key(Kind::kExact), FlowTag());
    ASSERT_TRUE(wild && exact);
    EXPECT_EQ(lab.outcome(flow.frame()), Who::kB);
    EXPECT_EQ(lab.outcome(second.frame()), Who::kA);
    const auto spared = lab.b->spare(second.key(Kind::kExact));
    ASSERT_TRUE(spared);
    EXPECT_EQ(lab.outcome(second.frame()), Who::kKernel);
    EXPECT_EQ(lab.b->holder_of(second.key(Kind::kExact)).value_or(99), GroupLab::kSlotB);
    lab.b->remove(*exact);
    EXPECT_EQ(lab.outcome(flow.frame()), Who::kA);
    lab.b->remove(*spared);
    EXPECT_EQ(lab.outcome(second.frame()), Who::kA);
    lab.a->remove(*wild);
  }
  lab.expect_empty();
}

TEST_F(SteeringGroup, AnotherTakesTheFlowThatOneHasLeftToTheKernel) {
  GroupLab lab;
  ASSERT_TRUE(lab.is_open && lab.add_b());
  for (const bool v6 : {false, true})
    for (const bool ends_first : {false, true}) {
      const Flow flow{kTcp, v6};
      const auto wild = lab.a->add(flow.key(Kind::kWild), FlowTag());
      const auto spared = lab.a->spare(flow.key(Kind::kExact));
      ASSERT_TRUE(wild && spared);
      EXPECT_EQ(lab.outcome(flow.frame()), Who::kKernel);
      EXPECT_EQ(lab.b->spare(flow.key(Kind::kExact)).error().code, EEXIST);
      const auto taken = lab.b->add(flow.key(Kind::kExact), FlowTag());
      ASSERT_TRUE(taken);
      EXPECT_EQ(lab.outcome(flow.frame()), Who::kB);
      EXPECT_EQ(lab.a->add(flow.key(Kind::kExact), FlowTag()).error().code, EEXIST);
      if (ends_first) {
        lab.b->remove(*taken);
        EXPECT_EQ(lab.outcome(flow.frame()), Who::kA);
        // The next connection of the same ends, of the listener's member.
        const auto next = lab.a->add(flow.key(Kind::kExact), FlowTag());
        ASSERT_TRUE(next);
        lab.a->remove(*wild);
        lab.a->remove(*spared);
        EXPECT_EQ(lab.outcome(flow.frame()), Who::kA) << "the rule is not the spare's";
        lab.a->remove(*next);
      } else {
        lab.a->remove(*spared);
        EXPECT_EQ(lab.outcome(flow.frame()), Who::kB) << "the entry is another's by now";
        lab.b->remove(*taken);
        EXPECT_EQ(lab.outcome(flow.frame()), Who::kA);
        lab.a->remove(*wild);
      }
      EXPECT_EQ(lab.outcome(flow.frame()), Who::kKernel);
    }
  lab.expect_empty();
}

TEST_F(SteeringGroup, WhatWasTakenOutlivesWhoLeftIt) {
  GroupLab lab;
  ASSERT_TRUE(lab.is_open && lab.add_b());
  const Flow flow{kTcp, false};
  ASSERT_TRUE(lab.b->spare(flow.key(Kind::kExact)));
  const auto taken = lab.a->add(flow.key(Kind::kExact), FlowTag());
  ASSERT_TRUE(taken);
  lab.dead.insert(GroupLab::kSlotB);
  lab.a->remove_all_of(GroupLab::kSlotB);
  EXPECT_EQ(lab.outcome(flow.frame()), Who::kA);
  lab.a->remove(*taken);
  EXPECT_EQ(lab.outcome(flow.frame()), Who::kKernel);
}

TEST_F(SteeringGroup, AnErrorGoesToTheMemberWhoseFlowItQuotes) {
  GroupLab lab;
  ASSERT_TRUE(lab.is_open && lab.add_b());
  for (const bool v6 : {false, true})
    for (const IpProto proto : {kTcp, kUdp}) {
      const Flow of_a{proto, v6, 90}, of_b{proto, v6, 91}, of_b_too{proto, v6, 90, 5001};
      const auto rule_a = lab.a->add(of_a.key(Kind::kExact), FlowTag());
      const auto rule_b = lab.b->add(of_b.key(Kind::kExact), FlowTag());
      ASSERT_TRUE(rule_a && rule_b);
      EXPECT_EQ(lab.outcome(of_a.error()), Who::kA);
      EXPECT_EQ(lab.outcome(of_b.error()), Who::kB);
      EXPECT_EQ(lab.outcome(of_b_too.error()), Who::kKernel);
      const auto more = lab.b->add(of_b_too.key(Kind::kExact), FlowTag());
      ASSERT_TRUE(more);
      EXPECT_EQ(lab.outcome(of_a.error()), Who::kA);
      EXPECT_EQ(lab.outcome(of_b_too.error()), Who::kB);
      lab.a->remove(*rule_a);
      lab.b->remove(*rule_b);
      lab.b->remove(*more);
    }
  lab.expect_empty();
}

TEST_F(SteeringGroup, FragmentsGoToTheMemberOfTheFirst) {
  GroupLab lab;
  ASSERT_TRUE(lab.is_open && lab.add_b());
  for (const bool v6 : {false, true}) {
    const Flow of_a{kUdp, v6, 90}, of_b{kUdp, v6, 91};
    const auto rule_a = lab.a->add(of_a.key(Kind::kWild), FlowTag());
    const auto rule_b = lab.b->add(of_b.key(Kind::kWild), FlowTag());
    ASSERT_TRUE(rule_a && rule_b);
    GroupLab::tell(*lab.a, true);
    GroupLab::tell(*lab.b, true);
    EXPECT_EQ(lab.outcome(of_a.fragment(1, true)), Who::kA);
    EXPECT_EQ(lab.outcome(of_b.fragment(2, true)), Who::kB);
    EXPECT_EQ(lab.outcome(of_a.fragment(1, false)), Who::kA);
    EXPECT_EQ(lab.outcome(of_b.fragment(2, false)), Who::kB);
    // Each member wants them or not.
    GroupLab::tell(*lab.b, false);
    EXPECT_EQ(lab.outcome(of_b.fragment(3, true)), Who::kKernel);
    EXPECT_EQ(lab.outcome(of_b.fragment(3, false)), Who::kKernel);
    EXPECT_EQ(lab.outcome(of_a.fragment(4, true)), Who::kA);
    EXPECT_EQ(lab.outcome(of_a.fragment(4, false)), Who::kA);
    lab.a->remove(*rule_a);
    lab.b->remove(*rule_b);
  }
  lab.expect_empty();
}

/// What the program answers for a frame of queue `queue`, without sending it.
bool is_redirected(const GroupLab& lab, const Bytes& frame, uint32_t queue) {
  xdp_md context{};
  context.data_end = static_cast<uint32_t>(frame.size());
  context.ingress_ifindex = lab.veth.index(0).value();
  context.rx_queue_index = queue;
  bpf_test_run_opts o{};
  o.sz = sizeof o;
  o.data_in = frame.data();
  o.data_size_in = context.data_end;
  o.ctx_in = &context;
  o.ctx_size_in = sizeof context;
  EXPECT_EQ(bpf_prog_test_run_opts(lab.a->program_fd(), &o), 0);
  return o.retval == XDP_REDIRECT;
}

TEST_F(SteeringGroup, EachMemberHasASocketForEachQueue) {
  GroupLab lab(false, 2);
  ASSERT_TRUE(lab.is_open && lab.add_b());
  EXPECT_EQ(lab.b->queues(), 2U);
  const Flow of_a{kTcp, false, 90}, of_b{kTcp, false, 91};
  ASSERT_TRUE(lab.a->add(of_a.key(Kind::kLocal), FlowTag()));
  ASSERT_TRUE(lab.b->add(of_b.key(Kind::kLocal), FlowTag()));
  const auto answers = [&] {
    return std::array{is_redirected(lab, of_a.frame(), 0), is_redirected(lab, of_a.frame(), 1),
                      is_redirected(lab, of_b.frame(), 0), is_redirected(lab, of_b.frame(), 1)};
  };
  EXPECT_EQ(answers(), (std::array{true, false, true, false}));
  ASSERT_TRUE(lab.b->set_socket(QueueId(1), lab.socket_b->fd()));
  EXPECT_EQ(answers(), (std::array{true, false, true, true}));
  lab.b->clear_socket(QueueId(0));
  EXPECT_EQ(answers(), (std::array{true, false, false, true}));
  lab.a->remove_all_of(GroupLab::kSlotB);
  ASSERT_TRUE(lab.b->add(of_b.key(Kind::kLocal), FlowTag()));
  EXPECT_EQ(answers(), (std::array{true, false, false, false})) << "its sockets were taken";
}

TEST_F(SteeringGroup, WhoeverLeavesTheOthersGoOn) {
  for (const bool founder_leaves : {true, false}) {
    GroupLab lab;
    ASSERT_TRUE(lab.is_open && lab.add_b());
    const Flow of_a{kTcp, false, 90}, of_b{kUdp, true, 91};
    ASSERT_TRUE(lab.a->add(of_a.key(Kind::kLocal), FlowTag()));
    ASSERT_TRUE(lab.b->add(of_b.key(Kind::kWild), FlowTag()));
    lab.a->ask_kernel(90, true);
    lab.b->ask_kernel(90, true);
    lab.watched[xdp::kSteerLink].reset();  // it keeps the program attached, too
    (founder_leaves ? lab.a : lab.b).reset();
    EXPECT_EQ(lab.outcome(of_a.frame()), founder_leaves ? Who::kKernel : Who::kA);
    EXPECT_EQ(lab.outcome(of_b.frame()), founder_leaves ? Who::kB : Who::kKernel);
    xdp::Steering& left = founder_leaves ? *lab.b : *lab.a;
    EXPECT_TRUE(left.is_attached());
    left.ask_kernel(90, false);
    left.remove_all_of(left.slot());
    lab.expect_empty();
    lab.a.reset();
    lab.b.reset();
    auto next = xdp::Steering::load(*xdp::describe(lab.veth.index(0)), {16, 16}, false);
    ASSERT_TRUE(next);
    EXPECT_TRUE((*next)->attach(lab.veth.index(0), xdp::Attach::kNative)) << "not detached";
  }
}

TEST_F(SteeringGroup, TheKernelIsAskedWhileOneMemberWantsIt) {
  GroupLab lab;
  ASSERT_TRUE(lab.is_open && lab.add_b());
  const auto is_asked = [&] {
    return (lab.ports.arrays().port_kinds[STEER_PORT_SLOT(0U, uint32_t{be16(80).raw()})] &
            STEER_ASK) != 0;
  };
  lab.a->ask_kernel(80, true);
  lab.b->ask_kernel(80, true);
  lab.b->ask_kernel(80, true);
  EXPECT_TRUE(is_asked());
  lab.b->ask_kernel(80, false);
  EXPECT_TRUE(is_asked());
  lab.b->ask_kernel(80, false);
  EXPECT_TRUE(is_asked()) << "it is A's";
  lab.b->ask_kernel(80, true);
  lab.a->ask_kernel(80, false);
  EXPECT_TRUE(is_asked()) << "it is B's";
  lab.a->remove_all_of(GroupLab::kSlotB);
  EXPECT_FALSE(is_asked());
  lab.expect_empty();
}

TEST_F(SteeringGroup, TheHostsAddressesAreThoseThatWereToldLast) {
  GroupLab lab;
  ASSERT_TRUE(lab.is_open && lab.add_b());
  const HostLink links[] = {{VlanId(), kOurMac}, {VlanId(5), kOurMac}};
  const HostLink untagged[] = {{VlanId(), kOurMac}};
  std::vector<IpAddr> many;  // more than the arrays have places for
  for (int i = 100; i < 112; ++i) {
    many.push_back(*IpAddr::parse("10.0.0." + std::to_string(i)));
    many.push_back(*IpAddr::parse("fd76::" + std::to_string(i)));
  }
  many.push_back(kOurs4);
  many.push_back(kOurs6);
  const std::vector<IpAddr> ours{kOurs4, kOurs6},
      others{*IpAddr::parse("10.0.0.100"), *IpAddr::parse("fd76::100")};
  for (const bool v6 : {false, true}) {
    const Flow flow{kUdp, v6};
    const auto rule = lab.b->add(flow.key(Kind::kWild), FlowTag());
    ASSERT_TRUE(rule);
    lab.a->set_host({links, many});
    EXPECT_EQ(lab.outcome(flow.frame()), Who::kB) << "beyond the array";
    EXPECT_EQ(lab.outcome(with_tag(flow.frame(), 0x8100, 5)), Who::kB);
    lab.b->set_host({untagged, others});  // whose former list was empty
    EXPECT_EQ(lab.outcome(flow.frame()), Who::kKernel);
    EXPECT_EQ(lab.outcome(with_tag(flow.frame(), 0x8100, 5)), Who::kKernel);
    lab.a->set_host({links, many});
    lab.b->set_host({links, ours});
    EXPECT_EQ(lab.outcome(flow.frame()), Who::kB);
    lab.a->set_host({links, others});
    EXPECT_EQ(lab.outcome(flow.frame()), Who::kKernel);
    unsigned in_table = 0;
    lab.tables().for_each_address(!v6, [&](const IpAddr&) { ++in_table; });
    EXPECT_EQ(in_table, 0U);
    const auto& host = lab.ports.arrays().host;
    EXPECT_EQ(host.more_v4 + host.more_v6, 0);
    lab.b->set_host({links, ours});
    EXPECT_EQ(lab.outcome(flow.frame()), Who::kB);
    lab.b->remove(*rule);
  }
  lab.expect_empty();
}

TEST_F(SteeringGroup, TheTableIsFullForAll) {
  GroupLab lab;
  ASSERT_TRUE(lab.is_open && lab.add_b());
  for (uint16_t port = 1; port <= 64; ++port)
    ASSERT_TRUE(
        (port % 2 != 0 ? lab.a : lab.b)->add(Flow{kUdp, false, port}.key(Kind::kLocal), {}));
  for (const auto& member : {lab.a, lab.b}) {
    const auto refused = member->add(Flow{kUdp, false, 65}.key(Kind::kLocal), {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ENOSPC);
    EXPECT_TRUE(member->add(
        Flow{kUdp, true, member->slot() == 0 ? uint16_t{1} : uint16_t{2}}.key(Kind::kLocal), {}))
        << "the other family has a table of its own";
  }
  lab.a->remove_all_of(GroupLab::kSlotB);
  EXPECT_TRUE(lab.a->add(Flow{kUdp, false, 65}.key(Kind::kLocal), {}));
}

}  // namespace
}  // namespace vireo::test
