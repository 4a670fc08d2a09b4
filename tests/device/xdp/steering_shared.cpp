// Members of a group share a local end of TCP: each SYN goes to one that accepts, all else to the
// first sharer or to whom an exact rule names.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <thread>
#include <tuple>

#include "share_lab.h"
#include "sides.h"

namespace vireo::test {
namespace {

constexpr IpProto kTcp = IpProto::kTcp, kUdp = IpProto::kUdp;

class SteeringShared : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  }
};

/// Family, kind of rule, whether it names the link, words of IP options, tags.
class EachEnd : public ::testing::TestWithParam<std::tuple<bool, Kind, bool, unsigned, bool>> {};

TEST_P(EachEnd, SpreadsItsSyns) {
  if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  const auto& [v6, kind, names_link, options, tags] = GetParam();
  if (v6 && options != 0) return;
  ShareLab lab(tags);
  ASSERT_TRUE(lab.add_all());
  const Flow flow{kTcp, v6};
  FlowKey key = flow.key(kind);
  if (names_link) key.vlan = kUntagged;
  const auto frames = syns(flow, kManySyns, 10000, options);
  const auto other = [&](uint8_t flags) {
    Flow f = flow;
    f.flags = flags;
    return options == 0 ? f.frame() : with_ip_options(f.frame(), options);
  };

  EXPECT_EQ(lab.outcomes(frames).of(Who::kKernel), kManySyns);
  const auto of_a = lab.a->share(key);
  ASSERT_TRUE(of_a) << of_a.error().where;
  EXPECT_EQ(lab.outcomes(frames).of(Who::kA), kManySyns);
  const auto of_b = lab.b->share(key);
  ASSERT_TRUE(of_b) << of_b.error().where;
  const Outcomes two = lab.outcomes(frames);
  EXPECT_TRUE(two.is_even({Who::kA, Who::kB})) << two;
  EXPECT_EQ(lab.outcomes(frames), two) << "a SYN that is sent again";
  const auto of_c = lab.c->share(key);
  ASSERT_TRUE(of_c) << of_c.error().where;
  const Outcomes three = lab.outcomes(frames);
  EXPECT_TRUE(three.is_even({Who::kA, Who::kB, Who::kC})) << three;
  EXPECT_EQ(three.lost(two, Who::kA) + three.lost(two, Who::kB), three.of(Who::kC))
      << "some changed hands between A and B";

  // ACK, PSH ACK, SYN ACK, RST, RST ACK, FIN ACK, and what no TCP sends.
  for (const unsigned flags : {0x10U, 0x18U, 0x12U, 0x04U, 0x14U, 0x11U, 0x03U, 0x06U, 0U}) {
    EXPECT_EQ(lab.outcome(other(static_cast<uint8_t>(flags))), Who::kA) << flags;
    EXPECT_EQ(lab.tag, 0U);
  }
  for (const unsigned flags : {0x42U, 0xc2U, 0x0aU})  // SYN with ECN, PSH
    EXPECT_NE(lab.outcome(other(static_cast<uint8_t>(flags))), Who::kKernel) << flags;
  EXPECT_EQ(lab.tag, 0U);
  EXPECT_EQ(lab.outcome(Flow{kTcp, v6, 81, kPeerPort, kSyn}.frame()), Who::kKernel);
  EXPECT_EQ(lab.outcome(Flow{kUdp, v6}.frame()), Who::kKernel);

  lab.b->remove(*of_b);
  const Outcomes rest = lab.outcomes(frames);
  EXPECT_TRUE(rest.is_even({Who::kA, Who::kC})) << rest;
  EXPECT_EQ(rest.lost(three, Who::kA) + rest.lost(three, Who::kC), 0U);
  lab.c->remove(*of_c);
  EXPECT_EQ(lab.outcomes(frames).of(Who::kA), kManySyns);
  lab.a->remove(*of_a);
  EXPECT_EQ(lab.outcomes(frames).of(Who::kKernel), kManySyns);
  lab.expect_empty();
}

std::string name_of(const ::testing::TestParamInfo<EachEnd::ParamType>& i) {
  const auto& [v6, kind, names_link, options, tags] = i.param;
  return std::string(v6 ? "v6" : "v4") + (kind == Kind::kWild ? "_wild" : "_local") +
         (names_link ? "_link" : "") + (options != 0 ? "_options" + std::to_string(options) : "") +
         (tags ? "_tags" : "");
}

