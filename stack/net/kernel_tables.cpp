#include "stack/net/kernel_tables.h"

#include <linux/netconf.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <limits>

namespace vireo::net {
namespace {

bool same_hop(const Hop& a, const Hop& b) { return a.oif == b.oif && a.gateway == b.gateway; }

/// The next hops of a route, one or several.
std::vector<Hop> hops_of(const Route& r) {
  return r.multipath.empty() ? std::vector<Hop>{r.hop} : r.multipath;
}

bool same_hops(const Route& a, const Route& b) {
  return std::ranges::equal(hops_of(a), hops_of(b), same_hop);
}

/// All next hops of `part` are among those of `whole`.
bool covers(const Route& whole, const Route& part) {
  const auto w = hops_of(whole);
  return std::ranges::all_of(hops_of(part), [&](const Hop& h) {
    return std::ranges::any_of(w, [&](const Hop& o) { return same_hop(h, o); });
  });
}

/// Distinguishes routes of the same prefix, TOS and metric.
bool same_route(const Route& a, const Route& b) {
  return a.type == b.type && a.scope == b.scope && a.prefsrc == b.prefsrc &&
         a.protocol == b.protocol && same_hops(a, b);
}

template <class Map>
bool sweep(Map& rows, uint32_t dump) {
  return std::erase_if(rows, [dump](const auto& e) { return e.second.dump != dump; }) != 0;
}

}  // namespace

bool KernelTables::RouteKey::same_place(const RouteKey& o) const {
  return dst == o.dst && dst_len == o.dst_len && tos == o.tos && metric == o.metric;
}

bool KernelTables::RouteKey::operator<(const RouteKey& o) const {
  if (dst != o.dst) return dst < o.dst;  // bytes in network order compare like the numbers
  if (dst_len != o.dst_len) return dst_len < o.dst_len;
  if (tos != o.tos) return tos > o.tos;
  if (metric != o.metric) return metric < o.metric;
  return order < o.order;
}

void KernelTables::begin_dump(Part part) {
  dumping_ = part;
  ++dump_;
  fresh_addrs_.clear();
  fresh_rules_.clear();
  fresh_routes_.clear();
}

void KernelTables::dumped(const nlmsghdr& m) {
  switch (m.nlmsg_type) {
    case RTM_NEWLINK:
      if (dumping_ == Part::kLinks) on_link(m, false);
      break;
    case RTM_NEWADDR:
      if (auto a = parse_addr(m); a && dumping_ == Part::kAddrs)
        fresh_addrs_.push_back(*std::move(a));
      break;
    case RTM_NEWRULE:
      if (auto r = parse_rule(m); r && dumping_ == (r->v6 ? Part::kRules6 : Part::kRules4))
        fresh_rules_.push_back(*std::move(r));
      break;
    case RTM_NEWROUTE:
      on_route(m, true);
      break;
    case RTM_NEWNEIGH:
      if (dumping_ == Part::kNeighbours) on_neighbour(m, false);
      break;
    case RTM_NEWNETCONF:
      if (dumping_ == Part::kConf) on_conf(m, false);
      break;
    default:
      break;
  }
}

void KernelTables::end_dump() {
  const Part part = std::exchange(dumping_, Part::kNone);
  switch (part) {
    case Part::kLinks:
      if (sweep(links_, dump_)) mark(part), stale_ |= Part::kRoutes4 | Part::kRoutes6;
      break;
    case Part::kNeighbours:
      if (sweep(neighbours_, dump_)) mark(part);
      break;
    case Part::kConf:
      if (sweep(rp_filters_, dump_)) mark(Part::kLinks);
      break;
    case Part::kAddrs: {
      if (fresh_addrs_ == addrs_) break;
      const bool lost = std::ranges::any_of(addrs_, [&](const Addr& a) {
        return std::ranges::find(fresh_addrs_, a) == fresh_addrs_.end();
      });
      if (lost) stale_ |= Part::kRoutes4, unsettled_ = true;
      addrs_.swap(fresh_addrs_);
      mark(part);
      break;
    }
    case Part::kRules4:
    case Part::kRules6: {
      auto& rules = rules_[part == Part::kRules6];
      if (fresh_rules_ == rules) break;
      rules.swap(fresh_rules_);
      mark(part);
      break;
    }
    case Part::kRoutes4:
    case Part::kRoutes6: {
      Family& live = routes_[part == Part::kRoutes6];
      for (auto& [id, table] : fresh_routes_) {
        auto it = live.find(id);
        if (it == live.end() || it->second.by_source != table.by_source ||
            !std::ranges::equal(
                it->second.routes, table.routes, {},
                [](auto& e) -> const Route& { return e.second; },
                [](auto& e) -> const Route& { return e.second; })) {
          mark(part);
        } else {
          table.dirty = it->second.dirty;
          table.built = it->second.built;
        }
      }
      if (fresh_routes_.size() != live.size()) mark(part);
      live.swap(fresh_routes_);
      break;
    }
    default:
      break;
  }
  fresh_addrs_.clear();
  fresh_rules_.clear();
  fresh_routes_.clear();
}

void KernelTables::changed(const nlmsghdr& m) {
  switch (m.nlmsg_type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
      on_link(m, m.nlmsg_type == RTM_DELLINK);
      break;
    case RTM_NEWADDR:
    case RTM_DELADDR:
      // Source selection depends on the order of addresses, which a notification does not contain.
      stale_ |= Part::kAddrs;
      break;
    case RTM_NEWRULE:
    case RTM_DELRULE:
      if (auto r = parse_rule(m)) stale_ |= r->v6 ? Part::kRules6 : Part::kRules4;
      break;
    case RTM_NEWROUTE:
    case RTM_DELROUTE:
      on_route(m, false);
      break;
    case RTM_NEWNEIGH:
    case RTM_DELNEIGH:
      on_neighbour(m, m.nlmsg_type == RTM_DELNEIGH);
      break;
    case RTM_NEWNETCONF:
    case RTM_DELNETCONF:
      on_conf(m, m.nlmsg_type == RTM_DELNETCONF);
      break;
    default:
      break;
  }
}

void KernelTables::on_link(const nlmsghdr& m, bool removed) {
  auto link = parse_link(m);
  if (!link) return;
  auto it = links_.find(link->index);
  const LinkFlags before = it != links_.end() ? it->second.row.flags : LinkFlags::kNone;
  if (removed) {
    if (it != links_.end()) links_.erase(it), mark(Part::kLinks);
    // The kernel removes the neighbours of a removed link, but does not notify of all of them.
    if (std::erase_if(neighbours_, [&](const auto& e) { return e.first.ifindex == link->index; }) !=
        0)
      mark(Part::kNeighbours);
    stale_ |= Part::kAddrs | Part::kRoutes4 | Part::kRoutes6;
    unsettled_ = true;
    return;
  }
  constexpr LinkFlags kCarries = LinkFlags::kUp | LinkFlags::kRunning;
  if (it != links_.end() && (before & kCarries) != (link->flags & kCarries)) {
    stale_ |= Part::kRoutes4 | Part::kRoutes6;  // RTNH_F_DEAD and RTNH_F_LINKDOWN change without
                                                // notification
    unsettled_ = true;
  }
  if (it == links_.end()) {
    mark(Part::kLinks);
    links_.emplace(link->index, Stamped<Link>{*std::move(link), dump_});
    return;
  }
  it->second.dump = dump_;
  if (it->second.row == *link) return;
  it->second.row = *std::move(link);
  mark(Part::kLinks);
}

void KernelTables::on_neighbour(const nlmsghdr& m, bool removed) {
  auto n = parse_neighbour(m);
  if (!n) return;
  const NeighbourKey key{n->ifindex, n->addr};
  if (removed) {
    if (neighbours_.erase(key) != 0) mark(Part::kNeighbours);
    return;
  }
  auto [it, added] = neighbours_.try_emplace(key, Stamped<Neighbour>{*n, dump_});
  it->second.dump = dump_;
  if (!added && it->second.row == *n) return;
  it->second.row = *n;
  mark(Part::kNeighbours);
}

void KernelTables::on_conf(const nlmsghdr& m, bool removed) {
  const auto c = parse_conf(m);
  if (!c) return;
  if (removed) {
    if (rp_filters_.erase(c->ifindex) != 0) mark(Part::kLinks);
    return;
  }
  if (!c->rp_filter) return;  // a notification contains only what has changed
  auto& have = rp_filters_[c->ifindex];
  have.dump = dump_;
  if (std::exchange(have.row, *c->rp_filter) != *c->rp_filter) mark(Part::kLinks);
}

void KernelTables::on_route(const nlmsghdr& m, bool from_dump) {
  auto parsed = parse_route(m);
  if (!parsed || parsed->cloned) return;
  const Route& r = parsed->route;
  const auto* header =
      reinterpret_cast<const rtmsg*>(reinterpret_cast<const char*>(&m) + NLMSG_HDRLEN);
  const bool v6 = header->rtm_family == AF_INET6;
  const Part part = v6 ? Part::kRoutes6 : Part::kRoutes4;
  if (from_dump) {
    if (dumping_ != part) return;
    Table& t = fresh_routes_[r.table];
    if (parsed->by_source)
      t.by_source = true;
    else
      append(t, r);
    return;
  }
  if (parsed->by_source) {
    stale_ |= part;
    return;
  }
  auto apply = [&](Family& family) {
    Table& t = family[r.table];
    t.dirty = true;
    if (m.nlmsg_type == RTM_DELROUTE) return remove(t, r);
    return v6 ? insert_v6(t, r, m.nlmsg_flags) : insert_v4(t, r, m.nlmsg_flags);
  };
  mark(part);
  if (!apply(routes_[v6])) stale_ |= part;
  // A running dump will still contain what it has not reached: a mismatch there means nothing,
  // except for IPv6 multipath routes.
  if (dumping_ == part && !apply(fresh_routes_) && v6 && m.nlmsg_type == RTM_NEWROUTE)
    stale_ |= part;
}

void KernelTables::append(Table& t, const Route& r) {
  const RouteKey last{r.dst, r.dst_len, r.tos, r.metric, std::numeric_limits<int32_t>::max()};
  auto end = t.routes.upper_bound(last);
  int32_t order = 0;
  for (auto it = end; it != t.routes.begin();) {
    --it;
    if (!it->first.same_place(last)) break;
    order = std::max(order, it->first.order + 1);
    if (same_route(it->second, r)) {  // a notification came before the dump
      it->second = r;
      return;
    }
  }
  t.routes.emplace_hint(end, RouteKey{r.dst, r.dst_len, r.tos, r.metric, order}, r);
}

bool KernelTables::insert_v4(Table& t, const Route& r, unsigned flags) {
  RouteKey key{r.dst, r.dst_len, r.tos, r.metric, std::numeric_limits<int32_t>::min()};
  auto first = t.routes.lower_bound(key);
  const bool taken = first != t.routes.end() && first->first.same_place(key);
  if (!taken) {
    key.order = 0;
    t.routes.emplace_hint(first, key, r);
    return true;
  }
  if ((flags & NLM_F_REPLACE) != 0) {  // fib_table_insert(): replaces the first one of the place
    first->second = r;
    return true;
  }
  for (auto it = first; it != t.routes.end() && it->first.same_place(key); ++it) {
    if (!same_route(it->second, r)) continue;
    it->second = r;
    return true;
  }
  if ((flags & NLM_F_APPEND) != 0) {
    append(t, r);
    return true;
  }
  key.order = first->first.order - 1;
  t.routes.emplace_hint(first, key, r);
  return true;
}

bool KernelTables::insert_v6(Table& t, const Route& r, unsigned flags) {
  RouteKey key{r.dst, r.dst_len, r.tos, r.metric, std::numeric_limits<int32_t>::min()};
  auto first = t.routes.lower_bound(key);
  size_t count = 0;
  for (auto it = first; it != t.routes.end() && it->first.same_place(key); ++it) {
    ++count;
    if (!same_route(it->second, r)) continue;
    it->second = r;
    return true;
  }
  if (count == 0) {
    key.order = 0;
    t.routes.emplace_hint(first, key, r);
    return true;
  }
  // The message contains the whole set of equal routes through gateways. It extends the existing
  // one, or is a separate route.
  const bool through_gateway = hops_of(r).front().gateway.has_value();
  if (count == 1 && through_gateway && first->second.type == r.type && covers(r, first->second)) {
    first->second = r;
    return true;
  }
  if (count == 1 && (flags & NLM_F_REPLACE) != 0) {
    first->second = r;
    return true;
  }
  if (!through_gateway && (flags & NLM_F_REPLACE) == 0) {
    append(t, r);
    return true;
  }
  return false;
}

bool KernelTables::remove(Table& t, const Route& r) {
  const RouteKey key{r.dst, r.dst_len, r.tos, r.metric, std::numeric_limits<int32_t>::min()};
  for (auto it = t.routes.lower_bound(key); it != t.routes.end() && it->first.same_place(key);
       ++it) {
    Route& have = it->second;
    if (have.type != r.type) continue;
    if (same_hops(have, r)) {
      t.routes.erase(it);
      return true;
    }
    if (have.multipath.empty() || !covers(have, r)) continue;
    std::erase_if(have.multipath, [&](const Hop& h) {
      return std::ranges::any_of(hops_of(r), [&](const Hop& o) { return same_hop(h, o); });
    });
    if (have.multipath.empty()) t.routes.erase(it);
    return true;
  }
  return false;
}

void KernelTables::build_routes(Snapshot& s) {
  auto tables = std::make_shared<RouteTables>();
  for (const bool v6 : {false, true}) {
    for (auto& [id, t] : routes_[v6]) {
      if (t.dirty || t.built == nullptr) {
        std::vector<Route> rows;
        rows.reserve(t.routes.size());
        for (const auto& [key, r] : t.routes) rows.push_back(r);
        t.built = std::make_shared<const RouteTable>(std::move(rows), t.by_source);
        t.dirty = false;
      }
      tables->all.push_back({id, v6, t.built});
    }
  }
  s.routes = std::move(tables);
}

std::unique_ptr<Snapshot> KernelTables::build() {
  Snapshot& s = last_;
  if (has(dirty_, Part::kLinks)) {
    auto t = std::make_shared<Links>();
    const auto filter_of = [&](int32_t index) {
      const auto it = rp_filters_.find(index);
      return it == rp_filters_.end() ? uint8_t{0} : it->second.row;
    };
    const uint8_t of_all = filter_of(NETCONFA_IFINDEX_ALL);
    for (const auto& [index, link] : links_) {
      t->all.push_back(link.row);
      t->all.back().rp_filter = std::max(of_all, filter_of(static_cast<int32_t>(index.value())));
    }
    s.links = std::move(t);
  }
  if (has(dirty_, Part::kAddrs)) s.addrs = std::make_shared<const Addrs>(Addrs{addrs_});
  if (has(dirty_, Part::kRules4 | Part::kRules6)) {
    auto t = std::make_shared<Rules>();
    for (const auto& family : rules_) t->all.insert(t->all.end(), family.begin(), family.end());
    s.rules = std::move(t);
  }
  if (has(dirty_, Part::kRoutes4 | Part::kRoutes6)) build_routes(s);
  if (has(dirty_, Part::kNeighbours)) {
    auto t = std::make_shared<Neighbours>();
    t->all.reserve(neighbours_.size());
    for (const auto& [key, n] : neighbours_) t->all.push_back(n.row);
    s.neighbours = std::move(t);
  }
  dirty_ = Part::kNone;
  return std::make_unique<Snapshot>(s);
}

}  // namespace vireo::net
