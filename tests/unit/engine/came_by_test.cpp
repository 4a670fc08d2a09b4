// By which of several interfaces a datagram came: by its station, by its group, or as noted. Who of
// several sockets hears it. And with what priority a VLAN's leave.
#include <map>

#include "stack/wire/parse.h"
#include "tests/apparatus/mem/mem_link.h"
#include "tests/device/frames.h"
#include "tests/unit/engine/host.h"
#include "tests/unit/engine/tables.h"

namespace vireo::test {
namespace {

constexpr IfIndex kEth1{4};
constexpr Mac kMac1{2, 0, 0, 0, 1, 1};

/// eth0 with 10.0.0.1, eth1 with 10.0.1.1.
std::unique_ptr<net::Snapshot> two_interfaces() {
  auto s = tables({});
  net::Links links = *s->links;
  net::Link second = links.all.back();
  second.index = kEth1;
  second.name = "eth1";
  second.mac = kMac1;
  links.all.push_back(second);
  s->links = std::make_shared<const net::Links>(std::move(links));
  net::Addrs addrs = *s->addrs;
  addrs.all.push_back({.ifindex = kEth1,
                       .addr = ip("10.0.1.1"),
                       .prefix = ip("10.0.1.1"),
                       .prefix_len = 24,
                       .broadcast = ip("10.0.1.255")});
  std::ranges::sort(addrs.all, {}, &net::Addr::addr);
  s->addrs = std::make_shared<const net::Addrs>(std::move(addrs));
  return s;
}

class CameBy : public testing::Test {
 protected:
  CameBy() {
    auto mirror = net::Mirror::open();
    VIREO_ASSERT(mirror.has_value());
    mirror_ = std::move(*mirror);
    mirror_->store().publish(two_interfaces());
    EngineConfig config;
    config.arena_bytes = size_t{8} << 20;
    config.huge_pages = false;
    auto engine = Engine::create(
        EngineId(0), config,
        [this](const net::Link& l, Arena&) -> Carried<std::unique_ptr<Device>> {
          return links_.at(l.index.value()).release(MemEnd::kA);
        },
        *mirror_, {[](TcpFlow&, tcp::Effects) {}, [](Listener&) {}, [](UdpFlow&) {}},
        engine_stats_);
    VIREO_ASSERT(engine.has_value());
    engine_ = std::move(*engine);
    auto u = engine_->udp().open({IpAddr(), 7000, 0}, {}, false, this, stats_);
    VIREO_ASSERT(u.has_value());
    flow_ = *u;
    VIREO_ASSERT(engine_->ports().open_all().has_value());
    VIREO_ASSERT(engine_->ports().all().size() == 2);
  }
  ~CameBy() override { engine_->udp().close(*flow_); }

  /// Each of several, so that what follows a first one is seen too.
  void expect(IfIndex by, const FrameSpec& spec) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(told(by, spec), by) << "datagram " << i;
  }
  std::optional<IfIndex> told(IfIndex by, const FrameSpec& spec) {
    bring(by, spec);
    return take(*flow_);
  }
  void bring(IfIndex by, const FrameSpec& spec) {
    MemLink& link = links_.at(by.value());
    link.inject(MemEnd::kB, build_frame(spec, Bytes(64)));
    link.step(clock_.now());
    engine_->acquire();
    engine_->poll(clock_.now());
    engine_->unlock();
  }
  /// What it has heard, by the interface that this came by.
  std::optional<IfIndex> take(UdpFlow& u) {
    if (u.queue.empty()) return std::nullopt;
    const PacketRef p = u.queue.pop_front();
    UdpFlows::received(u, *p);
    const unsigned head = header_bytes(*p);
    return engine_->host().came_by(u, *p, wire::parse_frame({p->data() - head, head + p->length}));
  }
  /// Another with the same port.
  UdpFlow& another(IfIndex device = {}, uint16_t port = 7000) {
    auto u = engine_->udp().open({IpAddr(), port, 0}, {}, false, this, stats_, device);
    VIREO_ASSERT(u.has_value());
    return **u;
  }
  static FrameSpec to(const char* address, const Mac& mac) {
    return {.from_mac = {2, 0, 0, 0, 0, 9},
            .to_mac = mac,
            .from = {ip("11.0.0.7"), 5000, 0},
            .to = {ip(address), 7000, 0}};
  }