INSTANTIATE_TEST_SUITE_P(SteeringShared, EachEnd,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values(Kind::kLocal, Kind::kWild),
                                            ::testing::Bool(), ::testing::Values(0U),
                                            ::testing::Bool()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(IpOptions, EachEnd,
                         ::testing::Combine(::testing::Values(false),
                                            ::testing::Values(Kind::kWild),
                                            ::testing::Values(false), ::testing::Values(1U, 10U),
                                            ::testing::Values(false)),
                         name_of);

TEST_F(SteeringShared, TheSpreadDependsOnEachPartOfTheFlow) {
  ShareLab lab;
  ASSERT_TRUE(lab.add_all());
  for (const bool v6 : {false, true}) {
    const Flow flow{kTcp, v6};
    for (xdp::Steering* s : lab.members()) ASSERT_TRUE(s->share(flow.key(Kind::kWild)));
    std::vector<Bytes> from_hosts;  // one port of many hosts
    for (unsigned i = 0; i < kManySyns; ++i) {
      FrameSpec s;
      s.proto = kTcp;
      const unsigned host = 100 + i;
      s.from = {*IpAddr::parse(v6 ? "fd76:0:0:" + std::to_string(i % 4) + "::" + std::to_string(i)
                                  : "10.1." + std::to_string(host / 256) + "." +
                                        std::to_string(host % 256)),
                kPeerPort, 0};
      s.to = {flow.ours(), flow.port, 0};
      s.to_mac = kOurMac;
      s.flags = kSyn;
      from_hosts.push_back(build_frame(s, {}));
    }
    const Outcomes by_host = lab.outcomes(from_hosts);
    EXPECT_TRUE(by_host.is_even({Who::kA, Who::kB, Who::kC})) << by_host;
    for (xdp::Steering* s : lab.members()) s->remove_all_of(s->slot());
    for (xdp::Steering* s : lab.members()) ShareLab::accept(*s, true);
    ASSERT_TRUE(lab.a->set_socket(QueueId(0), lab.socket_a->fd()));
    ASSERT_TRUE(lab.b->set_socket(QueueId(0), lab.socket_b->fd()));
    ASSERT_TRUE(lab.c->set_socket(QueueId(0), lab.socket_c->fd()));
  }
}

TEST_F(SteeringShared, ExactRulesComeFirst) {
  ShareLab lab;
  ASSERT_TRUE(lab.add_all());
  for (const bool v6 : {false, true}) {
    const Flow flow{kTcp, v6}, spared{kTcp, v6, 80, 5001}, strange{kTcp, v6, 80, 5002};
    const Flow of_c{kTcp, v6, 80, 5003};
    std::vector<std::pair<xdp::Steering*, uint64_t>> rules;
    const auto keep = [&](xdp::Steering* s, const Result<uint64_t>& id) {
      ASSERT_TRUE(id);
      rules.emplace_back(s, *id);
    };
    keep(lab.c.get(), lab.c->add(of_c.key(Kind::kExact), FlowTag()));
    for (xdp::Steering* s : lab.members()) keep(s, s->share(flow.key(Kind::kWild)));
    keep(lab.b.get(), lab.b->add(flow.key(Kind::kExact), FlowTag()));
    keep(lab.b.get(), lab.b->spare(spared.key(Kind::kExact)));
    for (const uint8_t flags : {kSyn, uint8_t{0x18}}) {
      const auto with_flags = [&](Flow f) {
        f.flags = flags;
        return f.frame();
      };
      EXPECT_EQ(lab.outcome(with_flags(flow)), Who::kB);
      EXPECT_EQ(lab.outcome(with_flags(of_c)), Who::kC);
      EXPECT_EQ(lab.outcome(with_flags(spared)), Who::kKernel);
    }
    EXPECT_EQ(lab.outcome(strange.frame()), Who::kA);
    for (const auto& [s, id] : rules) s->remove(id);
  }
  lab.expect_empty();
}

TEST_F(SteeringShared, ErrorsAndFragmentsGoToTheFirst) {
  ShareLab lab;
  ASSERT_TRUE(lab.add_all());
  for (const bool v6 : {false, true}) {
    const Flow flow{kTcp, v6, 80, kPeerPort, kSyn}, of_b{kTcp, v6, 80, 5001};
    const auto first = lab.c->share(flow.key(Kind::kWild));
    const auto second = lab.a->share(flow.key(Kind::kWild));
    const auto exact = lab.b->add(of_b.key(Kind::kExact), FlowTag());
    ASSERT_TRUE(first && second && exact);
    EXPECT_EQ(lab.outcome(flow.error()), Who::kC);
    EXPECT_EQ(lab.outcome(of_b.error()), Who::kB);
    EXPECT_EQ(lab.outcome(flow.fragment(1, true)), Who::kKernel) << "it takes none";
    GroupLab::tell(*lab.c, true);
    EXPECT_EQ(lab.outcome(flow.fragment(2, true)), Who::kC);
    EXPECT_EQ(lab.outcome(flow.fragment(2, false)), Who::kC);
    GroupLab::tell(*lab.c, false);
    GroupLab::tell(*lab.a, true);
    EXPECT_EQ(lab.outcome(flow.fragment(3, true)), Who::kKernel) << "the first takes none";
    GroupLab::tell(*lab.a, false);
    lab.a->remove(*second);
    lab.b->remove(*exact);
    lab.c->remove(*first);
  }
  lab.expect_empty();
}

TEST_F(SteeringShared, FramesOfAVlanAreSpreadToo) {
  ShareLab lab;
  ASSERT_TRUE(lab.add_all());
  const HostLink links[] = {{VlanId(), kOurMac}, {VlanId(5), kOurMac}};
  const IpAddr ours[] = {kOurs4, kOurs6};
  lab.a->set_host({links, ours});
  for (const bool v6 : {false, true})
    for (const VlanId link : {VlanId(), VlanId(5)}) {
      const Flow flow{kTcp, v6};
      FlowKey key = flow.key(Kind::kWild);
      key.vlan = link;
      const auto of_b = lab.b->share(key), of_c = lab.c->share(key);
      ASSERT_TRUE(of_b && of_c);
      const auto untagged = syns(flow);
      auto frames = untagged, with_options = syns(flow, v6 ? 0 : kManySyns, 10000, 3);
      for (Bytes& f : frames) f = with_tag(f, 0x8100, 5);
      for (Bytes& f : with_options) f = with_tag(f, 0x8100, 5);
      // The tap of the kernel shows frames without their tag, but none goes there.
      const Outcomes tagged = lab.outcomes(frames);
      EXPECT_TRUE(tagged.is_even({Who::kB, Who::kC})) << tagged;
      EXPECT_TRUE(v6 || lab.outcomes(with_options) == tagged) << "options change nothing";
      EXPECT_EQ(lab.outcome(with_tag(flow.frame(), 0x8100, 5)), Who::kB);
      EXPECT_EQ(lab.outcomes(untagged).of(Who::kKernel), link == VlanId() ? 0U : kManySyns);
      lab.b->remove(*of_b);
      lab.c->remove(*of_c);
    }
  lab.expect_empty();
}

TEST_F(SteeringShared, WhoDoesNotAcceptGetsNone) {
  ShareLab lab;
  ASSERT_TRUE(lab.add_all());
  for (const bool v6 : {false, true}) {
    const Flow flow{kTcp, v6};
    const auto frames = syns(flow);
    std::array<uint64_t, 3> ids{};
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto id = lab.members()[i]->share(flow.key(Kind::kLocal));
      ASSERT_TRUE(id);
      ids[i] = *id;
    }
    const Outcomes all = lab.outcomes(frames);
    // The first sharer, too.
    ShareLab::accept(*lab.a, false);
    const Outcomes without_a = lab.outcomes(frames);
    EXPECT_TRUE(without_a.is_even({Who::kB, Who::kC})) << without_a;
    EXPECT_EQ(without_a.lost(all, Who::kB) + without_a.lost(all, Who::kC), 0U);
    EXPECT_EQ(lab.outcome(flow.frame()), Who::kA) << "of a connection that is there";
    ShareLab::accept(*lab.c, false);
    EXPECT_EQ(lab.outcomes(frames).of(Who::kB), kManySyns);
    ShareLab::accept(*lab.b, false);
    EXPECT_EQ(lab.outcomes(frames).of(Who::kKernel), kManySyns) << "none accepts";
    ShareLab::accept(*lab.c, true);
    EXPECT_EQ(lab.outcomes(frames).of(Who::kC), kManySyns);
    for (xdp::Steering* s : lab.members()) ShareLab::accept(*s, true);
    EXPECT_EQ(lab.outcomes(frames), all);
    for (size_t i = 0; i < ids.size(); ++i) lab.members()[i]->remove(ids[i]);
  }
  lab.expect_empty();
}

