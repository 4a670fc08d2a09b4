#include <algorithm>

#include "stack/net/addrs.h"
#include "stack/net/links.h"
#include "stack/net/neighbours.h"

namespace vireo::net {

bool Links::has_vlans(IfIndex lower) const {
  return std::ranges::any_of(
      all, [&](const Link& l) { return l.kind == LinkKind::kVlan && l.lower == lower; });
}

const Link* Links::find(IfIndex index) const {
  auto it = std::ranges::lower_bound(all, index, {}, &Link::index);
  return it != all.end() && it->index == index ? &*it : nullptr;
}

const Link* Links::find(std::string_view name) const {
  auto it = std::ranges::find(all, name, &Link::name);
  return it != all.end() ? &*it : nullptr;
}

const Addr* Addrs::find(const IpAddr& addr, IfIndex ifindex) const {
  for (const Addr& a : all)
    if (a.addr == addr && (ifindex == IfIndex() || a.ifindex == ifindex)) return &a;
  return nullptr;
}

const Neighbour* Neighbours::find(IfIndex ifindex, const IpAddr& addr) const {
  auto before = [&](const Neighbour& n) {
    return n.ifindex != ifindex ? n.ifindex < ifindex : n.addr < addr;
  };
  auto it = std::ranges::partition_point(all, before);
  return it != all.end() && it->ifindex == ifindex && it->addr == addr ? &*it : nullptr;
}

}  // namespace vireo::net