  VirtualClock clock_{Clock::now() + Duration::s(10)};
  std::map<uint32_t, MemLink> links_ = [this] {
    std::map<uint32_t, MemLink> m;
    for (const IfIndex i : {kEth0, kEth1})
      m.try_emplace(i.value(), 1, MemImpairments{}, MemImpairments{}, clock_);
    return m;
  }();
  std::unique_ptr<net::Mirror> mirror_;
  EngineStats engine_stats_;
  std::unique_ptr<Engine> engine_;
  SocketStats stats_;
  UdpFlow* flow_ = nullptr;
};

TEST_F(CameBy, ItsStationTells) {
  expect(kEth0, to("10.0.0.1", kHostMac));
  expect(kEth1, to("10.0.1.1", kMac1));
  expect(kEth1, to("10.0.0.1", kMac1));  // an address of the host, by the other way
  expect(kEth0, to("10.0.0.1", kHostMac));
}

TEST_F(CameBy, AGroupThatIsJoinedByOneIsOfThatOne) {
  const Mac group{0x01, 0x00, 0x5e, 1, 2, 3};
  ASSERT_TRUE(engine_->udp().join(*flow_, ip("239.1.2.3"), kEth1));
  expect(kEth1, to("239.1.2.3", group));
}

TEST_F(CameBy, AGroupThatIsJoinedByBothIsNoted) {
  const Mac group{0x01, 0x00, 0x5e, 1, 2, 3};
  ASSERT_TRUE(engine_->udp().join(*flow_, ip("239.1.2.3"), kEth0));
  expect(kEth0, to("239.1.2.3", group));  // it took the short way
  ASSERT_TRUE(engine_->udp().join(*flow_, ip("239.1.2.3"), kEth1));
  for (int i = 0; i < 3; ++i) {
    expect(kEth1, to("239.1.2.3", group));
    expect(kEth0, to("239.1.2.3", group));
  }
}

// As Linux with IP_MULTICAST_ALL, who is a member by one hears what comes by the other.
TEST_F(CameBy, AGroupThatIsJoinedByOneEachIsNoted) {
  const FrameSpec spec = to("239.1.2.3", {0x01, 0x00, 0x5e, 1, 2, 3});
  ASSERT_TRUE(engine_->udp().join(*flow_, ip("239.1.2.3"), kEth0));
  expect(kEth0, spec);
  UdpFlow& other = another();
  ASSERT_TRUE(engine_->udp().join(other, ip("239.1.2.3"), kEth1));
  for (int i = 0; i < 3; ++i)
    for (const IfIndex by : {kEth1, kEth0}) {
      bring(by, spec);
      EXPECT_EQ(take(*flow_), by);
      EXPECT_EQ(take(other), by);
    }
  engine_->udp().close(other);
  expect(kEth0, spec);
}

TEST_F(CameBy, LeavingByOneLeavesTheOther) {
  const FrameSpec spec = to("239.1.2.3", {0x01, 0x00, 0x5e, 1, 2, 3});
  UdpFlow& bare = another();
  ASSERT_TRUE(engine_->udp().join(*flow_, ip("239.1.2.3"), kEth0));
  ASSERT_TRUE(engine_->udp().join(*flow_, ip("239.1.2.3"), kEth1));
  engine_->udp().leave(*flow_, ip("239.1.2.3"), kVlan);  // which it has not joined by
  for (const IfIndex by : {kEth1, kEth0}) expect(by, spec);
  engine_->udp().leave(*flow_, ip("239.1.2.3"), kEth0);
  expect(kEth1, spec);
  EXPECT_NE(take(bare), std::nullopt) << "it is no member, but IP_MULTICAST_ALL is 1";
  while (take(bare)) {
  }
  engine_->udp().hear_all(bare, false, true);
  expect(kEth1, spec);
  EXPECT_EQ(take(bare), std::nullopt);
  engine_->udp().leave(*flow_, ip("239.1.2.3"), kEth1);
  engine_->udp().close(bare);
}

/// Who is bound to the interface goes before who is bound to none; a group is heard by both.
TEST_F(CameBy, WhoIsBoundToItHears) {
  UdpFlow& on0 = another(kEth0);
  UdpFlow& on1 = another(kEth1);
  UdpFlow& too = another(kEth1);
  const FrameSpec group = to("239.1.2.3", {0x01, 0x00, 0x5e, 1, 2, 3});
  const auto heard = [&](IfIndex by, const FrameSpec& spec) {
    std::string who;
    bring(by, spec);
    for (UdpFlow* u : {flow_, &on0, &on1, &too}) {
      const auto told = take(*u);
      who += !told ? '-' : *told == by ? '+' : '?';
    }
    return who;
  };
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(heard(kEth0, to("10.0.0.1", kHostMac)), "-+--");
    EXPECT_EQ(heard(kEth1, to("10.0.0.1", kMac1)), "---+") << "who came last";
  }
  for (UdpFlow* u : {flow_, &on0, &on1, &too})
    ASSERT_TRUE(engine_->udp().join(*u, ip("239.1.2.3"), u == &on0 ? kEth0 : kEth1));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(heard(kEth0, group), "++--");
    EXPECT_EQ(heard(kEth1, group), "+-++");
  }
  for (UdpFlow* u : {&too, &on1, &on0}) engine_->udp().close(*u);
  expect(kEth1, to("10.0.0.1", kMac1));
}