TEST_F(SteeringShared, AcceptingEndsAtItsTime) {
  ShareLab lab;
  ASSERT_TRUE(lab.add_all());
  const Flow flow{kTcp, false};
  ASSERT_TRUE(lab.a->share(flow.key(Kind::kLocal)) && lab.b->share(flow.key(Kind::kLocal)));
  const auto frames = syns(flow, 64);
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
  };
  lab.b->accepting().store(now() + 60'000'000'000, std::memory_order_relaxed);
  EXPECT_GT(lab.outcomes(frames).of(Who::kB), 0U);
  const uint64_t end = now() + 20'000'000;
  lab.b->accepting().store(end, std::memory_order_relaxed);
  while (now() <= end) usleep(1000);
  EXPECT_EQ(lab.outcomes(frames).of(Who::kA), frames.size());
}

TEST_F(SteeringShared, WhenTheFirstLeavesAnotherIsFirst) {
  ShareLab lab;
  ASSERT_TRUE(lab.add_all());
  for (const bool v6 : {false, true})
    for (const bool buried : {false, true}) {
      const Flow flow{kTcp, v6};
      const FlowKey key = flow.key(Kind::kWild);
      const auto frames = syns(flow);
      EXPECT_FALSE(leads(*lab.a, key));
      const auto of_c = lab.c->share(key), of_b = lab.b->share(key), of_a = lab.a->share(key);
      ASSERT_TRUE(of_a && of_b && of_c);
      const auto firsts = [&] {
        return std::array{leads(*lab.a, key), leads(*lab.b, key), leads(*lab.c, key)};
      };
      EXPECT_EQ(firsts(), (std::array{false, false, true}));
      EXPECT_TRUE(lab.c->brings_connections(*of_c));
      EXPECT_FALSE(lab.a->brings_connections(*of_a));
      EXPECT_EQ(lab.outcome(flow.frame()), Who::kC);
      EXPECT_EQ(lab.a->holder_of(key).value_or(99), GroupLab::kSlotC);
      if (buried) {
        lab.a->remove_all_of(GroupLab::kSlotC);
        ASSERT_TRUE(lab.c->set_socket(QueueId(0), lab.socket_c->fd()));
      } else {
        lab.c->remove(*of_c);
      }
      EXPECT_EQ(firsts(), (std::array{true, false, false}));
      EXPECT_TRUE(lab.a->brings_connections(*of_a));
      EXPECT_FALSE(lab.b->brings_connections(*of_b));
      EXPECT_EQ(lab.outcome(flow.frame()), Who::kA);
      EXPECT_TRUE(lab.outcomes(frames).is_even({Who::kA, Who::kB}));
      // Who comes back is not the first again.
      ShareLab::accept(*lab.c, true);
      const auto again = lab.c->share(key);
      ASSERT_TRUE(again);
      EXPECT_EQ(lab.outcome(flow.frame()), Who::kA);
      lab.a->remove(*of_a);
      EXPECT_EQ(firsts(), (std::array{false, true, false}));
      EXPECT_TRUE(lab.outcomes(frames).is_even({Who::kB, Who::kC}));
      lab.b->remove(*of_b);
      EXPECT_EQ(firsts(), (std::array{false, false, true}));
      EXPECT_EQ(lab.outcome(flow.frame()), Who::kC);
      lab.c->remove(*again);
      EXPECT_EQ(lab.outcome(flow.frame()), Who::kKernel);
      lab.expect_empty();
    }
}

