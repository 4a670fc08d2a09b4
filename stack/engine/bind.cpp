// Keys of flows that are bound without a peer: a local address or every address, one family or
// both, and groups. Several UDP flows, or listeners, may share a key and stand in a list behind it.
#include <algorithm>

#include "stack/engine/engine.h"

namespace vireo {
namespace {

/// Is the key's local address a group that they have joined by more than one port, be it by one
/// each? Whoever is a member anywhere hears it all.
bool comes_by_several(const UdpBinding& b) {
  const UdpGroup* first = nullptr;
  for (const UdpFlow* u : b.flows)
    for (const UdpGroup& g : u->groups) {
      if (!std::ranges::equal(g.group.bytes(), b.key.local)) continue;
      if (first != nullptr && first->carrier != g.carrier) return true;
      first = &g;
    }
  return false;
}

/// What comes for a tuple that is one socket's alone may go straight to it.
void refresh_expected(UdpBinding& b) {
  b.names_device =
      std::ranges::any_of(b.flows, [](const UdpFlow* u) { return u->device != IfIndex(); });
  b.notes_port = comes_by_several(b);
  if (b.key.remote_port == 0) return;
  for (UdpFlow* u : b.flows) {
    u->expected = {};
    if (b.flows.size() == 1 && !u->key.v6 && !b.names_device)
      u->expected.set({u->key.local, u->key.remote});
  }
}

/// Into the order of Linux's hash chains (net/ipv4/udp.c): who came last is first, over IPv4 behind
/// those that are of IPv4 alone. Who follows another flow of its socket has that one's place.
void put_in_order(std::vector<UdpFlow*>& flows, UdpFlow& u) {
  const auto is_own = [&](const UdpFlow* have) {
    return u.owner != nullptr && have->owner == u.owner;
  };
  const auto is_behind = [&](const UdpFlow* have) { return have->key.v6 || !u.key.v6; };
  auto at = std::find_if(flows.begin(), flows.end(), is_own);
  if (at == flows.end()) at = std::find_if(flows.begin(), flows.end(), is_behind);
  flows.insert(at, &u);
}

/// Calls fn for each key of a flow: two for a wildcard of both families.
template <class F>
void for_each_key(const Flow& f, F&& fn) {
  const FlowKey& k = f.key;
  if (k.is_exact()) {
    fn(demux_key(k));
    return;
  }
  fn(DemuxKey::bound(k.proto, k.local.addr, k.local.port, k.v6));
  if (k.v6 && k.local.addr.is_unspecified() && !f.v6only)
    fn(DemuxKey::bound(k.proto, IpAddr(), k.local.port, false));
}

}  // namespace

Carried<void> Engine::bind_key(const DemuxKey& key, Flow& f) {
  forget_bound();
  const Refusal taken{Carriage::kDevice, EADDRINUSE, "local address in use"};
  if (f.kind == FlowKind::kListener) return join_group(key, static_cast<Listener&>(f));
  auto& u = static_cast<UdpFlow&>(f);
  const Demux::Ref r = demux_.find_own(key);
  if (r == 0) {
    auto* const binding = new UdpBinding{key, {&u}};
    demux_.insert(key, ref(*binding));
    refresh_expected(*binding);
    return {};
  }
  if (kind_of(r) != FlowKind::kUdp) return std::unexpected(taken);
  UdpBinding& binding = at<UdpBinding>(r);
  auto& flows = binding.flows;
  if (std::find(flows.begin(), flows.end(), &u) == flows.end()) put_in_order(flows, u);
  refresh_expected(binding);
  return {};
}

void Engine::unbind_key(const DemuxKey& key, Flow& f) noexcept {
  forget_bound();
  const Demux::Ref found = demux_.find_own(key);
  if (found == 0) return;
  if (f.kind == FlowKind::kListener) {
    if (kind_of(found) == FlowKind::kListener) leave_group(key, static_cast<Listener&>(f));
    return;
  }
  if (kind_of(found) != FlowKind::kUdp) return;
  auto& u = static_cast<UdpFlow&>(f);
  auto& binding = at<UdpBinding>(found);
  if (std::erase(binding.flows, &u) == 0) return;
  if (binding.flows.empty()) {
    demux_.erase(key, found);
    delete &binding;
    return;
  }
  refresh_expected(binding);
  // Who is left may have found the key steered already and have no rule of its own: it takes over
  // ours. One too many does no harm, it ends with its new owner.
  UdpFlow& heir = *binding.flows.front();
  for (FlowRule& r : u.rules) heir.rules.push_back(std::move(r));
  u.rules.clear();
}

/// Several listeners share a key if all of them have SO_REUSEPORT, or hear by different interfaces.
Carried<void> Engine::join_group(const DemuxKey& key, Listener& l) {
  const Demux::Ref r = demux_.find_own(key);
  if (r == 0) {
    auto* const group = new ListenGroup{key, {&l}};
    demux_.insert(key, ref(*group));
    return {};
  }
  const auto shares = [&](const Listener* m) {
    const IfIndex a = m->options.device, b = l.options.device;
    return (m->options.reuse_port && l.options.reuse_port) ||
           (a != b && a != IfIndex() && b != IfIndex());
  };
  if (kind_of(r) == FlowKind::kListener) {
    auto& members = at<ListenGroup>(r).members;
    if (std::all_of(members.begin(), members.end(), shares)) {
      members.push_back(&l);
      return {};
    }
  }
  return std::unexpected(Refusal{Carriage::kDevice, EADDRINUSE, "local address in use"});
}

void Engine::leave_group(const DemuxKey& key, Listener& l) noexcept {
  auto& group = at<ListenGroup>(demux_.find_own(key));
  if (std::erase(group.members, &l) == 0) return;
  if (group.members.empty()) {
    demux_.erase(key, ref(group));
    delete &group;
    return;
  }
  // As with UDP, above: who is left takes over the rules.
  Listener& heir = *group.members.front();
  for (FlowRule& r : l.rules) heir.rules.push_back(std::move(r));
  l.rules.clear();
}

bool Engine::is_in_use(const BindWish& wish) noexcept {
  const IpAddr& addr = wish.local.addr;
  const auto meets = [&](const IpAddr& local) {
    if (addr == local) return true;
    if (!addr.is_unspecified()) return false;
    return addr.is_v4() ? local.is_v4() : !wish.v6only || !local.is_v4();
  };
  bool is_used = false;
  const auto look = [&](const auto& c, const IpAddr& local) {
    const bool shares = (wish.reuse_addr && c.reuse_addr) || (wish.reuse_port && c.reuse_port);
    is_used |= !shares && meets(local);
  };
  tcp_.for_each([&](const TcpFlow& f) {
    if (f.key.local.port == wish.local.port && tcp::state(f.tcb) != tcp::State::kClosed)
      look(f, f.key.local.addr);
  });
  time_waits_.for_each([&](const TimeWaitEntry& e) {
    if (e.key.local_port == wish.local.port && !e.is_elsewhere) look(e, IpAddr::v6(e.key.local));
  });
  return is_used;
}

Carried<void> Engine::bind_keys(Flow& f) {
  Carried<void> result;
  for_each_key(f, [&](const DemuxKey& key) {
    if (result) result = bind_key(key, f);
  });
  if (!result) unbind_keys(f);
  return result;
}

void Engine::unbind_keys(Flow& f) noexcept {
  for_each_key(f, [&](const DemuxKey& key) { unbind_key(key, f); });
  if (f.kind != FlowKind::kUdp) return;
  for (const UdpGroup& g : static_cast<UdpFlow&>(f).groups)
    unbind_key(DemuxKey::bound(IpProto::kUdp, g.group, f.key.local.port, false), f);
}

}  // namespace vireo
