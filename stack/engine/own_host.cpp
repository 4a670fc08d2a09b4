// What of a wire is this host's: the devices are told, and what a device takes all the same is
// judged here as Linux does it before it looks for a socket: by which interface it came, whether
// that is the station it was sent to, whether the destination is an address of ours and the source
// one that may be (net/ipv4/route.c ip_route_input_slow(), net/ipv4/fib_frontend.c
// fib_validate_source(), net/ipv6/ip6_input.c). What the kernel would not give to a socket, it
// would have dropped: so do we.
#include <algorithm>

#include "stack/engine/engine.h"
#include "stack/net/lookup.h"

namespace vireo {
namespace {

/// It and the VLANs on it whose tags a device can tell: 802.1Q.
bool is_on_wire(const net::Link& l, const Port& port) {
  return l.index == port.link.index ||
         (l.kind == net::LinkKind::kVlan && l.lower == port.link.index && !l.vlan_8021ad);
}

/// Duplicate detection is not over, or has failed: not ours yet (RFC 4862 §5.4).
bool is_unproved(const net::Addr& a) {
  return has(a.flags, net::AddrFlags::kTentative | net::AddrFlags::kDadFailed);
}

/// Linux's rp_filter (ip-sysctl).
enum ReversePath : uint8_t { kAny = 0, kStrict = 1, kLoose = 2 };

}  // namespace

void Engine::tell_host(Port& port) {
  const auto& snapshot = reader_.snapshot();
  std::vector<HostLink> links;
  for (const net::Link& l : snapshot.links->all)
    if (is_on_wire(l, port) && l.is_up())
      links.push_back({l.index == port.link.index ? VlanId() : l.vlan, l.mac});
  std::vector<IpAddr> addresses;
  for (const net::Addr& a : snapshot.addrs->all) {
    if (a.addr.is_loopback() || is_unproved(a)) continue;
    if (!a.addr.is_v4() && a.addr.is_link_local()) {  // ours on its own link alone
      const net::Link* const l = snapshot.links->find(a.ifindex);
      if (l == nullptr || !is_on_wire(*l, port)) continue;
    }
    if (std::ranges::find(addresses, a.addr) == addresses.end()) addresses.push_back(a.addr);
  }
  port.device->set_host({links, addresses, takes_fragments_});
}

void Engine::take_fragments(bool on) {
  if (takes_fragments_ == on) return;
  takes_fragments_ = on;
  if (!on) reassembly_.clear();  // no rule has seen what is here
  for (Port* p : ports_)
    if (!p->dead) tell_host(*p);
}

/// Behind a change of the kernel's tables. Until now the kernel had what came for an address that
/// is new.
void Engine::follow_host() {
  const auto& snapshot = reader_.snapshot();
  if (told_links_ == snapshot.links && told_addrs_ == snapshot.addrs) return;
  told_links_ = snapshot.links;
  told_addrs_ = snapshot.addrs;
  for (Port* p : ports_) {
    if (p->dead) continue;
    for (const Listener* l : listeners_)
      if (l != nullptr && !l->rules.empty()) suspect_kernel(*p, l->key.local.port);
    tell_host(*p);
  }
}

void Engine::suspect_kernel(Port& port, uint16_t local_port) {
  if (!port.device->caps().asks_kernel) return;
  port.device->ask_kernel(local_port, true);
  kernel_connections_.suspect(local_port);
}

std::optional<KernelConnections::Question> Engine::to_ask(Instant now, std::vector<IpAddr>& own) {
  const auto q = kernel_connections_.due(now);
  own.clear();
  if (q)
    for (const net::Addr& a : reader_.snapshot().addrs->all) own.push_back(a.addr);
  return q;
}

void Engine::kernel_said(const KernelConnections::Question& q, bool has_some,
                         Instant now) noexcept {
  if (!kernel_connections_.answered(q, has_some, now)) return;
  for (Port* p : ports_)
    if (!p->dead) p->device->ask_kernel(q.port, false);
}

/// The interface that a frame came in by; null: it has a tag that none here has, or is for another
/// station.
const net::Link* Engine::link_of(const Port& port, const wire::ParsedFrame& f) const noexcept {
  const auto& links = *reader_.snapshot().links;
  const net::Link* link = nullptr;
  if (f.tags == 0 || f.vlan() == VlanId()) {  // 0: a priority, and no VLAN
    link = links.find(port.link.index);
  } else {
    const auto it = std::ranges::find_if(links.all, [&](const net::Link& l) {
      return l.index != port.link.index && is_on_wire(l, port) && l.vlan == f.vlan();
    });
    if (it != links.all.end()) link = &*it;
  }
  if (link == nullptr || f.tags > 1) return nullptr;
  return f.is_to_group_mac() || f.ethernet().dst == link->mac ? link : nullptr;
}

IfIndex Engine::came_by(const UdpFlow& u, const PacketBuf& first,
                        const wire::ParsedFrame& f) const noexcept {
  if (const uint32_t place = first.cookie >> kPortOfCookie; place != 0) {
    const net::Link* const link = link_of(*ports_[place - 1], f);
    return link != nullptr ? link->index : IfIndex();
  }
  // Else its station tells, or its group, which it has joined by one port.
  const IpAddr dst = f.dst();
  const auto has_joined = [&](const Port& p) {
    return std::ranges::any_of(
        u.groups, [&](const UdpGroup& g) { return g.group == dst && g.carrier == p.link.index; });
  };
  IfIndex by{};
  for (const Port* p : ports_) {
    const net::Link* const link = link_of(*p, f);
    if (link == nullptr) continue;
    if (!dst.is_multicast() || has_joined(*p)) return link->index;
    if (by == IfIndex()) by = link->index;
  }
  return by;
}

/// Whether what goes from `src` to `dst` may be for a socket here. The answer is kept: a server
/// hears the same ones again.
const Engine::Come& Engine::may_come(const IpAddr& src, const IpAddr& dst,
                                     const net::Link& link) noexcept {
  const auto& b = src.bytes();
  Come& known = come_[(b[15] ^ unsigned{b[14]} << 3) % come_.size()];
  const uint64_t generation = reader_.generation();
  if (known.generation == generation && known.src == src && known.dst == dst &&
      known.link == link.index) [[likely]]
    return known;
  const auto& addrs = reader_.snapshot().addrs->all;
  const bool is_ours = std::ranges::any_of(addrs, [&](const net::Addr& a) {
    return a.addr == dst && !is_unproved(a) &&
           (dst.is_v4() || !dst.is_link_local() || a.ifindex == link.index);
  });
  // Devices that cannot tell wildcards what is ours bring what is for all, too.
  const bool is_for_all = dst.is_multicast() || dst.is_limited_broadcast() ||
                          std::ranges::find(addrs, dst, &net::Addr::broadcast) != addrs.end();
  const bool may = (is_ours || is_for_all) && is_source_good(src, link);
  // RFC 1122 §4.2.3.10: never an answer to a subnet's broadcast address.
  const bool answers =
      may && is_ours && std::ranges::find(addrs, src, &net::Addr::broadcast) == addrs.end();
  known = {src, dst, link.index, generation, may, answers};
  return known;
}

/// What comes by `way` looks as if it had come by `link`: it is that, or a VLAN on it whose tags
/// are hidden.
bool Engine::looks_as_if_by(IfIndex way, const net::Link& link) const noexcept {
  if (way == link.index) return true;
  const net::Link* const l = reader_.snapshot().links->find(way);
  return l != nullptr && l->kind == net::LinkKind::kVlan && l->lower == link.index &&
         std::ranges::any_of(ports_, [&](const Port* p) {
           return p->link.index == link.index && !p->dead &&
                  p->device->caps().hides_tags != nullptr;
         });
}

bool Engine::is_source_good(const IpAddr& src, const net::Link& link) const noexcept {
  if (src.is_multicast() || src.is_unspecified() || src.is_limited_broadcast() || src.is_loopback())
    return false;
  const auto& snapshot = reader_.snapshot();
  if (snapshot.addrs->find(src) != nullptr) return false;
  if (!src.is_v4()) return true;
  const uint8_t filter = link.rp_filter;
  if (filter == kAny) return true;
  net::LookupKey back;
  back.dst = src;
  back.connected = false;
  auto hop = net::lookup(snapshot, back);
  if (!hop) return hop.error().code == EOPNOTSUPP;  // which only the kernel can tell
  if (hop->kind != net::DestKind::kUnicast) return false;
  if (filter == kLoose || looks_as_if_by(hop->ifindex, link)) return true;
  if (!snapshot.by_ports) return false;
  back.oif = link.index;  // another way out of the same route
  hop = net::lookup(snapshot, back);
  return hop && hop->table != 0;
}

}  // namespace vireo
