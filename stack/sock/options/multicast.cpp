// Multicast groups that a UDP socket joins and leaves, and the interface for sending to them. The
// kernel socket beneath has joined first.
#include <netinet/in.h>

#include "stack/sock/options/call.h"
#include "stack/sock/options/values.h"
#include "stack/sock/stack.h"
#include "stack/sock/udp_socket.h"

namespace vireo {
namespace {

IpAddr v4(in_addr a) { return IpAddr::v4(be32(__builtin_bswap32(a.s_addr))); }

/// Whether the mirror of the kernel's tables exists.
bool has_mirror(Stack& stack) {
  const Settings& s = stack.settings();
  return s.offloaded_sockets && s.device != DeviceChoice::kOff && stack.engine();
}

/// The interface with this address; 0: none.
IfIndex interface_with(Stack& stack, const IpAddr& address) {
  if (!has_mirror(stack)) return {};
  net::SnapshotStore::Reader reader(stack.mirror()->store());
  for (const net::Addr& a : reader.snapshot().addrs->all)
    if (a.addr == address) return a.ifindex;
  return {};
}

/// The interface of the kernel's route to a group; 0: none.
IfIndex interface_to(Stack& stack, const IpAddr& group) {
  if (!has_mirror(stack)) return {};
  net::SnapshotStore::Reader reader(stack.mirror()->store());
  net::LookupKey key;
  key.dst = group;
  key.proto = IpProto::kUdp;
  const auto hop = net::resolve(reader.snapshot(), key);
  return hop ? hop->ifindex : IfIndex();
}

struct GroupCall {
  Membership m;
  bool is_join = false;
};

/// The group and interface of a join or leave; nullopt: not one.
std::optional<GroupCall> group_call(const SetCall& c) {
  if (c.level == IPPROTO_IP && (c.name == IP_ADD_MEMBERSHIP || c.name == IP_DROP_MEMBERSHIP) &&
      c.len >= sizeof(ip_mreq)) {
    ip_mreqn m{};
    std::memcpy(&m, c.value, std::min<size_t>(c.len, sizeof m));
    const int index = c.len >= sizeof(ip_mreqn) ? m.imr_ifindex : 0;
    return GroupCall{
        {v4(m.imr_multiaddr), IfIndex(static_cast<uint32_t>(index)), v4(m.imr_address)},
        c.name == IP_ADD_MEMBERSHIP};
  }
  if (c.level == IPPROTO_IPV6 && (c.name == IPV6_JOIN_GROUP || c.name == IPV6_LEAVE_GROUP) &&
      c.len >= sizeof(ipv6_mreq)) {
    ipv6_mreq m{};
    std::memcpy(&m, c.value, sizeof m);
    return GroupCall{{IpAddr::v6(m.ipv6mr_multiaddr), IfIndex(m.ipv6mr_interface), {}},
                     c.name == IPV6_JOIN_GROUP};
  }
  if ((c.name == MCAST_JOIN_GROUP || c.name == MCAST_LEAVE_GROUP) && c.len >= sizeof(group_req)) {
    group_req g{};
    std::memcpy(&g, c.value, sizeof g);
    const auto e =
        Endpoint::from_sockaddr(reinterpret_cast<const sockaddr*>(&g.gr_group), sizeof g.gr_group);
    if (e) return GroupCall{{e->addr, IfIndex(g.gr_interface), {}}, c.name == MCAST_JOIN_GROUP};
  }
  return std::nullopt;
}

/// Finds the interface index of a membership given by address or without interface, as Linux does
/// (net/ipv4/igmp.c ip_mc_find_dev(), net/ipv6/mcast.c ipv6_sock_mc_join()): the interface with
/// that address, or that of the route to the group.
void resolve_interface(Stack& stack, Membership& m) {
  if (m.ifindex.value() != 0) return;
  if (!m.address.is_unspecified())
    m.ifindex = interface_with(stack, m.address);
  else
    m.ifindex = interface_to(stack, m.group);
}

}  // namespace

bool change_groups(const SetCall& c) {
  auto group = group_call(c);
  if (!group) return false;
  File& f = c.file();
  // As in Linux: leaving an IPv6 group without naming an interface ends the latest membership.
  if (group->is_join || group->m.group.is_v4()) resolve_interface(*f.stack, group->m);
  if (group->is_join)
    udp_socket::joined(f, group->m);
  else
    udp_socket::left(f, group->m);
  return true;
}

void keep_multicast_if(const SetCall& c, SocketOptions& o) {
  ip_mreqn m{};
  if (c.len >= sizeof m) std::memcpy(&m, c.value, sizeof m);
  o.ip.mc_ifindex = m.imr_ifindex;
  // The address is then the source, and selects the interface if no index is given (ip(7)).
  in_addr a{};
  socklen_t n = sizeof a;
  if (libc().getsockopt(c.h.fd, c.level, c.name, &a, &n) != 0) return;
  o.ip.mc_address = v4(a);
  const File& f = c.file();
  if (f.is_udp() && o.ip.mc_ifindex == 0 && !o.ip.mc_address.is_unspecified())
    o.ip.mc_ifindex = static_cast<int>(interface_with(*f.stack, o.ip.mc_address).value());
}

}  // namespace vireo