TEST_F(SteeringShared, RulesOfOneMemberAndSharedOnesExcludeEachOther) {
  ShareLab lab;
  ASSERT_TRUE(lab.add_all());
  const auto code = [](const auto& r) { return r ? 0 : r.error().code; };
  for (const bool v6 : {false, true})
    for (const Kind kind : {Kind::kLocal, Kind::kWild}) {
      const Flow flow{kTcp, v6};
      const FlowKey key = flow.key(kind);
      const auto plain = lab.a->add(key, FlowTag());
      ASSERT_TRUE(plain);
      EXPECT_EQ(code(lab.a->share(key)), EEXIST);
      EXPECT_EQ(code(lab.b->share(key)), EBUSY);
      EXPECT_EQ(lab.outcome(Flow{kTcp, v6, 80, kPeerPort, kSyn}.frame()), Who::kA);
      lab.a->remove(*plain);
      const auto of_b = lab.b->share(key), of_a = lab.a->share(key);
      ASSERT_TRUE(of_a && of_b);
      for (const auto& s : {lab.a, lab.b, lab.c}) EXPECT_EQ(code(s->add(key, {})), EEXIST);
      for (const auto& s : {lab.a, lab.b}) EXPECT_EQ(code(s->share(key)), EEXIST);
      // Another key of the port is another matter.
      const auto beside =
          lab.c->add(flow.key(kind == Kind::kWild ? Kind::kLocal : Kind::kWild), {});
      ASSERT_TRUE(beside);
      EXPECT_EQ(lab.outcome(flow.frame()), kind == Kind::kWild ? Who::kC : Who::kB);
      lab.c->remove(*beside);
      EXPECT_EQ(lab.outcome(flow.frame()), Who::kB);
      lab.b->remove(*of_b);
      lab.a->remove(*of_a);
      EXPECT_EQ(code(lab.a->share(flow.key(Kind::kExact))), EINVAL);
      EXPECT_EQ(code(lab.a->share(Flow{kTcp, v6, 0}.key(kind))), EINVAL);
    }
  lab.expect_empty();
}

