#include "stack/net/lookup.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace vireo::net {
namespace {

IpAddr ip(const char* text) { return *IpAddr::parse(text); }
constexpr Mac kMacA{2, 0, 0, 0, 0, 0xa}, kMacB{2, 0, 0, 0, 0, 0xb};

/// lo 1; eth0 2 with 10.0.0.1/24 and fd00::1/64; eth0.5 3, VLAN 5 over eth0, 10.5.0.1/24.
class Host {
 public:
  Host() {
    const LinkFlags up = LinkFlags::kUp | LinkFlags::kRunning;
    link({.index = IfIndex(1), .name = "lo", .mtu = 65536, .flags = up | LinkFlags::kLoopback});
    link({.index = IfIndex(2),
          .name = "eth0",
          .mac = kMacA,
          .mtu = 1500,
          .flags = up | LinkFlags::kEthernet});
    link({.index = IfIndex(3),
          .name = "eth0.5",
          .mac = kMacA,
          .mtu = 1400,
          .flags = up | LinkFlags::kEthernet,
          .kind = LinkKind::kVlan,
          .vlan = VlanId(5),
          .lower = IfIndex(2)});
    addr(2, "10.0.0.1", 24), addr(2, "fd00::1", 64), addr(3, "10.5.0.1", 24);
    for (const char* own : {"10.0.0.1", "10.5.0.1"})
      route(255, own, 32, 2).type = RouteType::kLocal;
    route(255, "127.0.0.0", 8, 1).type = RouteType::kLocal;
    route(255, "10.0.0.255", 32, 2).type = RouteType::kBroadcast;
    route(254, "10.0.0.0", 24, 2).scope = Scope::kLink;
    route(254, "10.5.0.0", 24, 3).scope = Scope::kLink;
    route(254, "0.0.0.0", 0, 2).hop.gateway = ip("10.0.0.254");
    route(255, "fd00::1", 128, 2).type = RouteType::kLocal;
    route(254, "fd00::", 64, 2);
    for (const bool v6 : {false, true})
      for (const uint32_t table : {255U, 254U})
        rules.push_back({.v6 = v6, .priority = table == 255 ? 0U : 32766U, .table = table});
  }
  Route& route(uint32_t table, const char* dst, uint8_t len, uint32_t oif) {
    Route r;
    r.table = table;
    r.dst = ip(dst);
    r.dst_len = len;
    r.hop.oif = IfIndex(oif);
    return routes.emplace_back(r);
  }
  Addr& addr(uint32_t ifindex, const char* a, uint8_t len) {
    return addrs.emplace_back(
        Addr{.ifindex = IfIndex(ifindex), .addr = ip(a), .prefix = ip(a), .prefix_len = len});
  }
  void link(Link l) { links.push_back(std::move(l)); }
  void rule(Rule r) {
    rules.push_back(std::move(r));
    std::ranges::sort(rules, {}, &Rule::priority);
  }
  Snapshot snapshot() const {
    Snapshot s;
    s.generation = 7;
    s.links = std::make_shared<const Links>(Links{links});
    s.addrs = std::make_shared<const Addrs>(Addrs{addrs});
    s.rules = std::make_shared<const Rules>(Rules{rules});
    s.neighbours = std::make_shared<const Neighbours>(Neighbours{neighbours});
    auto tables = std::make_shared<RouteTables>();
    for (const bool v6 : {false, true})
      for (const uint32_t id : {100U, 254U, 255U}) {
        std::vector<Route> mine;
        std::ranges::copy_if(routes, std::back_inserter(mine),
                             [&](const Route& r) { return r.table == id && r.dst.is_v4() != v6; });
        std::ranges::sort(mine, RouteTable::precedes);
        tables->all.push_back({id, v6, std::make_shared<const RouteTable>(std::move(mine), false)});
      }
    s.routes = tables;
    return s;
  }
  Result<NextHop> to(const char* dst) const { return look({.dst = ip(dst)}); }
  Result<NextHop> look(const LookupKey& k) const { return lookup(snapshot(), k); }
  int error_to(const char* dst) const {
    auto n = to(dst);
    return n ? 0 : n.error().code;
  }

