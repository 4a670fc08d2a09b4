// The keys of UDP flows: who is behind each, and what brings its frames.
#include <algorithm>
#include <utility>

#include "stack/engine/bound_keys.h"
#include "stack/engine/hub.h"

namespace vireo {
namespace {

IpAddr local_of(const UdpBinding& b) { return IpAddr::v6(b.key.local); }

UdpBinding* make_binding(const DemuxKey& key, std::vector<UdpFlow*> flows) {
  auto* const b = new UdpBinding;
  b->key = key;
  b->flows = std::move(flows);
  return b;
}

/// In the order of Linux's hash chains (net/ipv4/udp.c): the newest first, but dual-stack sockets
/// behind IPv4 ones. If the same socket has another flow here, the new one goes before that.
void put_in_order(std::vector<UdpFlow*>& flows, UdpFlow& u) {
  const auto is_own = [&](const UdpFlow* have) {
    return u.owner != nullptr && have->owner == u.owner;
  };
  const auto is_behind = [&](const UdpFlow* have) { return have->key.v6 || !u.key.v6; };
  auto at = std::find_if(flows.begin(), flows.end(), is_own);
  if (at == flows.end()) at = std::find_if(flows.begin(), flows.end(), is_behind);
  flows.insert(at, &u);
}

/// Calls fn for each key of a flow: two for a wildcard of both families, none for a socket that is
/// bound to a group, which is behind that group's.
template <class F>
void for_each_key(const FlowKey& k, bool v6only, F&& fn) {
  if (k.local.addr.is_multicast()) return;
  if (k.is_exact()) return fn(demux_key(k));
  fn(DemuxKey::bound(k.proto, k.local.addr, k.local.port, k.v6));
  if (k.v6 && k.local.addr.is_unspecified() && !v6only)
    fn(DemuxKey::bound(k.proto, IpAddr(), k.local.port, false));
}

/// By its address: as net/ipv4/udp.c __udp_is_mcast_sock().
bool may_hear(const UdpFlow& u, const IpAddr& group) {
  const IpAddr& local = u.key.local.addr;
  if (!local.is_unspecified()) return local == group;
  return group.is_v4() ? !u.key.v6 || !u.v6only : u.key.v6;
}

bool has_joined(const UdpFlow& u, const IpAddr& group) {
  return std::ranges::find(u.groups, group, &UdpGroup::group) != u.groups.end();
}

/// Whether every datagram of the group that a rule brings is for the socket.
bool hears_each(const UdpFlow& u, const UdpBinding& b) {
  if (u.key.is_exact() || u.device != IfIndex()) return false;
  const UdpGroup* const g = u.membership(local_of(b), b.link);
  if (g != nullptr) return g->sources.admits_all();
  return local_of(b).is_v4() ? u.hears_all4 : u.hears_all6;
}

/// What a group's flows have joined.
void look_at_members(UdpBinding& b) {
  const IpAddr group = local_of(b);
  b.notes_port = false;
  b.link = {};
  bool by_one = true;
  for (const UdpFlow* u : b.flows)
    for (const UdpGroup& g : u->groups) {
      if (g.group != group || g.carrier == IfIndex()) continue;
      if (b.link == IfIndex()) {
        b.link = g.link;
        b.carrier = g.carrier;
      }
      by_one &= b.link == g.link;
      b.notes_port |= b.carrier != g.carrier;
    }
  b.asks_each =
      !by_one || !std::ranges::all_of(b.flows, [&](const UdpFlow* u) { return hears_each(*u, b); });
}

/// A member has named sources, and another socket may hear the group without being a member: the
/// kernel alone knows what others of the host have joined for, and thus what that one hears
/// (net/ipv4/igmp.c ip_check_mc_rcu()).
bool is_host_asked(const UdpBinding& b) {
  const IpAddr group = local_of(b);
  bool names_sources = false, has_guest = false;
  for (const UdpFlow* u : b.flows) {
    has_guest |= !has_joined(*u, group) && (group.is_v4() ? u->hears_all4 : u->hears_all6);
    for (const UdpGroup& g : u->groups)
      names_sources |= g.group == group && !g.sources.admits_all();
  }
  return names_sources && has_guest;
}

}  // namespace

const UdpGroup* UdpFlow::membership(const IpAddr& group, IfIndex link) const noexcept {
  const auto is_it = [&](const UdpGroup& g) {
    return g.group == group && (!group.is_v4() || g.link == link);
  };
  const auto newest = std::find_if(groups.rbegin(), groups.rend(), is_it);
  return newest != groups.rend() ? &*newest : nullptr;
}

bool UdpFlow::hears(const IpAddr& group, const Endpoint& source, IfIndex link) const noexcept {
  if (device != IfIndex() && device != link) return false;
  if (key.is_exact() && (key.remote.addr != source.addr || key.remote.port != source.port))
    return false;
  if (const UdpGroup* const g = membership(group, link)) return g->sources.admits(source.addr);
  return group.is_v4() ? hears_all4 : hears_all6;
}

/// After a change: which of its datagrams are plain, who delivers them, and the rules.
Carried<void> BoundKeys::settle(UdpBinding& b) {
  forget();
  const bool is_group = local_of(b).is_multicast();
  b.names_device =
      std::ranges::any_of(b.flows, [](const UdpFlow* u) { return u->device != IfIndex(); });
  if (is_group) look_at_members(b);
  b.is_plain = !b.names_device && !b.notes_port && !b.asks_each;
  if (b.key.remote_port != 0)
    for (UdpFlow* u : b.flows) {
      u->expected = {};
      if (b.flows.size() == 1 && !u->key.v6 && !b.names_device)
        u->expected.set({u->key.local, u->key.remote});
    }
  const bool was_kernels = b.is_kernels;
  const bool is_shared = b.key.remote_port == 0 && hub().udp.is_shared(b);
  b.is_kernels = b.key.remote_port == 0 && is_group && is_host_asked(b);
  // The other's share lasts until it is buried, if it was killed: till then no rule can be ours.
  b.lingers = b.is_copied && !is_shared && !b.lingers;
  if (b.lingers) hub().steering.try_again();
  b.is_copied = (is_shared || b.lingers) && is_group && !b.is_kernels;
  b.is_kernels |= is_shared && !is_group;
  auto ok = hub().steering.renew(b);
  if (!ok && b.is_copied) {
    b.is_copied = false;
    b.is_kernels = true;
    ok = hub().steering.renew(b);
  }
  if (b.is_kernels && !was_kernels) hub().stats.ports_shared.add();
  for (const UdpFlow* u : b.flows) show(*u);
  return ok;
}

/// Tells the tools who else gets what the flow's keys bring.
void BoundKeys::show(const UdpFlow& u) noexcept {
  bool is_kernels = false, is_copied = false;
  const auto look = [&](const DemuxKey& key) {
    const Demux::Ref r = hub().demux.find_own(key);
    if (kind_of(r) != FlowKind::kUdp) return;
    is_kernels |= at<UdpBinding>(r).is_kernels;
    is_copied |= at<UdpBinding>(r).is_copied;
  };
  for_each_key(u.key, u.v6only, look);
  for (const UdpGroup& g : u.groups) look(group_key(g.group, u.key.local.port));
  if (u.key.local.addr.is_multicast()) look(group_key(u.key.local.addr, u.key.local.port));
  const auto shared = is_copied    ? is_kernels ? SharedPort::kBoth : SharedPort::kCopies
                      : is_kernels ? SharedPort::kKernel
                                   : SharedPort::kNo;
  u.stats->shared.store(shared, std::memory_order_relaxed);
}

void BoundKeys::end(UdpBinding& b) noexcept {
  forget();
  std::erase(groups_, &b);
  hub().demux.erase(b.key, ref(b));
  delete &b;
}

Carried<void> BoundKeys::bind_key(const DemuxKey& key, UdpFlow& u) {
  const Demux::Ref r = hub().demux.find_own(key);
  if (r == 0) {
    auto* const b = make_binding(key, {&u});
    hub().demux.insert(key, ref(*b));
    return settle(*b);
  }
  if (kind_of(r) != FlowKind::kUdp)
    return std::unexpected(Refusal{Carriage::kDevice, EADDRINUSE, "local address in use"});
  put_in_order(at<UdpBinding>(r).flows, u);
  return settle(at<UdpBinding>(r));
}

void BoundKeys::unbind_key(const DemuxKey& key, UdpFlow& u) noexcept {
  const Demux::Ref r = hub().demux.find_own(key);
  if (kind_of(r) != FlowKind::kUdp) return;
  auto& b = at<UdpBinding>(r);
  if (std::erase(b.flows, &u) == 0) return;
  if (b.flows.empty())
    end(b);
  else
    (void)settle(b);
}

std::vector<IpAddr> BoundKeys::groups_at(uint16_t port) const {
  std::vector<IpAddr> all;
  for (const UdpBinding* b : groups_)
    if (b->key.local_port == port) all.push_back(local_of(*b));
  return all;
}

Carried<void> BoundKeys::renew_group(const IpAddr& group, uint16_t port, const UdpFlow* without) {
  std::vector<UdpFlow*> flows;
  bool is_wanted = false;
  for (UdpFlow* const u : hub().udp.bound()) {
    if (u == without || u->key.local.port != port || !may_hear(*u, group)) continue;
    put_in_order(flows, *u);
    is_wanted |= u->key.local.addr == group || has_joined(*u, group);
  }
  const DemuxKey key = group_key(group, port);
  const Demux::Ref r = hub().demux.find_own(key);
  if (!is_wanted) {
    if (r != 0) end(at<UdpBinding>(r));
    return {};
  }
  if (r != 0) {
    at<UdpBinding>(r).flows = std::move(flows);
    return settle(at<UdpBinding>(r));
  }
  auto* const b = make_binding(key, std::move(flows));
  hub().demux.insert(key, ref(*b));
  groups_.push_back(b);
  return settle(*b);
}

Carried<void> BoundKeys::bind_udp(UdpFlow& u) {
  Carried<void> result;
  for_each_key(u.key, u.v6only, [&](const DemuxKey& key) {
    if (result) result = bind_key(key, u);
  });
  const uint16_t port = u.key.local.port;
  const auto renew_one = [&](const IpAddr& group) {
    if (!result) return;
    if (auto ok = renew_group(group, port); !ok) result = ok;
  };
  for (const IpAddr& group : groups_at(port)) (void)renew_group(group, port);
  if (u.key.local.addr.is_multicast()) renew_one(u.key.local.addr);
  for (const UdpGroup& g : u.groups) renew_one(g.group);
  return result;
}

void BoundKeys::unbind_udp(UdpFlow& u) noexcept {
  for_each_key(u.key, u.v6only, [&](const DemuxKey& key) { unbind_key(key, u); });
  for (const IpAddr& group : groups_at(u.key.local.port))
    (void)renew_group(group, u.key.local.port, &u);
}

void BoundKeys::renew(const UdpFlow& u) {
  for_each_key(u.key, u.v6only, [&](const DemuxKey& key) {
    if (const Demux::Ref r = hub().demux.find_own(key); kind_of(r) == FlowKind::kUdp)
      (void)settle(at<UdpBinding>(r));
  });
  for (UdpBinding* b : groups_)
    if (b->key.local_port == u.key.local.port) (void)settle(*b);
}

void BoundKeys::drop_rules_of(const Device& gone) {
  const auto drop = [&](UdpBinding& b) {
    std::erase_if(b.rules, [&](const BoundRule& r) {
      return r.rule.device() == &gone || r.rule.device() == nullptr;
    });
  };
  for (const UdpFlow* u : hub().udp.bound())
    for_each_key(u->key, u->v6only, [&](const DemuxKey& key) {
      if (const Demux::Ref r = hub().demux.find_own(key); kind_of(r) == FlowKind::kUdp)
        drop(at<UdpBinding>(r));
    });
  for (UdpBinding* b : groups_) drop(*b);
}

void BoundKeys::renew_all(uint16_t port) {
  for (const UdpFlow* u : hub().udp.bound())
    if (u->key.local.port == port) renew(*u);
}

}  // namespace vireo
