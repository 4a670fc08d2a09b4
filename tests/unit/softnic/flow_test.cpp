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

/// UDP from `from`:6000 (any, if 0) to 10.0.0.2:`port`; the destination's first byte is `mac`.
struct FlowOptions {
  uint32_t from = 0x0a000001;
  uint16_t priority = 0;
  uint32_t tag = 0;
  uint16_t vlan = 0;  ///< 0: with any or none
};

ibv_flow* add_flow(End& e, uint16_t port, const FlowOptions& o = {}) {
  struct {
    ibv_flow_attr attr{};
    std::byte specs[sizeof(ibv_flow_spec_eth) + sizeof(ibv_flow_spec_ipv4) +
                    sizeof(ibv_flow_spec_tcp_udp) + sizeof(ibv_flow_spec_action_tag)];
  } r;
  std::byte* at = r.specs;
  const auto put = [&](auto spec, ibv_flow_spec_type type) {
    spec.type = type;
    spec.size = sizeof spec;
    std::memcpy(at, &spec, sizeof spec);
    at += sizeof spec;
    ++r.attr.num_of_specs;
  };
  ibv_flow_spec_eth eth{};
  if (o.vlan != 0) {
    eth.val.vlan_tag = htons(o.vlan);
    eth.mask.vlan_tag = htons(0x0fff);
  }
  put(eth, IBV_FLOW_SPEC_ETH);
  ibv_flow_spec_ipv4 ip{};
  ip.val.dst_ip = htonl(0x0a000002);
  ip.mask.dst_ip = UINT32_MAX;
  ibv_flow_spec_tcp_udp udp{};
  udp.val.dst_port = htons(port);
  udp.mask.dst_port = UINT16_MAX;
  if (o.from != 0) {
    ip.val.src_ip = htonl(o.from);
    ip.mask.src_ip = UINT32_MAX;
    udp.val.src_port = htons(6000);
    udp.mask.src_port = UINT16_MAX;
  }
  put(ip, IBV_FLOW_SPEC_IPV4);
  put(udp, IBV_FLOW_SPEC_UDP);
  if (o.tag != 0) {
    ibv_flow_spec_action_tag tag{};
    tag.tag_id = o.tag;
    put(tag, IBV_FLOW_SPEC_ACTION_TAG);
  }
  r.attr.type = IBV_FLOW_ATTR_NORMAL;
  r.attr.priority = o.priority;
  r.attr.port = 1;
  r.attr.size = static_cast<uint16_t>(sizeof r.attr + static_cast<size_t>(at - r.specs));
  return ibv_create_flow(e.pair, &r.attr);
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

/// The flow's own rule, that of its local end and one that names no flow: by priority, then age,
/// wherever they are kept.
TEST_F(Flows, RulesOfAllKindsGoByPriority) {
  End other(1);
  other.post_receive(1, other.segment(1, End::kSlot));
  other.post_receive(2, other.segment(2, End::kSlot));
  keep(add(b, 0, 3));
  EXPECT_EQ(arrive(7000), 1U);
  other.flows.push_back(add_flow(other, 7000, {.from = 0, .priority = 1}));
  EXPECT_EQ(arrive(7000), 0U) << "of its local end";
  EXPECT_EQ(other.poll(other.received).size(), 1U);
  keep(add_flow(b, 7000, {.priority = 1}));
  EXPECT_EQ(arrive(7000), 0U) << "the older goes first";
  EXPECT_EQ(other.poll(other.received).size(), 1U);
  keep(add_flow(b, 7000, {.priority = 0}));
  EXPECT_EQ(arrive(7000), 1U);
  EXPECT_EQ(arrive(7001), 1U) << "the one that names no flow";
  ASSERT_EQ(ibv_destroy_flow(b.flows.back()), 0);
  b.flows.pop_back();
  keep(add_flow(b, 7000, {.priority = 0}));
  EXPECT_EQ(arrive(7000), 1U) << "another in its place";
}

/// Of ten thousand rules a frame is held against those of its flow, however they came and went.
TEST_F(Flows, ManyRulesCostAFrameNothing) {
  constexpr uint16_t kRules = 10'000;
  for (uint16_t i = 0; i < kRules; ++i) {
    keep(add_flow(b, static_cast<uint16_t>(10'000 + i), {.priority = 1}));
    keep(add_flow(b, static_cast<uint16_t>(10'000 + i), {.from = 0, .priority = 2}));
  }
  for (size_t i = 0; i < b.flows.size(); i += 3) {
    ASSERT_EQ(ibv_destroy_flow(b.flows[i]), 0);
    b.flows.erase(b.flows.begin() + static_cast<ptrdiff_t>(i));
  }
  const auto compared = [&] { return softnic_counts_of(b.device).rules_compared; };
  for (uint16_t i = 0; i < 5; ++i) {
    const uint64_t before = compared();
    EXPECT_EQ(arrive(static_cast<uint16_t>(11'000 + i)), 1U);
    EXPECT_LE(compared() - before, 2U);
    EXPECT_EQ(arrive(9'000), 0U) << "nobody's";
    EXPECT_LE(compared() - before, 2U);
  }
}

/// Rules of one flow on several VLANs, and of any: each frame is told by its own.
TEST_F(Flows, AVlanIsPartOfTheRule) {
  End tagged(1,
             {.fields = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_CVLAN});
  for (uint64_t i = 0; i < 4; ++i) tagged.post_receive(i, tagged.segment(i, End::kSlot));
  const auto keep_tagged = [&](ibv_flow* f) {
    ASSERT_NE(f, nullptr);
    tagged.flows.push_back(f);
  };
  keep_tagged(add_flow(tagged, 7000, {.tag = 10, .vlan = 10}));
  keep_tagged(add_flow(tagged, 7000, {.tag = 20, .vlan = 20}));
  keep_tagged(add_flow(tagged, 7000, {.priority = 1, .tag = 1}));
  auto* const cq = reinterpret_cast<ibv_cq_ex*>(tagged.received);
  for (const uint16_t vlan : std::array<uint16_t, 4>{10, 20, 30, 0}) {
    auto f = udp_frame(7000, 20);
    if (vlan != 0) {  // with a priority, which is not the VLAN's
      const uint8_t tag[] = {0x81, 0x00, 0x60, static_cast<uint8_t>(vlan)};
      const auto* at = reinterpret_cast<const std::byte*>(tag);
      f.insert(f.begin() + 12, at, at + sizeof tag);
    }
    softnic_inject(tagged.device, f.data(), f.size());
    ibv_poll_cq_attr attr{};
    ASSERT_EQ(ibv_start_poll(cq, &attr), 0) << vlan;
    EXPECT_EQ(ibv_wc_read_flow_tag(cq), vlan == 10 || vlan == 20 ? vlan : 1U);
    EXPECT_EQ(ibv_wc_read_cvlan(cq), vlan != 0 ? 0x6000U | vlan : 0U);
    ibv_end_poll(cq);
  }
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
