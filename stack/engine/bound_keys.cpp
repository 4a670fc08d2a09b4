// Binding and unbinding keys, and the consequences for flows that share a key.
#include <algorithm>

#include "stack/engine/hub.h"

namespace vireo {
namespace {

/// Whether the key's address is a group that its flows have joined on several ports, even if each
/// on one only: every member receives what comes by any of them.
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

/// Datagrams for a tuple of one socket alone may take the fast path.
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

Demux::Ref BoundKeys::find(IpProto proto, const IpAddr& local, uint16_t port) noexcept {
  Found& last = last_;
  if (last.ref != 0 && last.port == port && last.proto == proto && last.local == local)
    return last.ref;
  const bool v6 = !local.is_v4();
  Demux::Ref r = hub().demux.find(DemuxKey::bound(proto, local, port, v6));
  if (r == 0) r = hub().demux.find(DemuxKey::bound(proto, IpAddr(), port, v6));
  last = {r, local, port, proto};
  return r;
}

Carried<void> BoundKeys::bind_key(const DemuxKey& key, Flow& f) {
  forget();
  const Refusal taken{Carriage::kDevice, EADDRINUSE, "local address in use"};
  if (f.kind == FlowKind::kListener) return join_group(key, static_cast<Listener&>(f));
  auto& u = static_cast<UdpFlow&>(f);
  const Demux::Ref r = hub().demux.find_own(key);
  if (r == 0) {
    auto* const binding = new UdpBinding{key, {&u}};
    hub().demux.insert(key, ref(*binding));
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

void BoundKeys::unbind_key(const DemuxKey& key, Flow& f) noexcept {
  forget();
  const Demux::Ref found = hub().demux.find_own(key);
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
    hub().demux.erase(key, found);
    delete &binding;
    return;
  }
  refresh_expected(binding);
  // The remaining flows may rely on the rules of this one (theirs were refused as duplicates): the
  // first of them takes these over. A surplus rule does no harm and ends with its new owner.
  UdpFlow& heir = *binding.flows.front();
  for (FlowRule& r : u.rules) heir.rules.push_back(std::move(r));
  u.rules.clear();
}

/// Several listeners share a key if all have SO_REUSEPORT, or receive by different interfaces.
Carried<void> BoundKeys::join_group(const DemuxKey& key, Listener& l) {
  const Demux::Ref r = hub().demux.find_own(key);
  if (r == 0) {
    auto* const group = new ListenGroup{key, {&l}};
    hub().demux.insert(key, ref(*group));
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

void BoundKeys::leave_group(const DemuxKey& key, Listener& l) noexcept {
  auto& group = at<ListenGroup>(hub().demux.find_own(key));
  if (std::erase(group.members, &l) == 0) return;
  if (group.members.empty()) {
    hub().demux.erase(key, ref(group));
    delete &group;
    return;
  }
  // As with UDP, above: a remaining listener takes over the rules.
  Listener& heir = *group.members.front();
  for (FlowRule& r : l.rules) heir.rules.push_back(std::move(r));
  l.rules.clear();
}

Carried<void> BoundKeys::bind(Flow& f) {
  Carried<void> result;
  for_each_key(f, [&](const DemuxKey& key) {
    if (result) result = bind_key(key, f);
  });
  if (!result) unbind(f);
  return result;
}

void BoundKeys::unbind(Flow& f) noexcept {
  for_each_key(f, [&](const DemuxKey& key) { unbind_key(key, f); });
  if (f.kind != FlowKind::kUdp) return;
  for (const UdpGroup& g : static_cast<UdpFlow&>(f).groups)
    unbind_key(DemuxKey::bound(IpProto::kUdp, g.group, f.key.local.port, false), f);
}

/// Drops cached look-ups: a key may have another flow now, or other interfaces.
void BoundKeys::forget() noexcept {
  last_ = {};
  hub().receive.forget_bindings();
}

}  // namespace vireo
