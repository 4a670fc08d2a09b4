#include "stack/engine/port_sharers.h"

#include <algorithm>
#include <utility>

namespace vireo {

bool PortSharers::gets(const net::DiagSocket& s, const DemuxKey& key, IfIndex device) noexcept {
  const IpAddr local = IpAddr::v6(key.local);
  const bool is_wild = local.is_unspecified();
  const bool v6 = is_wild ? key.v6 != 0 : !local.is_v4();
  // An IPv6 socket bound to an IPv4-mapped address is one of IPv4.
  const bool is_of_v4 = !s.v6 || s.local.is_v4() || (s.local == IpAddr() && !s.v6only);
  if (v6 ? !s.v6 || s.local.is_v4() : !is_of_v4) return false;
  if (device != IfIndex() && s.device != IfIndex() && s.device != device) return false;
  if (s.local == local) return true;
  if (s.local.is_unspecified()) return is_wild || local.is_multicast();
  return is_wild && !s.local.is_multicast();
}

bool PortSharers::has(const UdpBinding& b, std::span<UdpFlow* const> flows) const noexcept {
  const auto port = std::ranges::find(ports_, b.key.local_port, &Port::number);
  if (port == ports_.end() ||
      std::ranges::none_of(b.flows, [](const UdpFlow* u) { return u->cookie != 0; }))
    return false;
  const auto is_ours = [&](uint64_t cookie) {
    return cookie == opening_ || std::ranges::any_of(flows, [&](const UdpFlow* u) {
             return u->key.local.port == port->number && u->cookie == cookie;
           });
  };
  const IfIndex device = b.flows.front()->device;
  const bool is_by_one =
      std::ranges::all_of(b.flows, [&](const UdpFlow* u) { return u->device == device; });
  return std::ranges::any_of(port->sockets, [&](const net::DiagSocket& s) {
    return gets(s, b.key, is_by_one ? device : IfIndex()) && !is_ours(s.cookie);
  });
}

bool PortSharers::heed(uint16_t port, std::vector<net::DiagSocket> there) {
  auto known = std::ranges::find(ports_, port, &Port::number);
  if (known == ports_.end()) known = ports_.insert(known, {port, {}});
  if (known->sockets == there) return false;
  known->sockets = std::move(there);
  return true;
}

bool PortSharers::forget(uint16_t port) {
  return std::erase_if(ports_, [&](const Port& p) { return p.number == port; }) != 0;
}

}  // namespace vireo
