// What the steering program takes and what it leaves to the kernel: a matrix of rules and frames,
// in the driver and in the stack. Every frame goes to exactly one of the two, unchanged.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>

#include "odd_frames.h"
#include "sides.h"

namespace vireo::test {
namespace {

const IpAddr kOurs4 = *IpAddr::parse("10.0.0.1");
const IpAddr kAlso4 = *IpAddr::parse("10.0.0.77");
const IpAddr kPeer4 = *IpAddr::parse("10.0.0.2");
const IpAddr kRouter4 = *IpAddr::parse("10.9.9.9");
const IpAddr kGroup4 = *IpAddr::parse("239.1.2.3");
const IpAddr kOurs6 = *IpAddr::parse("fd76::1");
const IpAddr kAlso6 = *IpAddr::parse("fd76::77");
const IpAddr kPeer6 = *IpAddr::parse("fd76::2");
const IpAddr kRouter6 = *IpAddr::parse("fd76::99");
const IpAddr kGroup6 = *IpAddr::parse("ff02::1:2");
constexpr Mac kOurMac{2, 0, 0, 0, 0, 1};
constexpr Mac kVlanMac{2, 0, 0, 0, 0, 5};  ///< of VLAN 7
constexpr Mac kOtherMac{2, 0, 0, 0, 0, 9};
constexpr Mac kGroupMac{1, 0, 0x5e, 1, 2, 3};
constexpr Mac kBroadcastMac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
const IpAddr kBroadcast4 = *IpAddr::parse("10.0.0.255");

constexpr IpProto kTcp = IpProto::kTcp;
constexpr IpProto kUdp = IpProto::kUdp;

FlowKey key(IpProto proto, const IpAddr& local, uint16_t local_port, const IpAddr& remote = {},
            uint16_t remote_port = 0) {
  FlowKey k;
  k.proto = proto;
  k.v6 = !local.is_v4();
  k.local = {local, local_port, 0};
  k.remote = {remote_port == 0 && local.is_v4() ? IpAddr::any_v4() : remote, remote_port, 0};
  return k;
}

Bytes frame(IpProto proto, const IpAddr& from, uint16_t from_port, const IpAddr& to,
            uint16_t to_port, const Mac& mac = kOurMac) {
  FrameSpec s;
  s.proto = proto;
  s.from = {from, from_port, 0};
  s.to = {to, to_port, 0};
  s.from_mac = {2, 0, 0, 0, 0, 2};
  s.to_mac = mac;
  return build_frame(s, numbered_payload(77, 60));
}

struct Case {
  const char* name;
  std::vector<FlowKey> keys;
  Bytes frame;
  To to;
  std::vector<FlowKey> spared = {};
};
std::ostream& operator<<(std::ostream& o, const Case& c) { return o << c.name; }

const Bytes kTcp4 = frame(kTcp, kPeer4, 5000, kOurs4, 80);
const Bytes kUdp4 = frame(kUdp, kPeer4, 5000, kOurs4, 80);
const Bytes kTcp6 = frame(kTcp, kPeer6, 5000, kOurs6, 80);
const Bytes kUdp6 = frame(kUdp, kPeer6, 5000, kOurs6, 80);
/// What we sent, as an error quotes it.
const Bytes kSentTcp4 = frame(kTcp, kOurs4, 80, kPeer4, 5000);
const Bytes kSentUdp4 = frame(kUdp, kOurs4, 80, kPeer4, 5000);
const Bytes kSentTcp6 = frame(kTcp, kOurs6, 80, kPeer6, 5000);
const Bytes kSentUdp6 = frame(kUdp, kOurs6, 80, kPeer6, 5000);
const FlowKey kExactTcp4 = key(kTcp, kOurs4, 80, kPeer4, 5000);
const FlowKey kExactUdp4 = key(kUdp, kOurs4, 80, kPeer4, 5000);
const FlowKey kExactTcp6 = key(kTcp, kOurs6, 80, kPeer6, 5000);
const FlowKey kExactUdp6 = key(kUdp, kOurs6, 80, kPeer6, 5000);
const FlowKey kLocalTcp4 = key(kTcp, kOurs4, 80);
const FlowKey kLocalUdp4 = key(kUdp, kOurs4, 80);
const FlowKey kLocalTcp6 = key(kTcp, kOurs6, 80);
const FlowKey kWildTcp4 = key(kTcp, IpAddr::any_v4(), 80);
const FlowKey kWildUdp4 = key(kUdp, IpAddr::any_v4(), 80);
const FlowKey kWildTcp6 = key(kTcp, IpAddr(), 80);
const FlowKey kWildUdp6 = key(kUdp, IpAddr(), 80);

FlowKey on_link(FlowKey k, VlanId link) {
  k.vlan = link;
  return k;
}

/// Beyond those that lie in the array, so that some are in the table.
std::vector<IpAddr> more_addresses() {
  std::vector<IpAddr> all{kOurs4, kOurs6};
  for (int i = 100; i < 112; ++i) {
    all.push_back(*IpAddr::parse("10.0.0." + std::to_string(i)));
    all.push_back(*IpAddr::parse("fd76::" + std::to_string(i)));
  }
  all.push_back(kAlso4);
  all.push_back(kAlso6);
  return all;
}

Bytes error4(const Bytes& sent, unsigned type = 3, size_t quoted = 28, unsigned code = 3) {
  return icmp_error(kRouter4, kOurs4, kOurMac, type, code, sent, quoted);
}
Bytes error6(const Bytes& sent, unsigned type = 2, size_t quoted = 48) {
  return icmp_error(kRouter6, kOurs6, kOurMac, type, 0, sent, quoted);
}

const Case kCases[] = {
    {"no_rule", {}, kTcp4, To::kKernel},
    {"exact_tcp4", {kExactTcp4}, kTcp4, To::kUs},
    {"exact_udp4", {kExactUdp4}, kUdp4, To::kUs},
    {"exact_tcp6", {kExactTcp6}, kTcp6, To::kUs},
    {"exact_udp6", {kExactUdp6}, kUdp6, To::kUs},
    {"exact_other_protocol", {kExactTcp4}, kUdp4, To::kKernel},
    {"exact_other_remote_port", {kExactTcp4}, frame(kTcp, kPeer4, 5001, kOurs4, 80), To::kKernel},
    {"exact_other_remote", {kExactTcp4}, frame(kTcp, kRouter4, 5000, kOurs4, 80), To::kKernel},
    {"exact_other_local", {kExactTcp4}, frame(kTcp, kPeer4, 5000, kAlso4, 80), To::kKernel},
    {"exact_other_local_port", {kExactTcp4}, frame(kTcp, kPeer4, 5000, kOurs4, 81), To::kKernel},
    {"exact_turned_round", {kExactTcp4}, frame(kTcp, kOurs4, 80, kPeer4, 5000), To::kKernel},
    {"exact6_other_remote", {kExactTcp6}, frame(kTcp, kRouter6, 5000, kOurs6, 80), To::kKernel},
    {"exact4_leaves_v6", {kExactTcp4}, kTcp6, To::kKernel},
    {"local_tcp4", {kLocalTcp4}, kTcp4, To::kUs},
    {"local_udp4", {kLocalUdp4}, kUdp4, To::kUs},
    {"local_tcp6", {kLocalTcp6}, kTcp6, To::kUs},
    {"local_other_address", {kLocalTcp4}, frame(kTcp, kPeer4, 5000, kAlso4, 80), To::kKernel},
    {"local6_other_address", {kLocalTcp6}, frame(kTcp, kPeer6, 5000, kAlso6, 80), To::kKernel},
    {"local_other_port", {kLocalTcp4}, frame(kTcp, kPeer4, 5000, kOurs4, 8080), To::kKernel},
    {"local_group",
     {key(kUdp, kGroup4, 80)},
     frame(kUdp, kPeer4, 5000, kGroup4, 80, kGroupMac),
     To::kUs},
    {"local_group6",
     {key(kUdp, kGroup6, 80)},
     frame(kUdp, kPeer6, 5000, kGroup6, 80, kGroupMac),
     To::kUs},
    {"local_other_group",
     {key(kUdp, kGroup4, 80)},
     frame(kUdp, kPeer4, 5000, kAlso4, 80),
     To::kKernel},
    {"wild_tcp4", {kWildTcp4}, frame(kTcp, kPeer4, 5000, kAlso4, 80), To::kUs},
    {"wild_udp4", {kWildUdp4}, kUdp4, To::kUs},
    {"wild_tcp6", {kWildTcp6}, frame(kTcp, kPeer6, 5000, kAlso6, 80), To::kUs},
    {"wild_udp6", {kWildUdp6}, kUdp6, To::kUs},
    {"wild4_leaves_v6", {kWildTcp4}, kTcp6, To::kKernel},
    {"wild6_leaves_v4", {kWildTcp6}, kTcp4, To::kKernel},
    {"wild_other_port", {kWildTcp4}, frame(kTcp, kPeer4, 5000, kOurs4, 81), To::kKernel},
    {"wild_other_protocol", {kWildTcp4}, kUdp4, To::kKernel},
    // Who else hears a group or a broadcast gets it from the kernel alone, and so does the socket.
    {"wild_group_frame",
     {kWildUdp4},
     frame(kUdp, kPeer4, 5000, kGroup4, 80, kGroupMac),
     To::kKernel},
    {"wild_group_frame6",
     {kWildUdp6},
     frame(kUdp, kPeer6, 5000, kGroup6, 80, kGroupMac),
     To::kKernel},
    {"wild_broadcast",
     {kWildUdp4},
     frame(kUdp, kPeer4, 5000, kBroadcast4, 80, kBroadcastMac),
     To::kKernel},
    {"wild_limited_broadcast",
     {kWildUdp4},
     frame(kUdp, kPeer4, 5000, *IpAddr::parse("255.255.255.255"), 80, kBroadcastMac),
     To::kKernel},
    {"wild_to_nobody", {kWildUdp4}, frame(kUdp, kPeer4, 5000, IpAddr::any_v4(), 80), To::kKernel},
    {"wild_to_nobody6", {kWildUdp6}, frame(kUdp, kPeer6, 5000, IpAddr(), 80), To::kKernel},
    {"wild_forwarded_tcp4", {kWildTcp4}, frame(kTcp, kPeer4, 5000, kRouter4, 80), To::kKernel},
    {"wild_forwarded_udp4", {kWildUdp4}, frame(kUdp, kPeer4, 5000, kRouter4, 80), To::kKernel},
    {"wild_forwarded_tcp6", {kWildTcp6}, frame(kTcp, kPeer6, 5000, kRouter6, 80), To::kKernel},
    {"wild_forwarded_udp6", {kWildUdp6}, frame(kUdp, kPeer6, 5000, kRouter6, 80), To::kKernel},
    {"wild_unicast_to_a_group_station",
     {kWildUdp4},
     frame(kUdp, kPeer4, 5000, kOurs4, 80, kGroupMac),
     To::kKernel},
    {"local_unicast_to_all_stations",
     {kLocalUdp4},
     frame(kUdp, kPeer4, 5000, kOurs4, 80, kBroadcastMac),
     To::kKernel},
    {"local_other_station",
     {kLocalTcp4},
     frame(kTcp, kPeer4, 5000, kOurs4, 80, kOtherMac),
     To::kKernel},
    {"local6_other_station",
     {kLocalTcp6},
     frame(kTcp, kPeer6, 5000, kOurs6, 80, kOtherMac),
     To::kKernel},
    {"wild_other_station",
     {kWildTcp4},
     frame(kTcp, kPeer4, 5000, kOurs4, 80, kOtherMac),
     To::kKernel},
    {"wild_behind_exact_of_another_flow",
     {kWildTcp4, key(kTcp, kOurs4, 80, kPeer4, 1)},
     kTcp4,
     To::kUs},
    {"local_behind_exact_of_another_flow",
     {kLocalTcp4, key(kTcp, kOurs4, 80, kPeer4, 1)},
     kTcp4,
     To::kUs},
    {"wild_behind_local_of_another_address", {kWildTcp4, key(kTcp, kAlso4, 80)}, kTcp4, To::kUs},

    {"spared4_of_wild", {kWildTcp4}, kTcp4, To::kKernel, {kExactTcp4}},
    {"spared4_of_local", {kLocalTcp4}, kTcp4, To::kKernel, {kExactTcp4}},
    {"spared6_of_wild", {kWildTcp6}, kTcp6, To::kKernel, {kExactTcp6}},
    {"spared_another", {kLocalTcp4}, kTcp4, To::kUs, {key(kTcp, kOurs4, 80, kPeer4, 1)}},
    {"spared_error", {kWildTcp4}, error4(kSentTcp4), To::kKernel, {kExactTcp4}},
    {"spared6_error", {kWildTcp6}, error6(kSentTcp6), To::kKernel, {kExactTcp6}},

    {"vlan", {kExactTcp4}, with_tag(kTcp4, 0x8100, 5), To::kUs},
    {"vlan6", {kExactTcp6}, with_tag(kTcp6, 0x8100, 5), To::kUs},
    {"vlan_priority", {kLocalUdp4}, with_tag(kUdp4, 0x8100, 0xe000), To::kUs},
    {"vlan_wild", {kWildTcp4}, with_tag(kTcp4, 0x8100, 5), To::kUs},
    {"vlan_wild6", {kWildTcp6}, with_tag(kTcp6, 0x8100, 5), To::kUs},
    {"vlan_that_is_not_here", {kWildTcp4}, with_tag(kTcp4, 0x8100, 6), To::kKernel},
    {"vlan_that_is_not_here_exact", {kExactTcp4}, with_tag(kTcp4, 0x8100, 6), To::kKernel},
    {"vlan_with_a_station_of_its_own",
     {kWildTcp4},
     with_tag(frame(kTcp, kPeer4, 5000, kOurs4, 80, kVlanMac), 0x8100, 7),
     To::kUs},
    {"vlan_to_the_station_of_another",
     {kWildTcp4},
     with_tag(frame(kTcp, kPeer4, 5000, kOurs4, 80, kVlanMac), 0x8100, 5),
     To::kKernel},
    {"service_vlan", {kWildTcp4}, with_tag(kTcp4, 0x88a8, 5), To::kKernel},
    {"two_vlans", {kWildTcp4}, with_tag(with_tag(kTcp4, 0x8100, 5), 0x88a8, 5), To::kKernel},
    {"two_vlans_inner_first",
     {kWildTcp4},
     with_tag(with_tag(kTcp4, 0x8100, 5), 0x8100, 5),
     To::kKernel},
    {"link_untagged", {on_link(kWildTcp4, kUntagged)}, kTcp4, To::kUs},
    {"link_untagged_leaves_a_vlan",
     {on_link(kWildTcp4, kUntagged)},
     with_tag(kTcp4, 0x8100, 5),
     To::kKernel},
    {"link_vlan", {on_link(kWildUdp4, VlanId(5))}, with_tag(kUdp4, 0x8100, 5), To::kUs},
    {"link_vlan_leaves_untagged", {on_link(kWildUdp4, VlanId(5))}, kUdp4, To::kKernel},
    {"link_vlan_leaves_another",
     {on_link(kLocalUdp4, VlanId(5))},
     with_tag(frame(kUdp, kPeer4, 5000, kOurs4, 80, kVlanMac), 0x8100, 7),
     To::kKernel},
    {"link_vlan6", {on_link(kWildTcp6, VlanId(5))}, with_tag(kTcp6, 0x8100, 5), To::kUs},
    {"link_untagged6_leaves_a_vlan",
     {on_link(kLocalTcp6, kUntagged)},
     with_tag(kTcp6, 0x8100, 5),
     To::kKernel},
    {"link_of_one_beside_any", {on_link(kWildTcp4, VlanId(5)), kWildTcp4}, kTcp4, To::kUs},
    {"three_vlans",
     {kWildTcp4},
     with_tag(with_tag(with_tag(kTcp4, 0x8100, 5), 0x8100, 6), 0x88a8, 7),
     To::kKernel},
    {"vlan_not_ours", {kExactTcp4}, with_tag(kUdp4, 0x8100, 5), To::kKernel},

    {"ip_options", {kExactTcp4}, with_ip_options(kTcp4, 1), To::kUs},
    {"ip_options_longest", {kExactUdp4}, with_ip_options(kUdp4, 10), To::kUs},
    {"ip_options_hide_no_port",
     {key(kTcp, kOurs4, 0x0101)},
     with_ip_options(kTcp4, 1),
     To::kKernel},
    {"header_too_short",
     {kWildTcp4},
     [] {
       Bytes f = kTcp4;
       put(f, kEthernet, {0x44});
       return f;
     }(),
     To::kKernel},
    {"first_fragment", {kWildUdp4}, as_fragment4(kUdp4, 0x2000), To::kKernel},
    {"later_fragment", {kWildUdp4}, as_fragment4(kUdp4, 0x0010), To::kKernel},
    {"do_not_fragment", {kWildUdp4}, as_fragment4(kUdp4, 0x4000), To::kUs},
    {"fragment6", {kWildUdp6}, with_extension6(kUdp6, 44), To::kKernel},
    {"hop_by_hop6", {kWildUdp6}, with_extension6(kUdp6, 0), To::kKernel},
    {"destination_options6", {kWildTcp6}, with_extension6(kTcp6, 60), To::kKernel},
    {"cut_in_ip", {kWildTcp4}, Bytes(kTcp4.begin(), kTcp4.begin() + 30), To::kKernel},
    {"cut_in_ports", {kWildTcp4}, Bytes(kTcp4.begin(), kTcp4.begin() + 36), To::kKernel},
    {"cut_in_ip6", {kWildTcp6}, Bytes(kTcp6.begin(), kTcp6.begin() + 50), To::kKernel},
    {"arp",
     {kWildTcp4, kWildUdp4},
     [] {
       Bytes f = kTcp4;
       put(f, 12, {8, 6});
       return f;
     }(),
     To::kKernel},

    {"icmp_exact_tcp", {kExactTcp4}, error4(kSentTcp4), To::kUs},
    {"icmp_exact_udp", {kExactUdp4}, error4(kSentUdp4), To::kUs},
    {"icmp_local", {kLocalTcp4}, error4(kSentTcp4), To::kUs},
    {"icmp_wild", {kWildTcp4}, error4(kSentTcp4), To::kUs},
    {"icmp_wild_other_station",
     {kWildTcp4},
     icmp_error(kRouter4, kOurs4, kOtherMac, 3, 3, kSentTcp4, 28),
     To::kKernel},
    // Of a datagram's error its own socket hears by the kernel's beneath, if it has asked.
    {"icmp_local_udp", {kLocalUdp4}, error4(kSentUdp4), To::kKernel},
    {"icmp_wild_udp", {kWildUdp4}, error4(kSentUdp4), To::kKernel},
    {"icmp_wild_udp_too_big", {kWildUdp4}, error4(kSentUdp4, 3, 28, 4), To::kUs},
    {"icmp6_wild_udp", {kWildUdp6}, error6(kSentUdp6, 1), To::kKernel},
    {"icmp6_wild_udp_too_big", {kWildUdp6}, error6(kSentUdp6, 2), To::kUs},
    {"icmp_forwarded",
     {kWildTcp4},
     icmp_error(kPeer4, kRouter4, kOurMac, 3, 3, frame(kTcp, kRouter4, 80, kPeer4, 5000), 28),
     To::kKernel},
    {"icmp_quotes_another_host",
     {kExactTcp4},
     icmp_error(kRouter4, kAlso4, kOurMac, 3, 3, kSentTcp4, 28),
     To::kKernel},
    {"icmp6_quotes_another_host",
     {kExactTcp6},
     icmp_error(kRouter6, kAlso6, kOurMac, 1, 0, kSentTcp6, 48),
     To::kKernel},
    {"icmp_time_exceeded", {kExactTcp4}, error4(kSentTcp4, 11), To::kUs},
    {"icmp_parameter_problem", {kExactTcp4}, error4(kSentTcp4, 12), To::kUs},
    {"icmp_vlan", {kExactTcp4}, with_tag(error4(kSentTcp4), 0x8100, 5), To::kUs},
    {"icmp_quoted_options", {kExactTcp4}, error4(with_ip_options(kSentTcp4, 2), 3, 36), To::kUs},
    {"icmp_other_flow", {key(kTcp, kOurs4, 80, kPeer4, 5001)}, error4(kSentTcp4), To::kKernel},
    {"icmp_turned_round", {kExactTcp4}, error4(kTcp4), To::kKernel},
    {"icmp_echo", {kExactTcp4}, error4(kSentTcp4, 8), To::kKernel},
    {"icmp_redirect", {kExactTcp4}, error4(kSentTcp4, 5), To::kKernel},
    {"icmp_later_fragment_quoted",
     {kExactTcp4},
     error4(as_fragment4(kSentTcp4, 0x10)),
     To::kKernel},
    {"icmp_first_fragment_quoted", {kExactUdp4}, error4(as_fragment4(kSentUdp4, 0x2000)), To::kUs},
    {"icmp_quote_too_short", {kExactTcp4}, error4(kSentTcp4, 3, 22), To::kKernel},
    {"icmp6_exact_tcp", {kExactTcp6}, error6(kSentTcp6), To::kUs},
    {"icmp6_exact_udp", {kExactUdp6}, error6(kSentUdp6, 1), To::kUs},
    {"icmp6_local", {kLocalTcp6}, error6(kSentTcp6, 3), To::kUs},
    {"icmp6_wild", {kWildTcp6}, error6(kSentTcp6, 4), To::kUs},
    {"icmp6_other_flow", {key(kTcp, kOurs6, 80, kPeer6, 5001)}, error6(kSentTcp6), To::kKernel},
    {"icmp6_echo", {kExactTcp6}, error6(kSentTcp6, 128), To::kKernel},
    {"icmp6_neighbour", {kWildTcp6}, error6(kSentTcp6, 135), To::kKernel},
    {"icmp6_quote_too_short", {kExactTcp6}, error6(kSentTcp6, 2, 42), To::kKernel},
};

/// A flow at the same port that no case's frame is of.
FlowKey of_a_stranger(FlowKey k) {
  k.local.addr = k.v6 ? kOurs6 : kOurs4;
  k.remote = {k.v6 ? *IpAddr::parse("fd76::77") : *IpAddr::parse("203.0.113.77"), 7777, 0};
  return k;
}

/// One interface for all cases of a mode, as no case leaves a rule: to open it takes longer than a
/// case. After a failure it is opened anew.
class Steering : public ::testing::TestWithParam<std::tuple<XdpMode, Case>> {
 protected:
  static Sides& sides_of(XdpMode mode) {
    if (!sides_ || mode != mode_) {
      sides_.reset();
      sides_ = std::make_unique<Sides>(mode);
      mode_ = mode;
    }
    return *sides_;
  }
  void TearDown() override {
    if (HasFailure()) sides_.reset();
  }
  static void TearDownTestSuite() { sides_.reset(); }