TEST_F(SteeringShared, TheKernelsConnectionsStayTheKernels) {
  ShareLab lab;
  ASSERT_TRUE(lab.add_all());
  ASSERT_TRUE(run("ip address add 10.0.0.1 dev lo && ip address add 10.0.0.2 dev lo"));
  const auto address = [](const char* host, uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    inet_pton(AF_INET, host, &a.sin_addr);
    return a;
  };
  const auto bound = [&](const char* host, uint16_t port) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in a = address(host, port);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a), 0);
    return fd;
  };
  const UniqueFd listener = bound("10.0.0.1", 80), client = bound("10.0.0.2", kPeerPort);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  const sockaddr_in to = address("10.0.0.1", 80);
  ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);

  const Flow flow{}, stranger{kTcp, false, 80, 5001};
  ASSERT_TRUE(lab.a->share(flow.key(Kind::kWild)) && lab.b->share(flow.key(Kind::kWild)));
  EXPECT_EQ(lab.outcome(flow.frame()), Who::kA);
  lab.b->ask_kernel(80, true);
  const Flow opening{kTcp, false, 80, kPeerPort, kSyn};
  EXPECT_EQ(lab.outcome(flow.frame()), Who::kKernel);
  EXPECT_EQ(lab.outcome(opening.frame()), Who::kKernel);
  EXPECT_EQ(lab.outcome(stranger.frame()), Who::kA);
  EXPECT_TRUE(lab.outcomes(syns(flow)).is_even({Who::kA, Who::kB}));
  EXPECT_TRUE(run("ip address del 10.0.0.1/32 dev lo && ip address del 10.0.0.2/32 dev lo"));
}

TEST_F(SteeringShared, NothingIsLeftOfAThousandEnds) {
  ShareLab lab(false, 1, 512);
  ASSERT_TRUE(lab.add_all());
  for (unsigned round = 0; round < 1000; ++round) {
    const Flow flow{kTcp, round % 2 != 0, static_cast<uint16_t>(1000 + round % 300)};
    const FlowKey key = flow.key(round % 3 != 0 ? Kind::kLocal : Kind::kWild);
    std::array<uint64_t, 3> ids{};
    for (unsigned i = 0; i < 3; ++i) {
      const auto id = lab.members()[(i + round) % 3]->share(key);
      ASSERT_TRUE(id) << id.error().where;
      ids[(i + round) % 3] = *id;
    }
    for (unsigned i = 0; i < 3; ++i) {
      const unsigned who = (2 * i + round / 7) % 3;
      if (round % 5 == 4 && i == 1)
        lab.a->remove_all_of(lab.members()[who]->slot());
      else
        lab.members()[who]->remove(ids[who]);
    }
  }
  lab.expect_empty();
}

