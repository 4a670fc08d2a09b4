// Multicast groups that a UDP socket joins and leaves, their sources, and the interface for sending
// to them. The kernel socket beneath is asked first.
#include <netinet/in.h>

#include <algorithm>
#include <vector>

#include "stack/sock/blocking.h"
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

/// A call about the memberships of one group.
struct GroupCall {
  IpAddr group;
  IfIndex ifindex{};
  IpAddr address;  ///< of the interface, if it is named by address; unspecified: by the route
  bool joins = false;
};

template <class T>
bool read_value(const SetCall& c, T& to, size_t at_least = sizeof(T)) {
  if (c.len < at_least) return false;
  std::memcpy(&to, c.value, std::min<size_t>(c.len, sizeof to));
  return true;
}

/// By ip(7).
std::optional<GroupCall> ip_call(const SetCall& c) {
  switch (c.name) {
    case IP_ADD_MEMBERSHIP:
    case IP_DROP_MEMBERSHIP: {
      ip_mreqn m{};
      if (!read_value(c, m, sizeof(ip_mreq))) return std::nullopt;
      return GroupCall{v4(m.imr_multiaddr), IfIndex(static_cast<uint32_t>(m.imr_ifindex)),
                       v4(m.imr_address), c.name == IP_ADD_MEMBERSHIP};
    }
    case IP_ADD_SOURCE_MEMBERSHIP:
    case IP_DROP_SOURCE_MEMBERSHIP:
    case IP_BLOCK_SOURCE:
    case IP_UNBLOCK_SOURCE: {
      ip_mreq_source m{};
      if (!read_value(c, m)) return std::nullopt;
      return GroupCall{
          v4(m.imr_multiaddr), {}, v4(m.imr_interface), c.name == IP_ADD_SOURCE_MEMBERSHIP};
    }
    case IP_MSFILTER: {
      ip_msfilter m{};
      if (!read_value(c, m, IP_MSFILTER_SIZE(0))) return std::nullopt;
      return GroupCall{v4(m.imsf_multiaddr), {}, v4(m.imsf_interface), false};
    }
    default:
      return std::nullopt;
  }
}

/// By RFC 3678, for both families.
std::optional<GroupCall> mcast_call(const SetCall& c) {
  const auto call = [](const sockaddr_storage& group, uint32_t ifindex,
                       bool joins) -> std::optional<GroupCall> {
    const auto e = Endpoint::from_sockaddr(reinterpret_cast<const sockaddr*>(&group), sizeof group);
    if (!e) return std::nullopt;
    return GroupCall{e->addr, IfIndex(ifindex), {}, joins};
  };
  switch (c.name) {
    case MCAST_JOIN_GROUP:
    case MCAST_LEAVE_GROUP: {
      group_req g{};
      if (!read_value(c, g)) return std::nullopt;
      return call(g.gr_group, g.gr_interface, c.name == MCAST_JOIN_GROUP);
    }
    case MCAST_JOIN_SOURCE_GROUP:
    case MCAST_LEAVE_SOURCE_GROUP:
    case MCAST_BLOCK_SOURCE:
    case MCAST_UNBLOCK_SOURCE: {
      group_source_req g{};
      if (!read_value(c, g)) return std::nullopt;
      return call(g.gsr_group, g.gsr_interface, c.name == MCAST_JOIN_SOURCE_GROUP);
    }
    case MCAST_MSFILTER: {
      group_filter g{};
      if (!read_value(c, g, GROUP_FILTER_SIZE(0))) return std::nullopt;
      return call(g.gf_group, g.gf_interface, false);
    }
    default:
      return std::nullopt;
  }
}

/// nullopt: it is no such call.
std::optional<GroupCall> group_call(const SetCall& c) {
  if (c.level == IPPROTO_IPV6 && (c.name == IPV6_JOIN_GROUP || c.name == IPV6_LEAVE_GROUP)) {
    ipv6_mreq m{};
    if (!read_value(c, m)) return std::nullopt;
    return GroupCall{
        IpAddr::v6(m.ipv6mr_multiaddr), IfIndex(m.ipv6mr_interface), {}, c.name == IPV6_JOIN_GROUP};
  }
  if (c.level == IPPROTO_IP)
    if (auto call = ip_call(c)) return call;
  return mcast_call(c);
}

