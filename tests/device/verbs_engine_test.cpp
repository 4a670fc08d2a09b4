// An engine at either end of verbs over softnic in lock-step: a stream goes in IBV_WR_TSO requests,
// by the device's own count, and arrives as it was written. Time is the test's.
#include <infiniband/verbs.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dev/verbs/verbs.h"
#include "frames.h"
#include "stack/engine/engine.h"
#include "tests/apparatus/softnic/control.h"
#include "tests/unit/engine/tables.h"
#include "tests/unit/verbs/bond_sysfs.h"

namespace vireo::test {
namespace {

constexpr const char* kV4[] = {"10.0.0.1", "10.0.0.2"};
constexpr const char* kV6[] = {"fd00::1", "fd00::2"};
constexpr net::Mac kMacs[] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};
constexpr const char* kDevices[] = {"softnic0", "softnic1"};
constexpr uint32_t kBytes = 2'000'000;

std::byte stream_byte(uint64_t i) {
  return static_cast<std::byte>((i * 0x9e3779b97f4a7c15ULL) >> 56);
}

class VerbsEngine : public ::testing::Test {
 protected:
  struct End {
    TcpFlow* flow = nullptr;
    SocketStats stats;
  };

  void SetUp() override { open(); }
  /// The hosts' addresses lie on VLANs, if these are not 0.
  void open(uint16_t vlan_0 = 0, uint16_t vlan_1 = 0) {
    const uint16_t vlans[] = {vlan_0, vlan_1};
    for (auto& e : engines_) e.reset();
    setenv("SOFTNIC_WIRE", "", 1);
    softnic_set_mtu(1500);
    for (unsigned i = 0; i < 2; ++i) {
      auto mirror = net::Mirror::open();
      ASSERT_TRUE(mirror.has_value());
      mirrors_[i] = std::move(*mirror);
      mirrors_[i]->store().publish(tables({.v4 = kV4[i],
                                           .v6 = kV6[i],
                                           .mac = kMacs[i],
                                           .router_mac = kMacs[1 - i],
                                           .vlan = vlans[i]}));
      EngineConfig config;
      config.arena_bytes = size_t{16} << 20;
      config.huge_pages = false;
      DeviceOpener opener = [this, i](const net::Link&,
                                      Arena& arena) -> Carried<std::unique_ptr<Device>> {
        VerbsTarget target{.device = kDevices[i]};
        if (bonded_ == i) target = {.interface = "bond0", .sysfs = bond_->str()};
        auto device = open_verbs(target, arena, {.rx_frames = 1024});
        if (!device)
          return std::unexpected(
              Refusal{Carriage::kDevice, device.error().code, device.error().where});
        return std::move(*device);
      };
      auto engine = Engine::create(EngineId(static_cast<uint8_t>(i)), config, std::move(opener),
                                   *mirrors_[i], {on_tcp, on_accept, on_udp}, stats_[i]);
      ASSERT_TRUE(engine.has_value());
      engines_[i] = std::move(*engine);
      ASSERT_TRUE(engines_[i]->ports().open_all().has_value());
    }
    if (devices_ == nullptr) devices_ = ibv_get_device_list(nullptr);
    ASSERT_GT(engines_[0]->ports().all().front()->device->caps().tso_max_bytes, 0U);
  }
  void TearDown() override {
    for (auto& e : engines_) e.reset();
    for (int i : {0, 1}) devices_[i]->ibdev_path[0] = '\0';
    ibv_free_device_list(devices_);
  }

