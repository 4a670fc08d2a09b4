// Which rule a frame matches, over families, VLAN tags, fragments and ICMP errors.
#include "tests/apparatus/mem/steering.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "dev/device.h"

namespace vireo {
namespace {

using Frame = std::vector<std::byte>;

struct NoQueue final : Queue {
  unsigned rx_burst(std::span<RxDesc>) noexcept override { return 0; }
  void rx_refill() noexcept override {}
  bool tx(const TxFrame&, Doorbell) noexcept override { return false; }
  void tx_flush() noexcept override {}
  unsigned tx_reap() noexcept override { return 0; }
  Result<bool> arm() noexcept override { return true; }
  int wait_fd() const noexcept override { return -1; }
};

Frame bytes(std::initializer_list<unsigned> b) {
  Frame f;
  for (unsigned v : b) f.push_back(static_cast<std::byte>(v));
  return f;
}

Frame operator+(Frame a, const Frame& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Frame kMacs(12);
const Frame kPorts = bytes({0x9c, 0x40, 0, 80, 0, 0, 0, 0});  // from 40000 to 80

Frame ipv4(unsigned proto, unsigned from, unsigned to, unsigned fragment = 0) {
  return bytes({0x45, 0,    0,  0, 0, 0, fragment >> 8, fragment & 255, 64, proto, 0, 0, 10, 0,
                0,    from, 10, 0, 0, to});
}

const Frame kTcp4 = kMacs + bytes({8, 0}) + ipv4(6, 1, 2) + kPorts;

FlowKey key4(const char* local, uint16_t local_port, const char* remote = nullptr,
             uint16_t remote_port = 0) {
  FlowKey k;
  k.local = {*IpAddr::parse(local), local_port, 0};
  if (remote != nullptr) k.remote = {*IpAddr::parse(remote), remote_port, 0};
  return k;
}

TEST(MemSteering, ReadsTheFlow) {
  const auto k = flow_of(kTcp4);
  ASSERT_TRUE(k);
  EXPECT_EQ(*k, key4("10.0.0.2", 80, "10.0.0.1", 40000));
}

TEST(MemSteering, LooksThroughVlanTags) {
  const Frame one = kMacs + bytes({0x81, 0, 0, 5, 8, 0}) + ipv4(6, 1, 2) + kPorts;
  const Frame two = kMacs + bytes({0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0}) + ipv4(6, 1, 2) + kPorts;
  EXPECT_EQ(flow_of(one), flow_of(kTcp4));
  EXPECT_EQ(flow_of(two), flow_of(kTcp4));
}

TEST(MemSteering, FragmentsHaveNoFlow) {
  EXPECT_FALSE(
      flow_of(kMacs + bytes({8, 0}) + ipv4(17, 1, 2, 0x2000) + kPorts));  // first of several
  EXPECT_FALSE(flow_of(kMacs + bytes({8, 0}) + ipv4(17, 1, 2, 0x0010) + kPorts));  // a later one
  EXPECT_TRUE(flow_of(kMacs + bytes({8, 0}) + ipv4(17, 1, 2, 0x4000) + kPorts));  // do not fragment
}

TEST(MemSteering, ShortFramesHaveNoFlow) {
  for (size_t n = 0; n < kTcp4.size() - 4; ++n)
    EXPECT_FALSE(flow_of(std::span(kTcp4).first(n))) << n;
}

TEST(MemSteering, IcmpErrorsBelongToTheFlowTheyQuote) {
  const Frame error = bytes({3, 4, 0, 0, 0, 0, 5, 0});
  const Frame quoted = ipv4(6, 2, 9) + bytes({0, 80, 0x9c, 0x40, 0, 0, 0, 0});
  const auto k = flow_of(kMacs + bytes({8, 0}) + ipv4(1, 7, 2) + error + quoted);
  ASSERT_TRUE(k);
  EXPECT_EQ(*k, key4("10.0.0.2", 80, "10.0.0.9", 40000));
  EXPECT_FALSE(
      flow_of(kMacs + bytes({8, 0}) + ipv4(1, 7, 2) + bytes({8, 0, 0, 0, 0, 0, 0, 0}) + quoted));
}

TEST(MemSteering, ExactBeforeLocalBeforeWildcard) {
  SteeringTable table;
  NoQueue q;
  const auto any = table.add(key4("0.0.0.0", 80), FlowTag(1), q);
  EXPECT_EQ(table.match(kTcp4)->tag, FlowTag(1));
  const auto local = table.add(key4("10.0.0.2", 80), FlowTag(2), q);
  EXPECT_EQ(table.match(kTcp4)->tag, FlowTag(2));
  const auto exact = table.add(key4("10.0.0.2", 80, "10.0.0.1", 40000), FlowTag(3), q);
  EXPECT_EQ(table.match(kTcp4)->tag, FlowTag(3));
  ASSERT_TRUE(any && local && exact);
  const auto again = table.add(key4("::", 80), FlowTag(4), q);
  ASSERT_FALSE(again) << "the wildcard, spelt in the other family";
  EXPECT_EQ(again.error().code, EEXIST);
  table.remove(*exact);
  EXPECT_EQ(table.match(kTcp4)->tag, FlowTag(2));
  table.remove(*local);
  table.remove(*any);
  EXPECT_EQ(table.match(kTcp4), nullptr);
}

TEST(MemSteering, OtherProtocolFamilyOrPortDoesNotMatch) {
  SteeringTable table;
  NoQueue q;
  FlowKey udp = key4("0.0.0.0", 80);
  udp.proto = IpProto::kUdp;
  FlowKey v6 = key4("::", 80);
  v6.v6 = true;
  table.add(udp, FlowTag(1), q);
  table.add(v6, FlowTag(2), q);
  table.add(key4("0.0.0.0", 81), FlowTag(3), q);
  table.add(key4("10.0.0.2", 80, "10.0.0.1", 40001), FlowTag(4), q);
  EXPECT_EQ(table.match(kTcp4), nullptr);
}

}  // namespace
}  // namespace vireo
