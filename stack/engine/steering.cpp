// Rules: made, moved to another device, removed for a hand-over to another TCP.
#include <algorithm>

#include "stack/engine/hub.h"

namespace vireo {

/// The VLAN whose tag frames to a local address have. 0: no tag, or any.
VlanId Steering::vlan_of(const IpAddr& local) const noexcept {
  const auto& snapshot = hub().reader.snapshot();
  for (const net::Addr& a : snapshot.addrs->all) {
    if (a.addr != local) continue;
    const net::Link* const l = snapshot.links->find(a.ifindex);
    if (l == nullptr || l->kind != net::LinkKind::kVlan || l->vlan_8021ad) break;
    return l->vlan;
  }
  return {};
}

/// As the device wants it.
FlowKey Steering::key_on(const Port& port, FlowKey key) const noexcept {
  const DeviceCaps& caps = port.device->caps();
  if (!caps.link_rules && (!caps.vlan_rules || key.vlan == kUntagged)) key.vlan = VlanId();
  if (caps.vlan_rules && key.vlan == VlanId()) key.vlan = vlan_of(key.local.addr);
  return key;
}

namespace {

Carried<FlowRule> made(Result<FlowRule> rule) {
  if (rule) return std::move(*rule);
  // Another rule of the same key brings the same frames; the demux finds the flow.
  if (rule.error().code == EEXIST) return FlowRule();
  return std::unexpected(Refusal{Carriage::kSteering, rule.error().code, rule.error().where});
}

const ListenOptions* options_of(const Flow& f) {
  return f.kind == FlowKind::kListener ? &static_cast<const Listener&>(f).options : nullptr;
}

}  // namespace

Carried<FlowRule> Steering::make_rule(Port& port, const FlowKey& key, FlowTag tag) {
  return made(port.device->steer(key_on(port, key), tag, port.queue()));
}

/// The rule of a bound flow.
Carried<FlowRule> Steering::make_bound_rule(Port& port, const FlowKey& key, const Flow& f) {
  const ListenOptions* const o = options_of(f);
  if (o == nullptr || !o->is_shared()) return make_rule(port, key, f.tag);
  auto rule = port.device->share(key_on(port, key), port.queue());
  const bool cannot = !rule && (rule.error().code == ENOTSUP || rule.error().code == ENOSPC);
  if (cannot && !o->joins) return make_rule(port, key, f.tag);
  if (rule) hub().passive.share_on(port);
  return made(std::move(rule));
}

Carried<void> Steering::add_rules(Port& port, FlowKey key, IfIndex device, const Flow& f,
                                  std::vector<FlowRule>& rules) {
  if (device != IfIndex()) {
    const net::Link* const link = hub().reader.snapshot().links->find(device);
    if (link == nullptr || carrier_of(*link) != port.link.index) return {};
    key.vlan = link->kind == net::LinkKind::kVlan ? link->vlan : kUntagged;
  }
  if (f.kind == FlowKind::kListener) suspect_kernel(port, key.local.port);
  auto rule = make_bound_rule(port, key, f);
  if (!rule) return std::unexpected(rule.error());
  if (*rule) rules.push_back(std::move(*rule));
  if (!key.v6 || !key.local.addr.is_unspecified() || key.is_exact() || f.v6only) return {};
  FlowKey v4 = key;
  v4.v6 = false;
  v4.local.addr = IpAddr::any_v4();
  return add_rules(port, v4, {}, f, rules);  // which names the link already
}

Carried<void> Steering::add_bound_rules(const Flow& f, IfIndex device,
                                        std::vector<FlowRule>& rules) {
  if (device != IfIndex() && !f.key.local.addr.is_multicast()) {
    auto port = hub().ports.of_device(device);
    if (!port) return std::unexpected(port.error());
    return add_rules(**port, f.key, device, f, rules);
  }
  if (f.key.local.addr.is_unspecified()) {
    auto open = hub().ports.open_all();
    if (!open) return std::unexpected(open.error());
    for (Port* p : hub().ports.all())
      if (auto ok = add_rules(*p, f.key, {}, f, rules); !ok) return ok;
    return {};
  }
  if (f.key.local.addr.is_multicast()) return {};  // the rules come with the membership
  auto port = hub().ports.of_address(f.key.local.addr);
  if (!port) return std::unexpected(port.error());
  if ((f.key.local.scope | f.key.remote.scope) != 0)
    if (auto may = hub().ports.may_name(**port); !may) return may;
  return add_rules(**port, f.key, {}, f, rules);
}

void Steering::add_wildcards(Port& port) {
  for (Listener* l : hub().passive.all())
    if (l != nullptr && l->key.local.addr.is_unspecified())
      (void)add_rules(port, l->key, l->options.device, *l, l->rules);
  for (UdpFlow* u : hub().udp.bound())
    if (u->key.local.addr.is_unspecified()) (void)add_rules(port, u->key, u->device, *u, u->rules);
}

void Steering::move_rules(Port& p, const Device& from) noexcept {
  const auto is_old = [&](const FlowRule& r) { return r.device() == &from; };
  hub().tcp.for_each([&](TcpFlow& f) {
    if (!is_old(f.rule)) return;
    // A leased port's rule also serves the next connection of that port.
    const bool is_wide = f.port_origin == PortOrigin::kLeased && !p.device->caps().tags;
    FlowKey key = f.key;
    if (is_wide) key.remote = {};
    auto rule = make_rule(p, key, is_wide ? FlowTag() : f.tag);
    if (rule)
      f.rule = std::move(*rule);
    else
      hub().notifications.note(f, tcp::fail(f.tcb, ENETDOWN));
  });
  hub().passive.drop_rules_of(from);
  // The kernel answers for TIME-WAIT entries: it resets their late segments.
  hub().time_waits.for_each([&](TimeWaitEntry& e) {
    if (is_old(e.rule)) e.rule.reset();
  });
  std::erase_if(left_, [&](Left& s) {
    if (!is_old(s.rule)) return false;
    auto rule = p.device->spare(s.key);
    if (rule) s.rule = std::move(*rule);
    return !rule;  // so the kernel resets it
  });
  for (Listener* l : hub().passive.all())
    if (l != nullptr && std::erase_if(l->rules, is_old) != 0)
      (void)add_rules(p, l->key, l->options.device, *l, l->rules);
  for (UdpFlow* u : hub().udp.bound()) {
    if (std::erase_if(u->rules, is_old) == 0) continue;
    if (!u->key.local.addr.is_multicast()) (void)add_rules(p, u->key, u->device, *u, u->rules);
    for (const UdpGroup& g : u->groups)
      if (g.carrier == p.link.index) (void)add_rules(p, group_key(*u, g), {}, *u, u->rules);
  }
}

Result<void> Steering::leave_to_kernel(TcpFlow& f) {
  Port* const port = f.egress.port;
  const bool has_listener = hub().keys.find(IpProto::kTcp, f.key.local.addr, f.key.local.port) != 0;
  if (!has_listener && f.rule) return {};  // the rule ends with the flow
  // A listener's rule also covers its frames.
  if (port == nullptr || port->dead) return fail(ENODEV, "hand over");
  const bool had_own = static_cast<bool>(f.rule);
  f.rule.reset();
  auto rule = port->device->spare(f.key);
  if (!rule) {
    if (had_own)
      if (auto again = make_rule(*port, f.key, f.tag)) f.rule = std::move(*again);
    return std::unexpected(rule.error());
  }
  left_.push_back({f.key, f.egress.ifindex, std::move(*rule)});
  return {};
}

void Steering::forget_left(bool (*is_there)(const FlowKey&, IfIndex)) {
  if (left_.size() < look_above_) return;
  std::erase_if(left_, [&](const Left& s) { return !is_there(s.key, s.by); });
  look_above_ = std::max<size_t>(64, 2 * left_.size());
}

void Steering::suspect_kernel(Port& port, uint16_t local_port) {
  if (!port.device->caps().asks_kernel) return;
  port.device->ask_kernel(local_port, true);
  kernel_connections_.suspect(local_port);
}

std::optional<KernelConnections::Question> Steering::to_ask(Instant now, std::vector<IpAddr>& own) {
  const auto q = kernel_connections_.due(now);
  own.clear();
  if (q)
    for (const net::Addr& a : hub().reader.snapshot().addrs->all) own.push_back(a.addr);
  return q;
}

void Steering::kernel_said(const KernelConnections::Question& q, bool has_some,
                           Instant now) noexcept {
  if (!kernel_connections_.answered(q, has_some, now)) return;
  // The kernel may accept some at any time.
  const auto joins_there = [&](const Listener* l) {
    return l != nullptr && l->options.joins && l->key.local.port == q.port;
  };
  if (std::ranges::any_of(hub().passive.all(), joins_there)) return;
  for (Port* p : hub().ports.all())
    if (!p->dead) p->device->ask_kernel(q.port, false);
}

}  // namespace vireo
