// Flow rules of softnic: priorities, drop, multicast to several, what is refused.
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "end.h"

namespace softnic_test {
namespace {

struct [[gnu::packed]] PortRule {
  ibv_flow_attr attr{};
  ibv_flow_spec_eth eth{};
  ibv_flow_spec_tcp_udp udp{};
  ibv_flow_spec_action_drop drop{};
};

ibv_flow* add(End& e, uint16_t port, uint16_t priority, bool drops = false) {
  PortRule r;
  r.attr.type = IBV_FLOW_ATTR_NORMAL;
  r.attr.priority = priority;
  r.attr.port = 1;
  r.attr.num_of_specs = drops ? 3 : 2;
  r.attr.size = static_cast<uint16_t>(sizeof r - (drops ? 0 : sizeof r.drop));
  r.eth.type = IBV_FLOW_SPEC_ETH;
  r.eth.size = sizeof r.eth;
  r.udp.type = IBV_FLOW_SPEC_UDP;
  r.udp.size = sizeof r.udp;
  r.udp.val.dst_port = htons(port);
  r.udp.mask.dst_port = port != 0 ? 0xffff : 0;
  r.drop.type = IBV_FLOW_SPEC_ACTION_DROP;
  r.drop.size = sizeof r.drop;
  alignas(8) std::byte aligned[sizeof r];
  std::memcpy(aligned, &r, sizeof r);
  return ibv_create_flow(e.pair, reinterpret_cast<ibv_flow_attr*>(aligned));
}

class Flows : public ::testing::Test {
 protected:
  void SetUp() override {
    for (uint64_t i = 0; i < 8; ++i) b.post_receive(i, b.segment(i, End::kSlot));
  }
  size_t arrive(uint16_t port, uint8_t mac = 0x02) {
    const auto f = udp_frame(port, 60, mac);
    softnic_inject(b.device, f.data(), f.size());
    return b.poll(b.received).size();
  }
  void keep(ibv_flow* f) {
    ASSERT_NE(f, nullptr);
    b.flows.push_back(f);
  }
  End b{1};
};

TEST_F(Flows, WhatNoRuleWantsIsDropped) {
  const uint64_t before = softnic_counts_of(b.device).rx_no_rule;
  EXPECT_EQ(arrive(7000), 0U);
  EXPECT_EQ(softnic_counts_of(b.device).rx_no_rule, before + 1);
  keep(add(b, 7000, 1));
  EXPECT_EQ(arrive(7000), 1U);
  EXPECT_EQ(arrive(7001), 0U);
}

TEST_F(Flows, TheLowerPriorityNumberGoesFirst) {
  keep(add(b, 0, 5));
  keep(add(b, 7000, 2, /*drops=*/true));
  EXPECT_EQ(arrive(7000), 0U);
  EXPECT_EQ(arrive(7001), 1U);
  keep(add(b, 7000, 1));
  EXPECT_EQ(arrive(7000), 1U);
}

TEST_F(Flows, DefaultRulesTakeWhatIsLeft) {
  keep(add(b, 7000, 0, /*drops=*/true));
  b.take_all();
  EXPECT_EQ(arrive(7000), 0U);
  EXPECT_EQ(arrive(7001), 1U);
}

TEST_F(Flows, AGroupsFrameGoesToEveryRuleOfItsPriority) {
  End other(1);
  other.post_receive(1, other.segment(1, End::kSlot));
  keep(add(b, 7000, 1));
  other.flows.push_back(add(other, 7000, 1));
  EXPECT_EQ(arrive(7000, 0x01), 1U);
  EXPECT_EQ(other.poll(other.received).size(), 1U);
  EXPECT_EQ(arrive(7000), 1U) << "unicast goes to the first";
  EXPECT_EQ(other.poll(other.received).size(), 0U);
}

TEST_F(Flows, APairWithRulesStays) {
  keep(add(b, 7000, 1));
  EXPECT_EQ(ibv_destroy_qp(b.pair), EBUSY);
}

TEST_F(Flows, LongTagsAndOtherPortsAreRefused) {
  struct {
    ibv_flow_attr attr{};
    ibv_flow_spec_action_tag tag{};
  } r;
  r.attr.size = sizeof r;
  r.attr.port = 1;
  r.attr.num_of_specs = 1;
  r.tag.type = IBV_FLOW_SPEC_ACTION_TAG;
  r.tag.size = sizeof r.tag;
  r.tag.tag_id = 0x1000000;
  EXPECT_EQ(ibv_create_flow(b.pair, &r.attr), nullptr);
  EXPECT_EQ(errno, EINVAL) << "a completion has 24 bits for it";
  r.attr.num_of_specs = 0;
  r.attr.port = 2;
  EXPECT_EQ(ibv_create_flow(b.pair, &r.attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace softnic_test
