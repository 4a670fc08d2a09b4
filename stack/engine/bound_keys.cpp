// Look-up of bound keys, and the keys of listeners. Those of UDP flows: udp_bindings.cpp.
#include "stack/engine/bound_keys.h"

#include <algorithm>

#include "stack/engine/hub.h"

namespace vireo {
namespace {

/// Calls fn for each key of a listener: two for a wildcard of both families.
template <class F>
void for_each_key(const Listener& l, F&& fn) {
  const FlowKey& k = l.key;
  fn(DemuxKey::bound(k.proto, k.local.addr, k.local.port, k.v6));
  if (k.v6 && k.local.addr.is_unspecified() && !l.v6only)
    fn(DemuxKey::bound(k.proto, IpAddr(), k.local.port, false));
}

}  // namespace

Demux::Ref BoundKeys::find(IpProto proto, const IpAddr& local, uint16_t port) noexcept {
  Found& last = last_;
  if (last.ref != 0 && last.port == port && last.proto == proto && last.local == local)
    return last.ref;
  const bool v6 = !local.is_v4();
  Demux::Ref r = hub().demux.find(DemuxKey::bound(proto, local, port, v6));
  if (r == 0 && !local.is_multicast())
    r = hub().demux.find(DemuxKey::bound(proto, IpAddr(), port, v6));
  last = {r, local, port, proto};
  return r;
}

/// Several listeners share a key if all have SO_REUSEPORT, or receive by different interfaces.
Carried<void> BoundKeys::join_group(const DemuxKey& key, Listener& l) {
  forget();
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
  forget();
  const Demux::Ref r = hub().demux.find_own(key);
  if (kind_of(r) != FlowKind::kListener) return;
  auto& group = at<ListenGroup>(r);
  if (std::erase(group.members, &l) == 0) return;
  if (group.members.empty()) {
    hub().demux.erase(key, ref(group));
    delete &group;
    return;
  }
  // The remaining listeners may rely on the rules of this one (theirs were refused as duplicates):
  // the first of them takes these over. A surplus rule does no harm and ends with its new owner.
  Listener& heir = *group.members.front();
  for (FlowRule& rule : l.rules) heir.rules.push_back(std::move(rule));
  l.rules.clear();
}

Carried<void> BoundKeys::bind(Flow& f) {
  Carried<void> result;
  if (f.kind == FlowKind::kUdp) {
    result = bind_udp(static_cast<UdpFlow&>(f));
  } else {
    auto& l = static_cast<Listener&>(f);
    for_each_key(l, [&](const DemuxKey& key) {
      if (result) result = join_group(key, l);
    });
  }
  if (!result) unbind(f);
  return result;
}

void BoundKeys::unbind(Flow& f) noexcept {
  if (f.kind == FlowKind::kUdp) return unbind_udp(static_cast<UdpFlow&>(f));
  auto& l = static_cast<Listener&>(f);
  for_each_key(l, [&](const DemuxKey& key) { leave_group(key, l); });
}

/// Drops cached look-ups: a key may have another flow now, or other interfaces.
void BoundKeys::forget() noexcept {
  last_ = {};
  hub().receive.forget_bindings();
}

}  // namespace vireo
