// Which interface has an address or a name, and whether it may be carried.
#include <algorithm>

#include "stack/engine/hub.h"

namespace vireo {

Carried<unsigned> Ports::open_all() {
  Refusal last{Carriage::kInterface, ENODEV, "no interface may be carried"};
  unsigned opened = 0;
  const auto links = hub().reader.snapshot().links;
  const auto addrs = hub().reader.snapshot().addrs;
  for (const net::Link& l : links->all) {
    if (!l.is_up() || l.is_loopback() || l.lower.value() != 0) continue;
    // An interface without an address on it or on one of its VLANs receives nothing for us.
    const bool addressed =
        std::any_of(addrs->all.begin(), addrs->all.end(), [&](const net::Addr& a) {
          if (a.addr.is_link_local() && a.addr.family() == AF_INET6) return false;
          if (a.ifindex == l.index) return true;
          const net::Link* owner = links->find(a.ifindex);
          return owner != nullptr && owner->lower == l.index;
        });
    if (!addressed) continue;
    if (auto p = open(l.index))
      ++opened;
    else
      last = p.error();
  }
  if (opened == 0) return std::unexpected(last);
  return opened;
}

Carried<Port*> Ports::of_address(const IpAddr& local) {
  const auto& snapshot = hub().reader.snapshot();
  for (const net::Addr& a : snapshot.addrs->all) {
    if (a.addr != local) continue;
    const net::Link* link = snapshot.links->find(a.ifindex);
    if (link == nullptr) continue;
    if (link->is_loopback())
      return std::unexpected(Refusal{Carriage::kLoopback, 0, "address of loopback"});
    return open(carrier_of(*link));
  }
  return std::unexpected(
      Refusal{Carriage::kInterface, EADDRNOTAVAIL, "no interface has this address"});
}

Carried<Port*> Ports::of_device(IfIndex device) {
  const net::Link* const link = hub().reader.snapshot().links->find(device);
  if (link == nullptr)
    return std::unexpected(Refusal{Carriage::kInterface, ENODEV, "SO_BINDTODEVICE: it is gone"});
  if (link->is_loopback())
    return std::unexpected(Refusal{Carriage::kLoopback, 0, "SO_BINDTODEVICE: loopback"});
  if (link->vlan_8021ad)
    return std::unexpected(Refusal{Carriage::kInterface, 0, "SO_BINDTODEVICE: 802.1ad"});
  auto port = open(carrier_of(*link));
  if (port)
    if (auto may = may_name(**port); !may) return std::unexpected(may.error());
  return port;
}

Carried<void> Ports::may_name(const Port& port) const noexcept {
  const char* const hidden = port.device->caps().hides_tags;
  if (hidden == nullptr || !hub().reader.snapshot().links->has_vlans(port.link.index)) return {};
  return std::unexpected(Refusal{Carriage::kInterface, 0, hidden});
}

Carried<Reach> Ports::reach(const IpAddr& local) {
  if (!local.is_unspecified() && !local.is_multicast()) {
    const auto port = of_address(local);
    if (!port) return std::unexpected(port.error());
    return Reach{local, 1, (*port)->device->caps().reopens};
  }
  const auto open = open_all();
  if (!open) return std::unexpected(open.error());
  const bool reopen =
      std::ranges::all_of(all_, [](const Port* p) { return p->dead || p->device->caps().reopens; });
  return Reach{IpAddr(), *open, reopen};
}

}  // namespace vireo