/// Whose peer was heard before by a socket of every interface, which has gone.
TEST_F(CameBy, WhoIsLeftIsBoundToItAsBefore) {
  FrameSpec spec = to("10.0.0.1", kHostMac);
  spec.to.port = 7001;
  UdpFlow& first = another({}, 7001);
  for (int i = 0; i < 2; ++i) {
    bring(kEth0, spec);
    EXPECT_EQ(take(first), kEth0);
  }
  UdpFlow& second = another(kEth1, 7001);
  engine_->udp().close(first);
  bring(kEth0, spec);
  EXPECT_EQ(take(second), std::nullopt);
  spec.to_mac = kMac1;
  bring(kEth1, spec);
  EXPECT_EQ(take(second), kEth1);
  engine_->udp().close(second);
}

/// Their peers are spread evenly, whoever stands between them in the list.
TEST_F(CameBy, ReusePortSpreadsOverThoseBoundAlike) {
  UdpFlow* const all[] = {&another(kEth0), &another(kEth1), &another(kEth0), &another(kEth1)};
  for (UdpFlow* u : all) u->reuse_port = true;
  int heard[4] = {};
  FrameSpec spec = to("10.0.1.1", kMac1);
  for (uint16_t i = 0; i < 400; ++i) {
    spec.from.port = static_cast<uint16_t>(5000 + i);
    bring(kEth1, spec);
    for (size_t k = 0; k < 4; ++k) heard[k] += take(*all[k]) ? 1 : 0;
  }
  EXPECT_EQ(heard[0] + heard[2], 0);
  EXPECT_EQ(heard[1] + heard[3], 400);
  EXPECT_GT(heard[1], 100);
  EXPECT_GT(heard[3], 100);
  for (UdpFlow* u : all) engine_->udp().close(*u);
}

TEST_F(CameBy, WhatIsForAllIsNoted) {
  const Mac all{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  for (int i = 0; i < 3; ++i) {
    expect(kEth1, to("255.255.255.255", all));
    expect(kEth0, to("255.255.255.255", all));
  }
}

TEST(TagPriority, IsTheSocketsByTheMapOfTheVlan) {
  Host h;
  Place place{.vlan = 5};
  place.egress_qos[6] = 5;
  h.mirror().store().publish(tables(place));
  SocketStats stats;
  const auto u = h.engine().udp().open({ip("10.0.0.1"), 7000, 0}, {}, false, &h, stats);
  ASSERT_TRUE(u);
  for (const auto& [priority, tag] : {std::pair{0, 5}, {6, 0xa005}, {3, 5}, {255, 5}}) {
    (*u)->ip.priority = static_cast<uint8_t>(priority);
    (*u)->egress.generation = 0;
    const auto route =
        h.engine().next_hops().route({.dst = ip("11.0.0.7"), .src = {}, .proto = IpProto::kUdp});
    ASSERT_TRUE(route);
    char text[] = "datagram";
    const iovec v{text, sizeof text};
    h.forget_heard();
    ASSERT_TRUE(h.engine().udp().send(**u, *route, {ip("10.0.0.1"), 7000, 0},
                                      {ip("11.0.0.7"), 5000, 0}, {{&v, 1}}, Doorbell::kNow,
                                      h.now()));
    h.settle();
    const auto& frames = h.link().kernel_frames(MemEnd::kB);
    ASSERT_EQ(frames.size(), 1U);
    const auto& f = frames.front();
    EXPECT_EQ(std::to_integer<int>(f[14]) << 8 | std::to_integer<int>(f[15]), tag) << priority;
  }
  h.engine().udp().close(**u);
}

}  // namespace
}  // namespace vireo::test