TEST_F(SteeringShared, TheEndsAreUsedUpForAll) {
  ShareLab lab(false, 1, 512);
  ASSERT_TRUE(lab.add_all());
  const auto key = [](unsigned i) {
    return Flow{kTcp, i % 2 != 0, static_cast<uint16_t>(1000 + i)}.key(Kind::kLocal);
  };
  std::vector<uint64_t> ids;
  for (unsigned i = 0; i < STEER_SHARED_ENDS; ++i) {
    const auto id = lab.a->share(key(i));
    ASSERT_TRUE(id) << i << ": " << id.error().where;
    ids.push_back(*id);
  }
  for (const auto& s : {lab.a, lab.b}) {
    const auto refused = s->share(key(STEER_SHARED_ENDS));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ENOSPC);
  }
  EXPECT_TRUE(lab.b->share(key(0))) << "one that is there has room";
  EXPECT_TRUE(lab.b->add(key(STEER_SHARED_ENDS), {})) << "a rule of its own";
  // Ends with the highest number and a neighbour's.
  for (const unsigned i : {0U, 254U, 255U}) {
    const Flow flow{kTcp, i % 2 != 0, static_cast<uint16_t>(1000 + i)};
    const Outcomes got = lab.outcomes(syns(flow, 64));
    EXPECT_EQ(got.of(Who::kA) + got.of(Who::kB), 64U);
    EXPECT_EQ(got.of(Who::kB) > 0, i == 0);
  }
  lab.a->remove(ids[77]);
  EXPECT_TRUE(lab.b->share(key(STEER_SHARED_ENDS + 1)));
  lab.a->remove_all_of(GroupLab::kSlotA);
  lab.a->remove_all_of(GroupLab::kSlotB);
  lab.expect_empty();
}

/// The rules for local ends are limited as without sharing, once for each rule.
TEST_F(SteeringShared, ARuleCountsOnce) {
  ShareLab lab(false, 1, 2);
  ASSERT_TRUE(lab.add_all());
  const Flow one{kTcp, false, 80}, two{kTcp, false, 81}, three{kTcp, false, 82};
  for (xdp::Steering* s : lab.members()) ASSERT_TRUE(s->share(one.key(Kind::kLocal)));
  EXPECT_EQ(lab.ports.counts().listeners[0], 1U);
  ASSERT_TRUE(lab.a->share(two.key(Kind::kLocal)));
  const auto refused = lab.b->share(three.key(Kind::kLocal));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENOSPC);
  EXPECT_TRUE(lab.b->share(two.key(Kind::kLocal)));
}

/// A device, of a process without a group.
TEST_F(SteeringShared, AProcessAloneSharesWithItself) {
  for (const XdpMode mode : {XdpMode::kNative, XdpMode::kGeneric}) {
    Sides sides(mode);
    ASSERT_TRUE(sides.is_open) << sides.end.error.where;
    Device& device = sides.device();
    std::atomic<uint64_t>* const accepting = device.accepting();
    ASSERT_NE(accepting, nullptr);
    EXPECT_EQ(accepting->load(), 0U);
    for (const bool v6 : {false, true}) {
      const Flow flow{kTcp, v6}, opening{kTcp, v6, 80, kPeerPort, kSyn};
      const FlowKey key = flow.key(Kind::kWild);
      auto rule = device.share(key, sides.queue());
      ASSERT_TRUE(rule) << rule.error().where;
      EXPECT_TRUE(rule->brings_connections());
      EXPECT_EQ(sides.outcome(opening.frame()), To::kKernel);
      EXPECT_EQ(sides.outcome(flow.frame()), To::kUs);
      accepting->store(Device::kAcceptsNow);
      EXPECT_EQ(sides.outcome(opening.frame()), To::kUs);
      accepting->store(0);
      const auto twice = device.share(key, sides.queue());
      ASSERT_FALSE(twice);
      EXPECT_EQ(twice.error().code, EEXIST);
      const auto plain = device.steer(key, FlowTag(1), sides.queue());
      ASSERT_FALSE(plain);
      EXPECT_EQ(plain.error().code, EEXIST);
      rule->reset();
      EXPECT_EQ(sides.outcome(flow.frame()), To::kKernel);
      const auto next = device.steer(key, FlowTag(1), sides.queue());
      EXPECT_TRUE(next) << "the key is free again";
      const auto taken = device.share(key, sides.queue());
      ASSERT_FALSE(taken);
      EXPECT_EQ(taken.error().code, EEXIST);
    }
  }
}

