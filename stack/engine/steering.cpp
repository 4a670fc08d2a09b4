// Rules: made, moved to another device, removed for a hand-over to another TCP.
#include <algorithm>
#include <utility>

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

}  // namespace

Carried<FlowRule> Steering::make_rule(Port& port, const FlowKey& key, FlowTag tag) {
  return made(port.device->steer(key_on(port, key), tag, port.queue()));
}

Carried<FlowRule> Steering::make_bound_rule(Port& port, const FlowKey& key, const Listener& l) {
  suspect_kernel(port, key.local.port);
  if (!l.options.is_shared()) return make_rule(port, key, l.tag);
  auto rule = port.device->share(key_on(port, key), port.queue());
  const bool cannot = !rule && (rule.error().code == ENOTSUP || rule.error().code == ENOSPC);
  if (cannot && !l.options.joins) return make_rule(port, key, l.tag);
  if (rule) hub().passive.share_on(port);
  return made(std::move(rule));
}

/// On one port: two for a wildcard of both families, none if `device` is an interface of another
/// port.
void Steering::need_on(Port& port, FlowKey key, IfIndex device, bool v6only,
                       std::vector<Need>& needs) const {
  if (device != IfIndex()) {
    const net::Link* const link = hub().reader.snapshot().links->find(device);
    if (link == nullptr || carrier_of(*link) != port.link.index) return;
    key.vlan = link->kind == net::LinkKind::kVlan ? link->vlan : kUntagged;
  }
  needs.push_back({&port, key});
  if (!key.v6 || !key.local.addr.is_unspecified() || key.is_exact() || v6only) return;
  key.v6 = false;
  key.local.addr = IpAddr::any_v4();
  needs.push_back({&port, key});
}

/// On all ports that the flow receives by, which are opened. Groups: need_group().
Carried<void> Steering::need(const Flow& f, IfIndex device, std::vector<Need>& needs) {
  const IpAddr& local = f.key.local.addr;
  if (local.is_multicast()) return {};  // the rules come with the membership
  if (device != IfIndex()) {
    auto port = hub().ports.of_device(device);
    if (!port) return std::unexpected(port.error());
    need_on(**port, f.key, device, f.v6only, needs);
    return {};
  }
  if (local.is_unspecified()) {
    if (auto open = hub().ports.open_all(); !open) return std::unexpected(open.error());
    for (Port* p : hub().ports.all()) need_on(*p, f.key, {}, f.v6only, needs);
    return {};
  }
  auto port = hub().ports.of_address(local);
  if (!port) return std::unexpected(port.error());
  if ((f.key.local.scope | f.key.remote.scope) != 0)
    if (auto may = hub().ports.may_name(**port); !may) return may;
  need_on(**port, f.key, {}, f.v6only, needs);
  return {};
}

void Steering::need_group(const UdpBinding& b, std::vector<Need>& needs) const {
  for (const UdpFlow* u : b.flows)
    for (const UdpGroup& g : u->groups) {
      if (group_key(g.group, u->key.local.port) != b.key) continue;
      if (u->device != IfIndex() && u->device != g.link) continue;  // does not hear it there
      const auto port = std::ranges::find_if(
          hub().ports.all(), [&](const Port* p) { return p->link.index == g.carrier && !p->dead; });
      if (port != hub().ports.all().end()) needs.push_back({*port, group_key(*u, g)});
    }
}

Carried<void> Steering::add_rules(Port& port, const FlowKey& key, IfIndex device, const Listener& l,
                                  std::vector<FlowRule>& rules) {
  std::vector<Need> needs;
  need_on(port, key, device, l.v6only, needs);
  for (const Need& n : needs) {
    auto rule = make_bound_rule(*n.port, n.key, l);
    if (!rule) return std::unexpected(rule.error());
    if (*rule) rules.push_back(std::move(*rule));
  }
  return {};
}

Carried<void> Steering::add_bound_rules(const Listener& l, IfIndex device,
                                        std::vector<FlowRule>& rules) {
  std::vector<Need> needs;
  if (auto ok = need(l, device, needs); !ok) return ok;
  for (const Need& n : needs) {
    auto rule = make_bound_rule(*n.port, n.key, l);
    if (!rule) return std::unexpected(rule.error());
    if (*rule) rules.push_back(std::move(*rule));
  }
  return {};
}

Carried<void> Steering::open_ports(const UdpFlow& u) {
  std::vector<Need> needs;
  return need(u, u.device, needs);
}

/// Whoever sleeps looks again, at the new queue too.
Carried<FlowRule> Steering::make_copied_rule(const UdpBinding& b, const Need& n) {
  const auto was_open = hub().ports.open_copies(*n.port);
  if (!was_open)
    return std::unexpected(
        Refusal{Carriage::kSteering, was_open.error().code, was_open.error().where});
  if (!*was_open)
    for (UdpFlow* const u : b.flows)
      if (u->owner != nullptr) hub().events.udp(*u);
  return made(n.port->device->share(n.key, n.port->queue()));
}

Carried<void> Steering::renew(UdpBinding& b) {
  std::vector<Need> needs;
  if (!b.is_kernels) {
    if (IpAddr::v6(b.key.local).is_multicast())
      need_group(b, needs);
    else
      for (auto u = b.flows.begin(); u != b.flows.end(); ++u)
        if (std::ranges::find(b.flows.begin(), u, (*u)->device, &UdpFlow::device) == u)
          (void)need(**u, (*u)->device, needs);
  }
  const auto is_of_this = [&](const FlowKey& k) {  // a wildcard of both families has two bindings
    return k.is_exact() ? demux_key(k) == b.key
                        : DemuxKey::bound(k.proto, k.local.addr, k.local.port, k.v6) == b.key;
  };
  std::erase_if(needs, [&](const Need& n) { return !is_of_this(n.key) || n.port->dead; });
  for (Need& n : needs) n.key = key_on(*n.port, n.key);
  const auto is_met = [&](const BoundRule& r, const Need& n) {
    return r.carrier == n.port->link.index && r.key == n.key && r.is_copied == b.is_copied;
  };
  std::erase_if(b.rules, [&](const BoundRule& r) {
    return std::ranges::none_of(needs, [&](const Need& n) { return is_met(r, n); });
  });
  for (const Need& n : needs) {
    const auto have =
        std::ranges::find_if(b.rules, [&](const BoundRule& r) { return is_met(r, n); });
    if (have != b.rules.end() && have->rule) continue;
    auto rule =
        b.is_copied ? make_copied_rule(b, n) : make_rule(*n.port, n.key, b.flows.front()->tag);
    // Another one's: it may have ended, and be buried soon.
    is_refused_ |= rule ? !*rule : rule.error().err == EBUSY;
    if (!rule) return std::unexpected(rule.error());
    if (have != b.rules.end())
      have->rule = std::move(*rule);
    else
      b.rules.push_back({n.port->link.index, n.key, std::move(*rule), b.is_copied});
  }
  return {};
}

void Steering::retry() noexcept {
  if (!std::exchange(is_refused_, false)) return;
  for (const UdpFlow* u : hub().udp.bound()) hub().keys.renew(*u);
}

void Steering::add_wildcards(Port& port) {
  for (Listener* l : hub().passive.all())
    if (l != nullptr && l->key.local.addr.is_unspecified())
      (void)add_rules(port, l->key, l->options.device, *l, l->rules);
  for (const UdpFlow* u : hub().udp.bound())
    if (u->key.local.addr.is_unspecified()) hub().keys.renew(*u);
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
  hub().keys.drop_rules_of(from);
  for (const UdpFlow* u : hub().udp.bound()) hub().keys.renew(*u);
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
