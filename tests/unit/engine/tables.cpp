#include "tests/unit/engine/tables.h"

#include <algorithm>

namespace vireo::test {
namespace {

net::Route route(const char* dst, uint8_t len, uint32_t table, IfIndex oif) {
  net::Route r;
  r.table = table;
  r.dst = ip(dst);
  r.dst_len = len;
  r.hop.oif = oif;
  return r;
}

}  // namespace

std::unique_ptr<net::Snapshot> tables(const Place& at) {
  using namespace net;
  auto s = std::make_unique<Snapshot>();
  const LinkFlags up = LinkFlags::kUp | LinkFlags::kRunning;
  const IfIndex on = at.vlan != 0 ? kVlan : kEth0;
  Links links{{{.index = IfIndex(1), .name = "lo", .flags = up | LinkFlags::kLoopback},
               {.index = kEth0,
                .name = "eth0",
                .mac = at.mac,
                .mtu = at.mtu,
                .flags = up | LinkFlags::kEthernet}}};
  if (at.vlan != 0) {
    Link& l = links.all.emplace_back(links.all.back());
    l.index = kVlan;
    l.name = "eth0.vlan";
    l.kind = LinkKind::kVlan;
    l.vlan = VlanId(at.vlan);
    l.lower = kEth0;
    l.egress_qos = at.egress_qos;
  }
  s->links = std::make_shared<const Links>(std::move(links));
  s->addrs = std::make_shared<const Addrs>(
      Addrs{{{.ifindex = on,
              .addr = ip(at.v4),
              .prefix = ip(at.v4),
              .prefix_len = 24,
              .broadcast = ip("10.0.0.255")},
             {.ifindex = on, .addr = ip(at.v6), .prefix = ip(at.v6), .prefix_len = 64}}});
  Rules rules;
  for (const bool v6 : {false, true})
    for (const uint32_t table : {255U, 254U})
      rules.all.push_back({.v6 = v6, .priority = table == 255 ? 0U : 32766U, .table = table});
  s->rules = std::make_shared<const Rules>(std::move(rules));
  Neighbours neighbours;
  for (const char* router : {"10.0.0.254", "fd00::254"})
    neighbours.all.push_back(
        {.ifindex = on,
         .addr = ip(router),
         .mac = at.router_mac,
         .state = at.knows_router ? NeighbourState::kPermanent : NeighbourState::kIncomplete});
  std::ranges::sort(neighbours.all, {}, &Neighbour::addr);
  s->neighbours = std::make_shared<const Neighbours>(std::move(neighbours));
  auto routes = std::make_shared<RouteTables>();
  const auto table = [&](uint32_t id, bool v6, std::vector<net::Route> list) {
    std::ranges::sort(list, RouteTable::precedes);
    routes->all.push_back({id, v6, std::make_shared<const RouteTable>(std::move(list), false)});
  };
  net::Route own4 = route(at.v4, 32, 255, on), own6 = route(at.v6, 128, 255, on);
  own4.type = own6.type = RouteType::kLocal;
  net::Route all4 = route("10.0.0.255", 32, 255, on);
  all4.type = RouteType::kBroadcast;
  net::Route out4 = route("0.0.0.0", 0, 254, on), out6 = route("::", 0, 254, on);
  out4.hop.gateway = ip("10.0.0.254");
  out6.hop.gateway = ip("fd00::254");
  table(254, false, {out4});
  table(254, true, {out6});
  table(255, false, {own4, all4});
  table(255, true, {own6});
  s->routes = routes;
  return s;
}

}  // namespace vireo::test
