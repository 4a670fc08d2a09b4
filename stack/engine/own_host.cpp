// Tells the devices which frames are for this host, and checks what they bring.
#include <algorithm>

#include "stack/engine/hub.h"
#include "stack/net/lookup.h"

namespace vireo {
namespace {

/// The interface itself, or a VLAN on it whose tag a device understands: 802.1Q.
bool is_on_wire(const net::Link& l, const Port& port) {
  return l.index == port.link.index ||
         (l.kind == net::LinkKind::kVlan && l.lower == port.link.index && !l.vlan_8021ad);
}

/// Duplicate address detection is not complete, or has failed: not ours (RFC 4862 §5.4).
bool is_unproved(const net::Addr& a) {
  return has(a.flags, net::AddrFlags::kTentative | net::AddrFlags::kDadFailed);
}

/// Linux's rp_filter (ip-sysctl).
enum ReversePath : uint8_t { kAny = 0, kStrict = 1, kLoose = 2 };

}  // namespace

void OwnHost::tell(Port& port) {
  const auto& snapshot = hub().reader.snapshot();
  std::vector<HostLink> links;
  for (const net::Link& l : snapshot.links->all)
    if (is_on_wire(l, port) && l.is_up())
      links.push_back({l.index == port.link.index ? VlanId() : l.vlan, l.mac});
  std::vector<IpAddr> addresses;
  for (const net::Addr& a : snapshot.addrs->all) {
    if (a.addr.is_loopback() || is_unproved(a)) continue;
    if (!a.addr.is_v4() && a.addr.is_link_local()) {  // ours on its own link only
      const net::Link* const l = snapshot.links->find(a.ifindex);
      if (l == nullptr || !is_on_wire(*l, port)) continue;
    }
    if (std::ranges::find(addresses, a.addr) == addresses.end()) addresses.push_back(a.addr);
  }
  port.device->set_host({links, addresses, takes_fragments_});
}

bool OwnHost::may_send_from(const IpAddr& src, IfIndex by) const noexcept {
  const bool of_link = !src.is_v4() && src.is_link_local();
  if (src.is_loopback() || (of_link && by == IfIndex())) return false;
  const net::Addr* const a = hub().reader.snapshot().addrs->find(src, of_link ? by : IfIndex());
  return a != nullptr && !is_unproved(*a);
}

void OwnHost::take_fragments(bool on) {
  if (takes_fragments_ == on) return;
  takes_fragments_ = on;
  if (!on) hub().receive.forget_fragments();  // the packet filter has not seen what is here
  for (Port* p : hub().ports.all())
    if (!p->dead) tell(*p);
}

void OwnHost::follow() {
  const auto& snapshot = hub().reader.snapshot();
  if (told_links_ == snapshot.links && told_addrs_ == snapshot.addrs) return;
  told_links_ = snapshot.links;
  told_addrs_ = snapshot.addrs;
  for (Port* p : hub().ports.all()) {
    if (p->dead) continue;
    for (const Listener* l : hub().passive.all())
      if (l != nullptr && !l->rules.empty()) hub().steering.suspect_kernel(*p, l->key.local.port);
    tell(*p);
  }
}

const net::Link* OwnHost::link_of(const Port& port, const wire::ParsedFrame& f) const noexcept {
  const auto& links = *hub().reader.snapshot().links;
  const net::Link* link = nullptr;
  if (f.tags == 0 || f.vlan() == VlanId()) {  // 0: a priority tag, no VLAN
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

Port* OwnHost::port_of(const UdpFlow& u, const PacketBuf& first,
                       const wire::ParsedFrame& f) const noexcept {
  if (const uint32_t place = first.cookie >> kPortOfCookie; place != 0)
    return hub().ports.all()[place - 1];
  // Else its destination MAC tells, or its group, which one port has joined.
  const IpAddr dst = f.dst();
  const auto has_joined = [&](const Port& p) {
    return std::ranges::any_of(
        u.groups, [&](const UdpGroup& g) { return g.group == dst && g.carrier == p.link.index; });
  };
  Port* by = nullptr;
  for (Port* p : hub().ports.all()) {
    if (link_of(*p, f) == nullptr) continue;
    if (!dst.is_multicast() || has_joined(*p)) return p;
    if (by == nullptr) by = p;
  }
  return by;
}

IfIndex OwnHost::came_by(const UdpFlow& u, const PacketBuf& first,
                         const wire::ParsedFrame& f) const noexcept {
  const Port* const port = port_of(u, first, f);
  const net::Link* const link = port != nullptr ? link_of(*port, f) : nullptr;
  return link != nullptr ? link->index : IfIndex();
}

const OwnHost::Verdict& OwnHost::judge(const IpAddr& src, const IpAddr& dst,
                                       const net::Link& link) noexcept {
  const auto& b = src.bytes();
  Verdict& known = verdicts_[(b[15] ^ unsigned{b[14]} << 3) % verdicts_.size()];
  const uint64_t generation = hub().reader.generation();
  if (known.generation == generation && known.src == src && known.dst == dst &&
      known.link == link.index) [[likely]]
    return known;
  const auto& addrs = hub().reader.snapshot().addrs->all;
  const bool is_ours = std::ranges::any_of(addrs, [&](const net::Addr& a) {
    return a.addr == dst && !is_unproved(a) &&
           (dst.is_v4() || !dst.is_link_local() || a.ifindex == link.index);
  });
  // Devices that cannot match wildcards to our addresses also bring broadcast and multicast.
  const bool is_for_all = dst.is_multicast() || dst.is_limited_broadcast() ||
                          std::ranges::find(addrs, dst, &net::Addr::broadcast) != addrs.end();
  const bool may = (is_ours || is_for_all) && is_source_good(src, link);
  // RFC 1122 §4.2.3.10: never answer a subnet's broadcast address.
  const bool answers =
      may && is_ours && std::ranges::find(addrs, src, &net::Addr::broadcast) == addrs.end();
  known = {src, dst, link.index, generation, may, answers};
  return known;
}

const net::Link* OwnHost::link_to_answer(const Incoming& in) noexcept {
  if (in.frame.is_to_group_mac()) return nullptr;
  const net::Link* const link = link_of(in.port, in.frame);
  return link != nullptr && judge(in.frame.src(), in.frame.dst(), *link).answers ? link : nullptr;
}

/// Frames by interface `way` look as if they came by `link`: it is the same, or a VLAN on it whose
/// tags the device hides.
bool OwnHost::looks_as_if_by(IfIndex way, const net::Link& link) const noexcept {
  if (way == link.index) return true;
  const net::Link* const l = hub().reader.snapshot().links->find(way);
  return l != nullptr && l->kind == net::LinkKind::kVlan && l->lower == link.index &&
         std::ranges::any_of(hub().ports.all(), [&](const Port* p) {
           return p->link.index == link.index && !p->dead &&
                  p->device->caps().hides_tags != nullptr;
         });
}

bool OwnHost::is_source_good(const IpAddr& src, const net::Link& link) const noexcept {
  if (src.is_multicast() || src.is_unspecified() || src.is_limited_broadcast() || src.is_loopback())
    return false;
  const auto& snapshot = hub().reader.snapshot();
  if (snapshot.addrs->find(src) != nullptr) return false;
  if (!src.is_v4()) return true;
  const uint8_t filter = link.rp_filter;
  if (filter == kAny) return true;
  net::LookupKey back;
  back.dst = src;
  back.connected = false;
  auto hop = net::lookup(snapshot, back);
  if (!hop) return hop.error().code == EOPNOTSUPP;  // only the kernel can decide
  if (hop->kind != net::DestKind::kUnicast) return false;
  if (filter == kLoose || looks_as_if_by(hop->ifindex, link)) return true;
  if (!snapshot.by_ports) return false;
  back.oif = link.index;  // another next hop of the same route
  hop = net::lookup(snapshot, back);
  return hop && hop->table != 0;
}

}  // namespace vireo
