// Fragments go where the one that came first goes: to us if it names the ports of a rule, else to
// the kernel, with all that follow.
#include <gtest/gtest.h>

#include <optional>
#include <ostream>

#include "odd_frames.h"
#include "sides.h"

namespace vireo::test {
namespace {

const IpAddr kOurs4 = *IpAddr::parse("10.0.0.1");
const IpAddr kPeer4 = *IpAddr::parse("10.0.0.2");
const IpAddr kForwarded4 = *IpAddr::parse("10.9.9.9");
const IpAddr kGroup4 = *IpAddr::parse("239.1.2.3");
const IpAddr kOurs6 = *IpAddr::parse("fd76::1");
const IpAddr kPeer6 = *IpAddr::parse("fd76::2");
const IpAddr kForwarded6 = *IpAddr::parse("fd99::9");
constexpr Mac kOurMac{2, 0, 0, 0, 0, 1};
constexpr Mac kOtherMac{2, 0, 0, 0, 0, 9};
constexpr Mac kGroupMac{1, 0, 0x5e, 1, 2, 3};
constexpr IpProto kTcp = IpProto::kTcp;
constexpr IpProto kUdp = IpProto::kUdp;

FlowKey key(IpProto proto, const IpAddr& local, uint16_t port, const IpAddr& remote = {},
            uint16_t remote_port = 0) {
  FlowKey k;
  k.proto = proto;
  k.v6 = !local.is_v4();
  k.local = {local, port, 0};
  k.remote = {remote_port == 0 && local.is_v4() ? IpAddr::any_v4() : remote, remote_port, 0};
  return k;
}

/// Port 80 is ours, 81 the kernel's.
struct From {
  IpProto proto = kUdp;
  bool v6 = false;
  uint16_t port = 80;
  std::optional<IpAddr> to = {};
  Mac mac = kOurMac;
};

Bytes fragment(const From& w, uint16_t id, bool is_first) {
  FrameSpec s;
  s.from_mac = {2, 0, 0, 0, 0, 2};
  s.to_mac = w.mac;
  s.proto = w.proto;
  s.from = {w.v6 ? kPeer6 : kPeer4, 5000, 0};
  s.to = {w.to.value_or(w.v6 ? kOurs6 : kOurs4), w.port, 0};
  s.ip_id = id;
  const Bytes f = build_frame(s, numbered_payload(id, 60));
  if (!w.v6) return as_fragment4(f, is_first ? 0x2000 : 0x0010);
  Bytes g = with_extension6(f, 44);
  put(g, kEthernet + 40 + 2, {0, is_first ? 1U : 0x80U, 0, 0, id / 256U, id % 256U});
  return g;
}
/// The last of a packet of IPv6, with a single byte of data.
Bytes tiny6(uint16_t id) {
  Bytes f = fragment({.v6 = true}, id, false);
  f.resize(kEthernet + 40 + 8 + 1);
  put(f, kEthernet + 4, {0, 8 + 1});
  put(f, kEthernet + 40 + 2, {0, 0x80});
  return f;
}
/// RFC 6946: first and last.
Bytes only6(uint16_t id, uint16_t port = 80) {
  Bytes f = fragment({.v6 = true, .port = port}, id, true);
  put(f, kEthernet + 40 + 2, {0, 0});
  return f;
}
Bytes first(uint16_t id, const From& w = {}) { return fragment(w, id, true); }
Bytes later(uint16_t id, const From& w = {}) { return fragment(w, id, false); }

constexpr To kUs = To::kUs, kKernel = To::kKernel;

struct Piece {
  Bytes frame;
  To to;
};
struct Case {
  const char* name;
  FlowKey rule;
  std::vector<Piece> pieces;
  bool takes = true;
  bool is_spared = false;
};
std::ostream& operator<<(std::ostream& o, const Case& c) { return o << c.name; }

const FlowKey kWild4 = key(kUdp, IpAddr::any_v4(), 80);
const FlowKey kWild6 = key(kUdp, IpAddr(), 80);
const From k6{.v6 = true};
const From kTcp4{.proto = kTcp};

const Case kCases[] = {
    {"first_and_later", kWild4, {{first(1), kUs}, {later(1), kUs}, {later(1), kUs}}},
    {"first_and_later6", kWild6, {{first(1, k6), kUs}, {later(1, k6), kUs}, {later(1, k6), kUs}}},
    {"of_an_address", key(kUdp, kOurs4, 80), {{first(1), kUs}, {later(1), kUs}}},
    {"of_a_connection", key(kUdp, kOurs4, 80, kPeer4, 5000), {{first(1), kUs}, {later(1), kUs}}},
    {"of_a_connection6",
     key(kUdp, kOurs6, 80, kPeer6, 5000),
     {{first(1, k6), kUs}, {later(1, k6), kUs}}},
    {"of_another_connection",
     key(kUdp, kOurs4, 80, kPeer4, 5001),
     {{first(1), kKernel}, {later(1), kKernel}}},
    {"spared",
     key(kUdp, kOurs4, 80, kPeer4, 5000),
     {{first(1), kKernel}, {later(1), kKernel}},
     true,
     true},
    {"tcp", key(kTcp, IpAddr::any_v4(), 80), {{first(1, kTcp4), kUs}, {later(1, kTcp4), kUs}}},
    {"kernels_port", kWild4, {{first(1, {.port = 81}), kKernel}, {later(1), kKernel}}},
    {"kernels_port6",
     kWild6,
     {{first(1, {.v6 = true, .port = 81}), kKernel}, {later(1, k6), kKernel}}},
    {"later_came_first",
     kWild4,
     {{later(1), kKernel}, {first(1), kKernel}, {later(1), kKernel}, {first(2), kUs}}},
    {"later_came_first6",
     kWild6,
     {{later(1, k6), kKernel}, {first(1, k6), kKernel}, {first(2, k6), kUs}, {later(2, k6), kUs}}},
    {"packets_between_one_another",
     kWild4,
     {{first(1), kUs},
      {first(2, {.port = 81}), kKernel},
      {later(1), kUs},
      {later(2), kKernel},
      {later(3), kKernel}}},
    {"of_a_byte6", kWild6, {{first(1, k6), kUs}, {tiny6(1), kUs}, {tiny6(2), kKernel}}},
    {"an_id_comes_round",
     kWild4,
     {{first(1), kUs}, {later(1), kUs}, {first(1, {.port = 81}), kKernel}, {later(1), kKernel}}},
    {"only_one6",
     kWild6,
     {{only6(1, 81), kKernel},
      {only6(1), kUs},
      {later(1, k6), kKernel},
      {only6(1), kUs},
      {first(2, k6), kUs},
      {only6(2, 81), kKernel},
      {later(2, k6), kUs}}},
    {"protocols_of_one_id",
     kWild4,
     {{first(1), kUs}, {first(1, kTcp4), kKernel}, {later(1, kTcp4), kKernel}, {later(1), kUs}}},
    {"forwarded",
     kWild4,
     {{first(1, {.to = kForwarded4}), kKernel}, {later(1, {.to = kForwarded4}), kKernel}}},
    {"forwarded6",
     kWild6,
     {{first(1, {.v6 = true, .to = kForwarded6}), kKernel},
      {later(1, {.v6 = true, .to = kForwarded6}), kKernel}}},
    {"another_station",
     kWild4,
     {{first(1, {.mac = kOtherMac}), kKernel}, {later(1, {.mac = kOtherMac}), kKernel}}},
    {"group",
     key(kUdp, kGroup4, 80),
     {{first(1, {.to = kGroup4, .mac = kGroupMac}), kUs},
      {later(1, {.to = kGroup4, .mac = kGroupMac}), kUs}}},
    {"not_wanted", kWild4, {{first(1), kKernel}, {later(1), kKernel}}, false},
    {"not_wanted6", kWild6, {{first(1, k6), kKernel}, {later(1, k6), kKernel}}, false},
    {"behind_options6", kWild6, {{with_extension6(first(1, k6), 60), kKernel}}},
};

class Fragments : public ::testing::TestWithParam<std::tuple<XdpMode, Case>> {};

TEST_P(Fragments, GoWhereTheFirstWent) {
  if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  const auto& [mode, c] = GetParam();
  Sides sides(mode);
  ASSERT_TRUE(sides.is_open) << sides.end.error.where;
  Device& device = sides.device();
  const HostLink links[] = {{VlanId(), kOurMac}};
  const IpAddr ours[] = {kOurs4, kOurs6};
  device.set_host({links, ours, c.takes});
  auto rule = c.is_spared ? device.spare(c.rule) : device.steer(c.rule, FlowTag(3), sides.queue());
  ASSERT_TRUE(rule) << rule.error().where;
  for (size_t i = 0; i < c.pieces.size(); ++i)
    EXPECT_EQ(sides.outcome(c.pieces[i].frame), c.pieces[i].to) << "piece " << i;
}

INSTANTIATE_TEST_SUITE_P(Native, Fragments,
                         ::testing::Combine(::testing::Values(XdpMode::kNative),
                                            ::testing::ValuesIn(kCases)),
                         [](const auto& i) { return std::string(std::get<1>(i.param).name); });
INSTANTIATE_TEST_SUITE_P(Generic, Fragments,
                         ::testing::Combine(::testing::Values(XdpMode::kGeneric),
                                            ::testing::ValuesIn(kCases)),
                         [](const auto& i) { return std::string(std::get<1>(i.param).name); });

}  // namespace
}  // namespace vireo::test