/// The filter of the kernel's membership on that interface; nullopt: it is no member there.
std::optional<SourceFilter> kernels_filter(int fd, const IpAddr& group, IfIndex ifindex) {
  const int level = group.is_v4() ? IPPROTO_IP : IPPROTO_IPV6;
  for (uint32_t room = 16;; room *= 4) {
    std::vector<std::byte> memory(GROUP_FILTER_SIZE(room));
    auto& f = *reinterpret_cast<group_filter*>(memory.data());
    f.gf_interface = ifindex.value();
    (void)Endpoint{group, 0, 0}.to_sockaddr(f.gf_group, group.family());
    f.gf_numsrc = room;
    auto bytes = static_cast<socklen_t>(memory.size());
    if (libc().getsockopt(fd, level, MCAST_MSFILTER, memory.data(), &bytes) != 0)
      return std::nullopt;
    if (f.gf_numsrc > room) continue;  // there are more
    SourceFilter filter{.includes = f.gf_fmode == MCAST_INCLUDE, .sources = {}};
    for (uint32_t i = 0; i < f.gf_numsrc; ++i) {
      const auto* const source = reinterpret_cast<const sockaddr*>(&f.gf_slist[i]);
      if (const auto e = Endpoint::from_sockaddr(source, sizeof f.gf_slist[i]))
        filter.sources.push_back(e->addr);
    }
    std::ranges::sort(filter.sources);
    return filter;
  }
}

/// The interface of a join that names it by address or not at all, as Linux finds it
/// (net/ipv4/igmp.c ip_mc_find_dev(), net/ipv6/mcast.c ipv6_sock_mc_join()): the interface with
/// that address, or that of the route to the group.
IfIndex interface_of(Stack& stack, const GroupCall& call) {
  if (call.ifindex != IfIndex()) return call.ifindex;
  return call.address.is_unspecified() ? interface_to(stack, call.group)
                                       : interface_with(stack, call.address);
}

/// All interfaces.
std::vector<IfIndex> interfaces(Stack& stack) {
  std::vector<IfIndex> all;
  if (!has_mirror(stack)) return all;
  net::SnapshotStore::Reader reader(stack.mirror()->store());
  for (const net::Link& l : reader.snapshot().links->all) all.push_back(l.index);
  return all;
}

}  // namespace

void open_for_join(const SetCall& c) {
  const auto call = group_call(c);
  File& f = c.file();
  if (!call || !call->joins || !f.is_carried()) return;
  const IfIndex ifindex = interface_of(*f.stack, *call);
  Engine& e = *f.engine.load(std::memory_order_relaxed);
  const EngineGuard guard(e);
  e.udp().open_for_join(call->group, ifindex);
}

/// The kernel has done it: its memberships of the group are read back.
bool change_groups(const SetCall& c) {
  const auto call = group_call(c);
  if (!call) return false;
  File& f = c.file();
  std::vector<Membership> now;
  const auto read = [&](IfIndex ifindex) {
    auto filter = kernels_filter(c.h.fd, call->group, ifindex);
    if (filter) now.push_back({call->group, ifindex, std::move(*filter)});
    return filter.has_value();
  };
  const auto is_had = [&](IfIndex ifindex) {
    return std::ranges::find(now, ifindex, &Membership::ifindex) != now.end();
  };
  for (const Membership& m : f.udp->groups)
    if (m.group == call->group) (void)read(m.ifindex);
  if (call->joins) {
    const IfIndex ifindex = interface_of(*f.stack, *call);
    if (!is_had(ifindex) && !read(ifindex))  // the routes have changed meanwhile
      for (const IfIndex other : interfaces(*f.stack))
        if (!is_had(other)) (void)read(other);
  }
  udp_socket::set_group(f, call->group, std::move(now));
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
