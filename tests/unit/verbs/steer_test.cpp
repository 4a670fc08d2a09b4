// What a rule asks of a frame's Ethernet header: the interface's address or the group's, and the
// VLAN where the flow has one.
#include "dev/verbs/steer.h"

#include <gtest/gtest.h>

#include <cstring>

namespace vireo::verbs {
namespace {

ibv_flow_spec_eth ethernet_of(const FlowKey& key) {
  const std::array<uint8_t, 6> mac{2, 0, 0, 0, 0, 1};
  const FlowRequest r = flow_request(key, 1, mac, FlowTag());
  ibv_flow_spec_eth eth;
  std::memcpy(&eth, r.specs, sizeof eth);
  EXPECT_EQ(eth.type, IBV_FLOW_SPEC_ETH);
  return eth;
}

FlowKey flow_to(const char* local) {
  FlowKey key;
  key.proto = IpProto::kUdp;
  key.local = {*IpAddr::parse(local), 7000, 0};
  return key;
}

TEST(Steer, UntaggedOrAny) {
  const auto eth = ethernet_of(flow_to("10.0.0.1"));
  EXPECT_EQ(eth.val.dst_mac[5], 1);
  EXPECT_EQ(eth.mask.dst_mac[5], 0xff);
  EXPECT_EQ(eth.mask.vlan_tag, 0);
}

TEST(Steer, OfAVlan) {
  for (const char* local : {"10.0.0.1", "239.1.2.3", "0.0.0.0", "fd00::1"}) {
    FlowKey key = flow_to(local);
    key.v6 = !key.local.addr.is_v4();
    key.vlan = VlanId(0x123);
    const auto eth = ethernet_of(key);
    EXPECT_EQ(eth.val.vlan_tag, htons(0x123)) << local;
    EXPECT_EQ(eth.mask.vlan_tag, htons(0x0fff)) << "its priority is nobody's matter";
  }
}

TEST(Steer, GroupsByTheirOwnAddress) {
  const auto eth = ethernet_of(flow_to("239.129.2.3"));
  const uint8_t group[] = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03};
  EXPECT_EQ(std::memcmp(eth.val.dst_mac, group, 6), 0);
}

}  // namespace
}  // namespace vireo::verbs