  std::vector<Link> links;
  std::vector<Addr> addrs;
  std::vector<Route> routes;
  std::vector<Rule> rules;
  std::vector<Neighbour> neighbours;
};

TEST(Lookup, NeighbourOnLink) {
  Host h;
  h.neighbours.push_back({IfIndex(2), ip("10.0.0.9"), kMacB, NeighbourState::kReachable});
  const auto n = h.to("10.0.0.9");
  ASSERT_TRUE(n);
  EXPECT_EQ(n->kind, DestKind::kUnicast);
  EXPECT_EQ(n->ifindex, IfIndex(2));
  EXPECT_EQ(n->carrier, IfIndex(2));
  EXPECT_EQ(n->src, ip("10.0.0.1"));
  EXPECT_EQ(n->via, ip("10.0.0.9"));
  EXPECT_EQ(n->src_mac, kMacA);
  EXPECT_EQ(n->dst_mac, kMacB);
  EXPECT_EQ(n->mtu, 1500U);
  EXPECT_EQ(n->generation, 7U);
  EXPECT_TRUE(n->is_resolved());
  EXPECT_FALSE(h.to("10.0.0.8")->is_resolved());
}

TEST(Lookup, GatewayOfTheDefaultRoute) {
  Host h;
  const auto n = h.to("8.8.8.8");
  ASSERT_TRUE(n);
  EXPECT_EQ(n->via, ip("10.0.0.254"));
  EXPECT_EQ(n->src, ip("10.0.0.1"));
}

TEST(Lookup, VlanIsCarriedByTheInterfaceBeneath) {
  Host h;
  const auto n = h.to("10.5.0.2");
  ASSERT_TRUE(n);
  EXPECT_EQ(n->ifindex, IfIndex(3));
  EXPECT_EQ(n->carrier, IfIndex(2));
  EXPECT_EQ(n->vlan, VlanId(5));
  EXPECT_EQ(n->mtu, 1400U);
  h.links[2].vlan_8021ad = true;
  EXPECT_EQ(h.to("10.5.0.2")->carrier, IfIndex()) << "802.1ad is not ours";
}

TEST(Lookup, OwnAddressesAreTheKernels) {
  Host h;
  for (const char* own :
       {"10.0.0.1", "10.5.0.1", "127.0.0.1", "127.9.9.9", "fd00::1", "0.0.0.0", "::"}) {
    const auto n = h.to(own);
    ASSERT_TRUE(n) << own;
    EXPECT_EQ(n->kind, DestKind::kLocal) << own;
    EXPECT_EQ(n->carrier, IfIndex()) << own;
  }
}

TEST(Lookup, BroadcastAndMulticast) {
  Host h;
  const Mac all{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  EXPECT_EQ(h.to("10.0.0.255")->kind, DestKind::kBroadcast);
  EXPECT_EQ(h.to("10.0.0.255")->dst_mac, all);
  EXPECT_EQ(h.look({.dst = ip("255.255.255.255"), .oif = IfIndex(3)})->ifindex, IfIndex(3));
  const auto m = h.look({.dst = ip("239.129.2.3"), .oif = IfIndex(3)});
  ASSERT_TRUE(m);
  EXPECT_EQ(m->kind, DestKind::kMulticast);
  EXPECT_EQ(m->src, ip("10.5.0.1"));
  EXPECT_EQ(m->dst_mac, (Mac{0x01, 0, 0x5e, 0x01, 2, 3}));
  EXPECT_EQ(h.to("239.1.2.3")->via, ip("239.1.2.3"))
      << "the default route's gateway is not for groups";
  EXPECT_EQ(multicast_mac(ip("ff02::1:ff00:1234")), (Mac{0x33, 0x33, 0xff, 0, 0x12, 0x34}));
}

TEST(Lookup, RoutesAndRulesThatRefuse) {
  Host h;
  h.route(254, "10.20.0.0", 16, 0).type = RouteType::kUnreachable;
  h.route(254, "10.21.0.0", 16, 0).type = RouteType::kProhibit;
  h.route(254, "10.22.0.0", 16, 0).type = RouteType::kBlackhole;
  h.route(254, "10.23.0.0", 16, 0).type = RouteType::kThrow;
  h.rule({.priority = 10, .action = RuleAction::kProhibit, .to = ip("10.24.0.0"), .to_len = 16});
  EXPECT_EQ(h.error_to("10.20.0.1"), EHOSTUNREACH);
  EXPECT_EQ(h.error_to("10.21.0.1"), EACCES);
  EXPECT_EQ(h.error_to("10.22.0.1"), EINVAL);
  EXPECT_EQ(h.error_to("10.23.0.1"), ENETUNREACH) << "no rule follows the table";
  EXPECT_EQ(h.error_to("10.24.0.1"), EACCES);
  EXPECT_EQ(h.error_to("fd01::1"), ENETUNREACH);
}

TEST(Lookup, RulesChooseTheTable) {
  Host h;
  h.route(100, "0.0.0.0", 0, 3).hop.gateway = ip("10.5.0.254");
  h.rule({.priority = 10, .table = 100, .mark = 1, .mark_mask = 3});
  h.rule({.priority = 11, .table = 100, .has_uid = true, .uid_from = 1000, .uid_to = 1999});
  h.rule({.priority = 12, .table = 100, .from = ip("10.5.0.1"), .from_len = 32});
  h.rule({.priority = 13, .table = 100, .dport = {80, 90}});
  const auto via5 = [&](LookupKey k) {
    k.dst = ip("8.8.8.8");
    return h.look(k)->via == ip("10.5.0.254");
  };
  EXPECT_FALSE(via5({}));
  EXPECT_TRUE(via5({.mark = 5}));
  EXPECT_FALSE(via5({.mark = 2}));
  EXPECT_TRUE(via5({.uid = 1500}));
  EXPECT_TRUE(via5({.src = ip("10.5.0.1")}));
  EXPECT_TRUE(via5({.dport = 85}));
  EXPECT_FALSE(via5({.dport = 91}));
  h.rule({.priority = 1, .foreign = true});
  EXPECT_EQ(h.error_to("8.8.8.8"), EOPNOTSUPP) << "a rule that only the kernel understands";
}

TEST(Lookup, PortsMatterToRulesThatNameThemAndToEqualWays) {
  Host h;
  EXPECT_FALSE(ports_matter(h.snapshot()));
  h.rule({.priority = 12, .table = 100, .ip_proto = 6});
  EXPECT_FALSE(ports_matter(h.snapshot()));
  Host from = h, to = h, ways = h;
  from.rule({.priority = 13, .table = 100, .sport = {80, 90}});
  EXPECT_TRUE(ports_matter(from.snapshot()));
  to.rule({.priority = 13, .table = 100, .dport = {0, 90}});
  EXPECT_TRUE(ports_matter(to.snapshot()));
  ways.route(254, "10.40.0.0", 16, 0).multipath = {{.oif = IfIndex(2), .gateway = {}},
                                                   {.oif = IfIndex(3), .gateway = {}}};
  EXPECT_TRUE(ports_matter(ways.snapshot()));
}

TEST(Lookup, BoundInterface) {
  Host h;
  const auto n = h.look({.dst = ip("8.8.8.8"), .oif = IfIndex(3)});
  ASSERT_TRUE(n);
  EXPECT_EQ(n->via, ip("8.8.8.8")) << "no route over it: assumed on link";
  EXPECT_EQ(n->src, ip("10.5.0.1"));
  EXPECT_EQ(h.look({.dst = ip("8.8.8.8"), .oif = IfIndex(99)}).error().code, ENODEV);
  h.links[2].flags = LinkFlags::kEthernet;
  EXPECT_EQ(h.look({.dst = ip("8.8.8.8"), .oif = IfIndex(3)}).error().code, ENETUNREACH);
  EXPECT_EQ(h.look({.dst = ip("8.8.8.8"), .src = ip("1.2.3.4")}).error().code, EINVAL)
      << "not our address";
}

TEST(Lookup, RouteMtuAndSourceWin) {
  Host h;
  Route& r = h.route(254, "10.30.0.0", 16, 2);
  r.mtu = 1300;
  r.advmss = 900;
  r.prefsrc = ip("10.5.0.1");
  const auto n = h.to("10.30.0.1");
  ASSERT_TRUE(n);
  EXPECT_EQ(n->mtu, 1300U);
  EXPECT_EQ(n->advmss, 900U);
  EXPECT_EQ(n->src, ip("10.5.0.1"));
}

TEST(Lookup, EqualWaysShareFlowsByWeightAndSkipDeadOnes) {
  Host h;
  Route& r = h.route(254, "10.40.0.0", 16, 0);
  r.multipath = {{.oif = IfIndex(2), .gateway = ip("10.0.0.2"), .weight = 3},
                 {.oif = IfIndex(3), .gateway = ip("10.5.0.2")}};
  const auto share = [&](const char* gateway) {
    int n = 0;
    for (uint32_t i = 0; i < 256; ++i)
      n += h.look({.dst = ip("10.40.0.1"), .flow_hash = (i << 24) + 1, .connected = false})->via ==
           ip(gateway);
    return n;
  };
  EXPECT_EQ(share("10.0.0.2"), 192);
  EXPECT_EQ(share("10.5.0.2"), 64);
  h.routes.back().multipath[0].dead = true;
  EXPECT_EQ(share("10.5.0.2"), 256);
}

TEST(Lookup, Ipv6SourceByRfc6724) {
  Host h;
  h.addr(2, "fe80::1", 64).scope = Scope::kLink;
  h.addr(2, "2001:db8:1::1", 64);
  h.addr(2, "2001:db8:1::2", 64).flags = AddrFlags::kDeprecated;
  h.addr(2, "2001:db8:1::3", 64).flags = AddrFlags::kTentative;
  h.addr(3, "2001:db8:2::1", 64);
  h.route(254, "::", 0, 2);
  h.route(254, "fe80::", 64, 2);
  EXPECT_EQ(h.to("2001:db8:9::9")->src, ip("2001:db8:1::1"))
      << "rule 5: the outgoing interface, rule 3: not deprecated";
  EXPECT_EQ(h.to("fe80::9")->src, ip("fe80::1")) << "rule 2: scope";
  EXPECT_EQ(h.to("fd00:9::9")->src, ip("fd00::1")) << "rule 6: label";
  h.addrs.erase(h.addrs.begin(), h.addrs.end());
  EXPECT_EQ(h.error_to("2001:db8:9::9"), EADDRNOTAVAIL);
}

}  // namespace
}  // namespace vireo::net
