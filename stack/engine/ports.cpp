// Placement: which carried interface reaches an address, devices opened on demand, steering rules
// on all of them.
#include <algorithm>
#include <cstring>

#include "core/log.h"
#include "stack/engine/engine.h"
#include "stack/net/lookup.h"

namespace vireo {
namespace {

Refusal refusal_of_lookup(const Err& e) {
  switch (e.code) {
    case EOPNOTSUPP:
      return {Carriage::kInterface, e.code, e.where};
    default:
      return {Carriage::kNoRoute, e.code, e.where};
  }
}

/// Tells tools of an interface in use.
void publish(std::span<PortStats> rows, const Port& p) {
  for (PortStats& row : rows) {
    const uint32_t of = row.ifindex.load(std::memory_order_relaxed);
    if (of != 0 && of != p.link.index.value()) continue;
    row.queues = static_cast<uint32_t>(p.queues.size());
    std::strncpy(row.name, p.link.name.c_str(), sizeof row.name - 1);
    std::strncpy(row.mode, p.device->caps().mode, sizeof row.mode - 1);
    // Pairs with the acquire in read_stats(): the row is whole.
    row.ifindex.store(p.link.index.value(), std::memory_order_release);
    return;
  }
}

/// Whose device brings its frames.
IfIndex carrier_of(const net::Link& l) {
  return l.kind == net::LinkKind::kVlan ? l.lower : l.index;
}

/// Payload of the largest packet that IP's length field can tell of, with the longest headers
/// (RFC 791 §3.1: 60 + 60).
constexpr uint32_t kMostInIp = UINT16_MAX - 120;

/// A failed open is not tried again for each connection: opening costs milliseconds.
constexpr Duration kRetryOpen = Duration::s(1);

}  // namespace

/// The device of the port's link, and its queues.
Carried<void> Engine::open_device(Port& port) {
  auto device = opener_(port.link, arena_);
  if (!device) return std::unexpected(device.error());
  port.device = std::move(*device);
  for (uint32_t q = 0; q < port.device->caps().queues; ++q) {
    auto queue = port.device->open_queue(QueueId(q), *pool_);
    if (!queue) {
      const Err& e = queue.error();
      return std::unexpected(Refusal{carriage_of_errno(e.code), e.code, e.where});
    }
    (*queue)->rx_refill();
    if (stamps_) (*queue)->stamp();
    port.queues.push_back(std::move(*queue));
  }
  const DeviceCaps& caps = port.device->caps();
  port.segments = caps.tso_max_bytes != 0;
  port.burst = {kMostInIp, tcp::Burst::kMostSlices, 0};
  port.corks = caps.doorbell_is_call && config_.autocork;
  port.joins = caps.multi_frame && !port.segments;
  if (port.segments)
    port.burst = {std::min(caps.tso_max_bytes, kMostInIp), caps.max_body_slices, 0};
  return {};
}

/// Its queues are polled from now on, and tools see it.
void Engine::take_up(Port& p) {
  for (auto& q : p.queues) polled_.push_back({&p, q.get()});
  only_ = polled_.size() == 1 ? polled_.front() : Polled{};
  for (auto& q : p.queues)
    if (q->wait_fd() >= 0) wait_fds_.push_back(q->wait_fd());
  publish(config_.port_stats, p);
}

Carried<Port*> Engine::open_port(IfIndex carrier) {
  for (Port* p : ports_) {
    if (p->link.index != carrier) continue;
    if (p->dead) return std::unexpected(Refusal{Carriage::kDevice, ENETDOWN, "device lost"});
    return p;
  }
  const Instant now = Clock::now();
  for (const FailedOpen& f : failed_opens_)
    if (f.carrier == carrier && now - f.at < kRetryOpen) return std::unexpected(f.refusal);

  const auto refuse = [&](Refusal r) -> Carried<Port*> {
    std::erase_if(failed_opens_, [&](const FailedOpen& f) { return f.carrier == carrier; });
    failed_opens_.push_back({carrier, now, r});
    return std::unexpected(r);
  };
  const net::Link* link = reader_.snapshot().links->find(carrier);
  if (link == nullptr) return refuse({Carriage::kInterface, ENODEV, "interface gone"});
  if (!link->is_up() || link->is_loopback() || !has(link->flags, net::LinkFlags::kEthernet))
    return refuse({Carriage::kInterface, 0, "not an Ethernet interface that is up"});

  auto port = std::make_unique<Port>();
  port->link = *link;
  if (auto open = open_device(*port); !open) return refuse(open.error());
  Port* p = owned_ports_.emplace_back(std::move(port)).get();
  ports_.push_back(p);
  tell_host(*p);
  take_up(*p);
  will_port(*p);
  log<LogLevel::kInfo>("{}: carried by {}, {} queue(s)", p->link.name, p->device->caps().mode,
                       p->queues.size());
  // Sockets bound to every address hear the new interface too.
  for (Listener* l : listeners_)
    if (l != nullptr && l->key.local.addr.is_unspecified())
      (void)steer_on(*p, l->key, l->options.device, *l, l->rules);
  for (UdpFlow* u : bound_udp_)
    if (u->key.local.addr.is_unspecified()) (void)steer_on(*p, u->key, u->device, *u, u->rules);
  return p;
}

Carried<unsigned> Engine::open_all_ports() {
  Refusal last{Carriage::kInterface, ENODEV, "no interface may be carried"};
  unsigned open = 0;
  const auto links = reader_.snapshot().links;
  const auto addrs = reader_.snapshot().addrs;
  for (const net::Link& l : links->all) {
    if (!l.is_up() || l.is_loopback() || l.lower.value() != 0) continue;
    // An interface without an address, nor a VLAN with one on it, receives nothing for us.
    const bool addressed =
        std::any_of(addrs->all.begin(), addrs->all.end(), [&](const net::Addr& a) {
          if (a.addr.is_link_local() && a.addr.family() == AF_INET6) return false;
          if (a.ifindex == l.index) return true;
          const net::Link* owner = links->find(a.ifindex);
          return owner != nullptr && owner->lower == l.index;
        });
    if (!addressed) continue;
    if (auto p = open_port(l.index))
      ++open;
    else
      last = p.error();
  }
  if (open == 0) return std::unexpected(last);
  return open;
}

bool Engine::stamp_frames() {
  const auto stamp_those_open = [&] {
    bool any = false;
    for (Port* p : ports_) {
      any |= !p->dead && p->device->caps().stamps;
      for (auto& q : p->queues) q->stamp();
    }
    return any;
  };
  stamps_ = true;
  if (stamp_those_open()) return true;
  (void)open_all_ports();  // a device with a clock may be there, and not be open yet
  return stamp_those_open();
}

Carried<Port*> Engine::port_of_address(const IpAddr& local) {
  const auto& snapshot = reader_.snapshot();
  for (const net::Addr& a : snapshot.addrs->all) {
    if (a.addr != local) continue;
    const net::Link* link = snapshot.links->find(a.ifindex);
    if (link == nullptr) continue;
    if (link->is_loopback())
      return std::unexpected(Refusal{Carriage::kLoopback, 0, "address of loopback"});
    return open_port(link->kind == net::LinkKind::kVlan ? link->lower : link->index);
  }
  return std::unexpected(
      Refusal{Carriage::kInterface, EADDRNOTAVAIL, "no interface has this address"});
}

Carried<Route> Engine::route(const RouteRequest& r) {
  net::LookupKey key;
  key.dst = r.dst;
  key.src = r.src;
  key.oif = r.oif;
  key.tos = r.tos;
  key.mark = r.mark;
  key.proto = r.proto;
  const auto hop = next_hop(key);
  if (!hop) return std::unexpected(refusal_of_lookup(hop.error()));
  switch (hop->kind) {
    case net::DestKind::kLocal:
      return std::unexpected(Refusal{Carriage::kLoopback, 0, "own address"});
    case net::DestKind::kBroadcast:
      return std::unexpected(Refusal{Carriage::kBroadcast, 0, "broadcast"});
    case net::DestKind::kUnicast:
    case net::DestKind::kMulticast:
      break;
  }
  if (hop->carrier.value() == 0)
    return std::unexpected(Refusal{Carriage::kInterface, 0, "not an Ethernet interface"});
  auto port = open_port(hop->carrier);
  if (!port) return std::unexpected(port.error());
  if (r.hears && r.oif != IfIndex())
    if (auto may = may_name(**port); !may) return std::unexpected(may.error());
  return Route{*hop, *port};
}

/// Where frames to an address of ours come from, tagged: the VLAN that the address lies on. 0: they
/// are not tagged, or come from anywhere.
VlanId Engine::vlan_of(const IpAddr& local) const noexcept {
  const auto& snapshot = reader_.snapshot();
  for (const net::Addr& a : snapshot.addrs->all) {
    if (a.addr != local) continue;
    const net::Link* const l = snapshot.links->find(a.ifindex);
    if (l == nullptr || l->kind != net::LinkKind::kVlan || l->vlan_8021ad) break;
    return l->vlan;
  }
  return {};
}

Carried<Reach> Engine::reach(const RouteRequest& r) {
  const auto way = route(r);
  if (!way) return std::unexpected(way.error());
  return Reach{way->hop.src, 1, way->port->device->caps().reopens};
}

Carried<Reach> Engine::reach(const IpAddr& local) {
  if (!local.is_unspecified() && !local.is_multicast()) {
    const auto port = port_of_address(local);
    if (!port) return std::unexpected(port.error());
    return Reach{local, 1, (*port)->device->caps().reopens};
  }
  const auto open = open_all_ports();
  if (!open) return std::unexpected(open.error());
  const bool reopen = std::ranges::all_of(
      ports_, [](const Port* p) { return p->dead || p->device->caps().reopens; });
  return Reach{IpAddr(), *open, reopen};
}

Carried<FlowRule> Engine::steer(Port& port, const FlowKey& key, FlowTag tag) {
  FlowKey asked = key;
  const DeviceCaps& caps = port.device->caps();
  if (!caps.link_rules && (!caps.vlan_rules || asked.vlan == kUntagged)) asked.vlan = VlanId();
  if (caps.vlan_rules && asked.vlan == VlanId()) asked.vlan = vlan_of(key.local.addr);
  auto rule = port.device->steer(asked, tag, port.queue());
  if (rule) return std::move(*rule);
  // A rule of the same key brings the same frames; the demux tells the flows apart.
  if (rule.error().code == EEXIST) return FlowRule();
  return std::unexpected(Refusal{Carriage::kSteering, rule.error().code, rule.error().where});
}

/// Rules of a bound flow on one port: two for a wildcard of both families, none if `device` names
/// an interface that is not on its wire.
Carried<void> Engine::steer_on(Port& port, FlowKey key, IfIndex device, const Flow& f,
                               std::vector<FlowRule>& rules) {
  if (device != IfIndex()) {
    const net::Link* const link = reader_.snapshot().links->find(device);
    if (link == nullptr || carrier_of(*link) != port.link.index) return {};
    key.vlan = link->kind == net::LinkKind::kVlan ? link->vlan : kUntagged;
  }
  if (f.kind == FlowKind::kListener) suspect_kernel(port, key.local.port);
  auto rule = steer(port, key, f.tag);
  if (!rule) return std::unexpected(rule.error());
  if (*rule) rules.push_back(std::move(*rule));
  if (!key.v6 || !key.local.addr.is_unspecified() || key.is_exact() || f.v6only) return {};
  FlowKey v4 = key;
  v4.v6 = false;
  v4.local.addr = IpAddr::any_v4();
  return steer_on(port, v4, {}, f, rules);  // which names the link already
}

Carried<Port*> Engine::port_of_device(IfIndex device) {
  const net::Link* const link = reader_.snapshot().links->find(device);
  if (link == nullptr)
    return std::unexpected(Refusal{Carriage::kInterface, ENODEV, "SO_BINDTODEVICE: it is gone"});
  if (link->is_loopback())
    return std::unexpected(Refusal{Carriage::kLoopback, 0, "SO_BINDTODEVICE: loopback"});
  if (link->vlan_8021ad)
    return std::unexpected(Refusal{Carriage::kInterface, 0, "SO_BINDTODEVICE: 802.1ad"});
  auto port = open_port(carrier_of(*link));
  if (port)
    if (auto may = may_name(**port); !may) return std::unexpected(may.error());
  return port;
}

/// May a socket name the port's interface, or a VLAN on it, to hear what comes by that one alone?
/// Not where all of it looks as if it had come by the first.
Carried<void> Engine::may_name(const Port& port) const noexcept {
  const char* const hidden = port.device->caps().hides_tags;
  if (hidden == nullptr || !reader_.snapshot().links->has_vlans(port.link.index)) return {};
  return std::unexpected(Refusal{Carriage::kInterface, 0, hidden});
}

Carried<void> Engine::steer_bound(const Flow& f, IfIndex device, std::vector<FlowRule>& rules) {
  if (device != IfIndex() && !f.key.local.addr.is_multicast()) {
    auto port = port_of_device(device);
    if (!port) return std::unexpected(port.error());
    return steer_on(**port, f.key, device, f, rules);
  }
  if (f.key.local.addr.is_unspecified()) {
    auto open = open_all_ports();
    if (!open) return std::unexpected(open.error());
    for (Port* p : ports_)
      if (auto ok = steer_on(*p, f.key, {}, f, rules); !ok) return ok;
    return {};
  }
  if (f.key.local.addr.is_multicast()) return {};  // the rules come with the membership
  auto port = port_of_address(f.key.local.addr);
  if (!port) return std::unexpected(port.error());
  if ((f.key.local.scope | f.key.remote.scope) != 0)
    if (auto may = may_name(**port); !may) return may;
  return steer_on(**port, f.key, {}, f, rules);
}

}  // namespace vireo