  /// The interface of this host is a bond, ens1f0 active, both of whose members are ports of its
  /// device, as far as sysfs tells: there is one wire.
  void open_bond(unsigned host) {
    constexpr const char* kFunction = "0000:3b:00.0";
    bonded_ = host;
    bond_.emplace();
    bond_->add_bond("active-backup 1", "ens1f0 ens2f0", "ens1f0");
    for (const char* member : {"ens1f0", "ens2f0"})
      bond_->add_member(member, kFunction, kDevices[host]);
    bond_->add_second_port(kFunction, kDevices[host]);
    bond_->show(*devices_[host], kFunction);
    open();
  }
  void fail_over(const char* active) {
    bond_->set_active(active);
    Engine& e = *engines_[*bonded_];
    e.lock().lock();
    e.ports().look_after();
    e.unlock();
  }
  const Port& port(unsigned host) { return *engines_[host]->ports().all().front(); }
  softnic_counts counts(unsigned i) { return softnic_counts_of(devices_[i]); }

  /// Writes and reads the whole stream; `at(bytes read)` may harm the device meanwhile.
  template <class F>
  void stream(bool v6, F&& at) {
    const char* const* addresses = v6 ? kV6 : kV4;
    tcp::Config config;
    config.mss = 65'495;
    auto listener = engines_[1]->listeners().listen({v6 ? IpAddr() : IpAddr::any_v4(), 80, 0},
                                                    false, 16, config, nullptr, listening_);
    ASSERT_TRUE(listener.has_value());
    auto route = engines_[0]->next_hops().route({.dst = ip(addresses[1]), .src = ip(addresses[0])});
    ASSERT_TRUE(route.has_value());
    auto flow =
        engines_[0]->tcp().connect(*route, {ip(addresses[0]), 40'000, 0}, {ip(addresses[1]), 80, 0},
                                   config, {}, &ours_, ours_.stats, now_);
    ASSERT_TRUE(flow.has_value());
    ours_.flow = *flow;
    uint32_t written = 0, read = 0;
    const Instant end = now_ + Duration::s(60);
    while (read < kBytes && now_ < end) {
      poll();
      if (theirs_.flow == nullptr && (theirs_.flow = engines_[1]->listeners().accept(**listener))) {
        theirs_.flow->owner = &theirs_;
        theirs_.flow->stats = &theirs_.stats;
      }
      if (written < kBytes && tcp::can_send(ours_.flow->tcb)) {
        std::vector<std::byte> bytes(std::min(kBytes - written, 65'536U));
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = stream_byte(written + i);
        const iovec v{bytes.data(), bytes.size()};
        written +=
            static_cast<uint32_t>(engines_[0]->tcp().send(*ours_.flow, {&v, 1}, false, now_));
      }
      poll();
      if (theirs_.flow == nullptr) continue;
      uint32_t took = 0;
      for (PacketChain& q = tcp::recv_queue(theirs_.flow->tcb); !q.empty(); q.pop_front()) {
        for (const std::byte b : std::as_const(*q.front()).bytes())
          ASSERT_EQ(b, stream_byte(read++)) << "byte " << read - 1;
        took += q.front()->length;
      }
      if (took > 0) engines_[1]->tcp().received(*theirs_.flow, took, now_);
      at(read);
    }
    EXPECT_EQ(read, kBytes);
    info_ = tcp::info(ours_.flow->tcb);
    engines_[0]->tcp().close(*std::exchange(ours_.flow, nullptr), UniqueFd(), true, now_);
    poll();
    engines_[1]->tcp().close(*std::exchange(theirs_.flow, nullptr), UniqueFd(), true, now_);
    engines_[1]->listeners().close(**listener, now_);
    poll();
  }
  void poll() {
    for (int turn = 0; turn < 4; ++turn)
      for (auto& e : engines_) {
        e->lock().lock();
        e->poll(now_);
        e->unlock();
      }
    now_ = now_ + Duration::us(100);
  }

  static void on_tcp(TcpFlow&, tcp::Effects) {}
  static void on_accept(Listener&) {}
  static void on_udp(UdpFlow&) {}

  Instant now_ = Clock::now() + Duration::s(10);
  std::unique_ptr<net::Mirror> mirrors_[2];
  EngineStats stats_[2];
  std::unique_ptr<Engine> engines_[2];
  ibv_device** devices_ = nullptr;
  std::optional<BondSysfs> bond_;
  std::optional<unsigned> bonded_;  ///< host
  End ours_, theirs_;
  SocketStats listening_;
  tcp::Info info_{};
};

TEST_F(VerbsEngine, AStreamGoesInBursts) {
  for (const bool v6 : {false, true}) {
    const softnic_counts before = counts(0);
    const uint64_t packets = stats_[0].tx_packets.get();
    stream(v6, [](uint32_t) {});
    const uint64_t frames = counts(0).tx_frames - before.tx_frames;
    const uint64_t bursts = counts(0).tx_bursts - before.tx_bursts;
    EXPECT_GE(frames, kBytes / 1460);
    EXPECT_GE(bursts, kBytes / (16 * 1460));
    EXPECT_LE(bursts, kBytes / (8 * 1420)) << "each of eight segments and more";
    EXPECT_EQ(stats_[0].tx_packets.get() - packets, frames) << "counted by segment";
    EXPECT_EQ(info_.total_retrans, 0U);
    EXPECT_EQ(stats_[1].rx_bad_checksum.get(), 0U);
  }
}

/// Sockets of a VLAN go by the interface beneath it: frames and rules bear its tag.
TEST_F(VerbsEngine, OnAVlan) {
  open(5, 5);
  for (const bool v6 : {false, true}) {
    const softnic_counts before = counts(1);
    stream(v6, [](uint32_t) {});
    EXPECT_EQ(info_.total_retrans, 0U);
    EXPECT_EQ(counts(1).rx_no_rule, before.rx_no_rule);
  }
}

/// A device that cannot look at tags: the rules are made without.
TEST_F(VerbsEngine, OnAVlanWithoutRulesForIt) {
  setenv("SOFTNIC_LACKS", "vlans", 1);
  open(5, 5);
  stream(false, [](uint32_t) {});
  unsetenv("SOFTNIC_LACKS");
  EXPECT_EQ(info_.total_retrans, 0U);
}

TEST_F(VerbsEngine, AGroupOnAVlan) {
  open(0, 6);
  SocketStats stats;
  const Endpoint group{ip("239.1.2.3"), 7000, 0};
  const auto flow = engines_[1]->udp().open(group, {}, false, nullptr, stats);
  ASSERT_TRUE(flow.has_value());
  ASSERT_TRUE(engines_[1]->udp().join(**flow, group.addr, kVlan).has_value());
  const uint64_t unwanted = counts(1).rx_no_rule;
  constexpr uint16_t kPriority = 5 << 13;
  for (const uint16_t tci : {uint16_t{6}, uint16_t{7}, uint16_t{6 | kPriority}}) {
    FrameSpec spec;
    spec.to_mac = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03};
    spec.vlan = tci;
    spec.from = {ip("10.0.0.9"), 5000, 0};
    spec.to = group;
    const Bytes frame = build_frame(spec, Bytes(64));
    softnic_inject(devices_[1], frame.data(), frame.size());
  }
  poll();
  EXPECT_EQ(stats.rx_packets.get(), 2U) << "of whatever priority";
  EXPECT_EQ(counts(1).rx_no_rule - unwanted, 1U) << "that of VLAN 7";
  engines_[1]->udp().close(**flow);
}

TEST_F(VerbsEngine, OnVlansThatDiffer) {
  open(5, 6);
  tcp::Config config;
  auto listener =
      engines_[1]->listeners().listen({ip(kV4[1]), 80, 0}, false, 16, config, nullptr, listening_);
  ASSERT_TRUE(listener.has_value());
  auto route = engines_[0]->next_hops().route({.dst = ip(kV4[1]), .src = ip(kV4[0])});
  ASSERT_TRUE(route.has_value());
  EXPECT_EQ(route->hop.vlan, VlanId(5));
  const uint64_t sent = counts(0).tx_frames, unwanted = counts(1).rx_no_rule;
  auto flow = engines_[0]->tcp().connect(*route, {ip(kV4[0]), 40'000, 0}, {ip(kV4[1]), 80, 0},
                                         config, {}, &ours_, ours_.stats, now_);
  ASSERT_TRUE(flow.has_value());
  poll();
  EXPECT_GT(counts(0).tx_frames, sent);
  EXPECT_EQ(counts(0).tx_frames - sent, counts(1).rx_no_rule - unwanted)
      << "no rule of host 1 wants the frame";
  EXPECT_EQ(stats_[1].rx_packets.get(), 0U);
  engines_[0]->tcp().close(**flow, UniqueFd(), true, now_);
  engines_[1]->listeners().close(**listener, now_);
  poll();
}

TEST_F(VerbsEngine, AStreamGoesOnByABondsNextMember) {
  for (const unsigned host : {0U, 1U}) {
    open_bond(host);
    const Device* before = port(host).device.get();
    const char* next = "ens2f0";
    uint32_t at = 300'000;
    unsigned moves = 0;
    stream(host == 1, [&](uint32_t read) {
      if (read < at) return;
      at = read + 500'000;
      fail_over(next);
      next = moves % 2 == 0 ? "ens1f0" : "ens2f0";
      ++moves;
      EXPECT_NE(std::exchange(before, port(host).device.get()), port(host).device.get());
    });
    EXPECT_GE(moves, 2U);
    EXPECT_FALSE(port(host).dead);
    const softnic_objects o = softnic_objects_of(devices_[host]);
    EXPECT_EQ(o.contexts, 1U);
    EXPECT_EQ(o.pairs, 1U) << "the old ones are closed";
    EXPECT_EQ(o.flows, 0U);
    Engine& e = *engines_[host];
    EXPECT_EQ(e.pool().free_count() + o.receives, e.pool().size());
  }
}

TEST_F(VerbsEngine, SocketsGoAlongToABondsNextMember) {
  open_bond(1);
  tcp::Config config;
  const Endpoint service{ip(kV4[1]), 80, 0}, group{ip("239.1.2.3"), 7000, 0};
  const Endpoint bound[] = {{ip(kV4[1]), 7001, 0}, {IpAddr(), 7002, 0}};
  Engine& e = *engines_[1];
  const auto listener = e.listeners().listen(service, false, 16, config, nullptr, listening_);
  ASSERT_TRUE(listener.has_value());
  SocketStats stats[3];
  UdpFlow* flows[3];
  for (int i : {0, 1, 2}) {
    const auto u = e.udp().open(i == 2 ? group : bound[i], {}, false, nullptr, stats[i]);
    ASSERT_TRUE(u.has_value());
    flows[i] = *u;
  }
  ASSERT_TRUE(e.udp().join(*flows[2], group.addr, kEth0).has_value());
  const unsigned rules = softnic_objects_of(devices_[1]).flows;
  fail_over("ens2f0");
  EXPECT_EQ(softnic_objects_of(devices_[1]).flows, rules);

  const auto hear = [&](const Endpoint& to, const SocketStats& s) {
    FrameSpec spec;
    spec.from = {ip("10.0.0.9"), 5000, 0};
    spec.to = to;
    spec.to_mac = kMacs[1];
    if (to.addr.is_multicast()) spec.to_mac = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03};
    const Bytes frame = build_frame(spec, Bytes(64));
    softnic_inject(devices_[1], frame.data(), frame.size());
    poll();
    EXPECT_EQ(s.rx_packets.get(), 1U) << to.str();
  };
  hear(bound[0], stats[0]);
  hear({ip(kV4[1]), 7002, 0}, stats[1]);
  hear(group, stats[2]);
  const auto route = engines_[0]->next_hops().route({.dst = service.addr, .src = ip(kV4[0])});
  const auto flow = engines_[0]->tcp().connect(*route, {ip(kV4[0]), 40'000, 0}, service, config, {},
                                               &ours_, ours_.stats, now_);
  ASSERT_TRUE(flow.has_value());
  poll(), poll();
  EXPECT_EQ(tcp::state((*flow)->tcb), tcp::State::kEstablished);
  engines_[0]->tcp().close(**flow, UniqueFd(), true, now_);
  poll();
  e.listeners().close(**listener, now_);
  for (UdpFlow* u : flows) e.udp().close(*u);
  poll();
  EXPECT_EQ(softnic_objects_of(devices_[1]).flows, 0U);
}

/// Where rules bear no tags, that of a leased port is for whoever has the port next, too.
TEST_F(VerbsEngine, ALeasedPortsRuleStaysAsWideAsItWas) {
  setenv("SOFTNIC_LACKS", "tags", 1);
  open_bond(0);
  tcp::Config config;
  const auto route = engines_[0]->next_hops().route({.dst = ip(kV4[1]), .src = ip(kV4[0])});
  const Endpoint ours{ip(kV4[0]), 40'000, 0};
  const auto flow = engines_[0]->tcp().connect(*route, ours, {ip(kV4[1]), 80, 0}, config, {},
                                               &ours_, ours_.stats, now_);
  ASSERT_TRUE(flow.has_value());
  (*flow)->port_origin = PortOrigin::kLeased;
  fail_over("ens2f0");
  unsetenv("SOFTNIC_LACKS");
  FrameSpec spec;
  spec.proto = IpProto::kTcp;
  spec.from = {ip("10.0.0.9"), 5000, 0};
  spec.to = ours;
  spec.to_mac = kMacs[0];
  const Bytes frame = build_frame(spec, Bytes(1));
  const uint64_t unwanted = counts(0).rx_no_rule;
  softnic_inject(devices_[0], frame.data(), frame.size());
  poll();
  EXPECT_EQ(counts(0).rx_no_rule, unwanted);
  EXPECT_EQ(stats_[0].rx_unknown_flow.get(), 1U);
  engines_[0]->tcp().close(**flow, UniqueFd(), true, now_);
  poll();
}

/// A member that is no RDMA device takes over: connections end as with a lost device.
TEST_F(VerbsEngine, ABondsNextMemberIsRefused) {
  open_bond(0);
  fail_over("eno1");
  EXPECT_TRUE(port(0).dead);
  EXPECT_FALSE(engines_[0]->next_hops().route({.dst = ip(kV4[1]), .src = ip(kV4[0])}).has_value());
}

/// What is lost of a burst is sent again by itself.
TEST_F(VerbsEngine, SegmentsOfBurstsAreLost) {
  uint32_t next = 100'000;
  stream(false, [&](uint32_t read) {
    if (read < next) return;
    softnic_drop(devices_[1], 3);
    next = read + 200'000;
  });
  EXPECT_GT(info_.total_retrans, 10U);
  EXPECT_LT(info_.total_retrans, 100U);
  EXPECT_GT(counts(0).tx_bursts, 50U);
}

/// The device stands still with bursts in its ring until timers have sent parts of them again: it
/// reads what it was given, whatever was acknowledged and freed meanwhile.
TEST_F(VerbsEngine, ADeviceThatStandsStill) {
  bool is_held = false;
  Instant until;
  stream(true, [&](uint32_t read) {
    if (!is_held && read > 500'000) {
      is_held = true;
      until = now_ + Duration::s(1);
      softnic_hold(devices_[0], true);
    }
    if (is_held && until != Instant() && now_ > until) {
      until = Instant();
      softnic_hold(devices_[0], false);
      softnic_step(devices_[0], 10'000);
    }
  });
  EXPECT_TRUE(is_held);
  EXPECT_GT(counts(0).tx_bursts, 50U);
}

}  // namespace
}  // namespace vireo::test