/// Sends SYNs, each of them new, until told to stop.
class Sender {
 public:
  Sender(ShareLab& lab, const Flow& flow) : lab_(lab), flow_(flow) {}
  /// Sends and counts for a while, as `change` happens in another thread.
  template <class Change>
  void during(const Change& change) {
    std::atomic<bool> done{false};
    std::jthread other([&] {
      change();
      done.store(true);
    });
    do {
      const Outcomes got = lab_.outcomes(syns(flow_, 16, port_));
      port_ = static_cast<uint16_t>(port_ + 16);
      for (const auto& [w, n] : {std::pair{Who::kA, &a}, {Who::kB, &b}, {Who::kKernel, &kernel}})
        *n += got.of(w);
      sent += 16;
    } while (!done.load());
  }
  unsigned sent = 0, a = 0, b = 0, kernel = 0;

 private:
  ShareLab& lab_;
  const Flow flow_;
  uint16_t port_ = 1024;
};

TEST_F(SteeringShared, NoSynIsLostInAChange) {
  ShareLab lab;
  ASSERT_TRUE(lab.add_all());
  const Flow flow{kTcp, false};
  const FlowKey key = flow.key(Kind::kWild);
  ASSERT_TRUE(lab.a->share(key));
  Sender sender(lab, flow);
  for (int round = 0; round < 60; ++round) {
    ShareLab::accept(*lab.b, true);
    ASSERT_TRUE(lab.b->set_socket(QueueId(0), lab.socket_b->fd()));
    const bool is_buried = round % 2 != 0;
    sender.during([&] {
      for (int i = 0; i < 20; ++i) {
        const auto id = lab.b->share(key);
        usleep(200);
        if (id) lab.b->remove(*id);
      }
      EXPECT_TRUE(lab.b->share(key));
      usleep(2000);
      if (is_buried) lab.a->remove_all_of(GroupLab::kSlotB);
    });
    if (!is_buried) {
      EXPECT_GT(lab.outcomes(syns(flow, 64)).of(Who::kB), 0U);
      lab.a->remove_all_of(GroupLab::kSlotB);
    }
    EXPECT_EQ(lab.outcomes(syns(flow, 32)).of(Who::kA), 32U);
  }
  EXPECT_EQ(sender.kernel, 0U);
  EXPECT_EQ(sender.a + sender.b, sender.sent);
  EXPECT_GT(sender.b, 0U);
}

TEST_F(SteeringShared, TheFirstChangesWhileItsFramesArrive) {
  ShareLab lab;
  ASSERT_TRUE(lab.add_all());
  const Flow flow{kTcp, true};
  const FlowKey key = flow.key(Kind::kWild);
  auto of_a = lab.a->share(key);
  ASSERT_TRUE(of_a);
  std::vector<Bytes> data = syns(flow, 32);
  for (Bytes& f : data) f[kEthernet + 40 + 13] = std::byte(0x10);
  for (int round = 0; round < 50; ++round) {
    std::jthread changer([&] {
      const auto of_b = lab.b->share(key);
      lab.a->remove(*of_a);
      of_a = lab.a->share(key);
      lab.b->remove(*of_b);
    });
    const Outcomes got = lab.outcomes(data);
    EXPECT_EQ(got.of(Who::kA) + got.of(Who::kB), data.size()) << got;
    changer.join();
    EXPECT_EQ(lab.outcomes(data).of(Who::kA), data.size());
  }
}

}  // namespace
}  // namespace vireo::test