 private:
  static inline std::unique_ptr<Sides> sides_;
  static inline XdpMode mode_{};
};

TEST_P(Steering, EveryFrameGoesToOneSide) {
  if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  const auto& [mode, c] = GetParam();
  Sides& sides = sides_of(mode);
  ASSERT_TRUE(sides.is_open) << sides.end.error.where;
  Device& device = sides.device();
  const HostLink links[] = {{VlanId(), kOurMac}, {VlanId(5), kOurMac}, {VlanId(7), kVlanMac}};
  device.set_host({links, more_addresses()});
  const IpAddr few[] = {kAlso4, kOurs4, kAlso6, kOurs6};
  device.set_host({links, few});
  const auto outcome = [&] { return sides.outcome(c.frame); };

  EXPECT_EQ(outcome(), To::kKernel) << "before there is a rule";
  std::vector<FlowRule> rules;
  for (const FlowKey& k : c.keys) {
    auto rule = device.steer(k, FlowTag(3), sides.queue());
    ASSERT_TRUE(rule) << rule.error().where;
    rules.push_back(std::move(*rule));
  }
  for (const FlowKey& k : c.spared) {
    auto rule = device.spare(k);
    ASSERT_TRUE(rule) << rule.error().where;
    rules.push_back(std::move(*rule));
  }
  EXPECT_EQ(outcome(), c.to);
  {
    // A port's only rule is found another way than one of several.
    std::vector<FlowRule> others;
    for (const FlowKey& k : c.keys) {
      auto rule = device.steer(of_a_stranger(k), FlowTag(4), sides.queue());
      if (rule) others.push_back(std::move(*rule));  // else an earlier key's stranger is the same
    }
    EXPECT_EQ(others.empty(), c.keys.empty());
    EXPECT_EQ(outcome(), c.to) << "among other rules of the same ports";
  }
  EXPECT_EQ(outcome(), c.to) << "after the other rules ended";
  device.set_host({links, more_addresses()});
  EXPECT_EQ(outcome(), c.to) << "of a host with many addresses";
  if (c.to == To::kUs &&
      std::ranges::all_of(c.keys, [](const FlowKey& k) { return k.local.addr.is_unspecified(); })) {
    const IpAddr others[] = {*IpAddr::parse("10.0.0.100"), *IpAddr::parse("fd76::111")};
    device.set_host({links, others});
    EXPECT_EQ(outcome(), To::kKernel) << "after the address went";
  }
  rules.clear();
  EXPECT_EQ(outcome(), To::kKernel) << "after the rules ended";
}

INSTANTIATE_TEST_SUITE_P(Native, Steering,
                         ::testing::Combine(::testing::Values(XdpMode::kNative),
                                            ::testing::ValuesIn(kCases)),
                         [](const auto& i) { return std::string(std::get<1>(i.param).name); });
INSTANTIATE_TEST_SUITE_P(Generic, Steering,
                         ::testing::Combine(::testing::Values(XdpMode::kGeneric),
                                            ::testing::ValuesIn(kCases)),
                         [](const auto& i) { return std::string(std::get<1>(i.param).name); });

}  // namespace
}  // namespace vireo::test
