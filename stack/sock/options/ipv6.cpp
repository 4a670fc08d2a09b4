// Rows of ipv6(7).
#include <netinet/in.h>

#include <linux/in6.h>  // behind <netinet/in.h>, whose structures it leaves alone then

#include <cerrno>

#include "stack/sock/blocking.h"
#include "stack/sock/options/call.h"
#include "stack/sock/options/rows.h"
#include "stack/sock/options/values.h"

#ifndef IPV6_USE_MIN_MTU  // in the header, but not in Linux
#define IPV6_USE_MIN_MTU 63
#endif

// From headers that conflict with libc's. Each shares its number with an option that sets.
#define IP6T_SO_GET_INFO 64
#define IP6T_SO_GET_ENTRIES 65
#define IP6T_SO_GET_REVISION_MATCH 68
#define IP6T_SO_GET_REVISION_TARGET 69
#define IP6T_SO_ORIGINAL_DST 80

namespace vireo {
namespace {

template <int Ipv6Options::* kMember>
int& kept(SocketOptions& o) {
  return o.ipv6.*kMember;
}

bool is_of_v6(const File& f) { return f.domain.load(std::memory_order_relaxed) == AF_INET6; }

// ---- IPV6_V6ONLY

bool is_v6(const SetCall& c) { return is_of_v6(c.file()); }
/// The kernel socket beneath may be bound to an address that the program did not choose. But a
/// socket that the program has bound to an IPv6 address is IPv6-only, as the kernel reports.
std::optional<Result<void>> tell_v6only(const GetCall& c) {
  File& f = c.file();
  if (!f.is_tcp() || !f.is_carried() || !is_of_v6(f)) return std::nullopt;
  const LockGuard control(f.control);
  if (!c.h.is_alive()) return fail(EBADF, "getsockopt");
  if (!f.placeholder && !f.tcp.has_drawn_source) return std::nullopt;
  return c.give(f.tcp.options->ipv6.v6only);
}
/// Always set, because net.ipv6.bindv6only may have changed the default.
void give_v6only(const File& f, int fd) {
  give_to(fd, IPPROTO_IPV6, IPV6_V6ONLY, f.tcp.options->ipv6.v6only);
}

// ---- IPV6_MTU, IPV6_PATHMTU

void keep_mtu(const SetCall& c, SocketOptions& o) {
  if (c.file().is_udp()) o.ipv6.fragment = c.as_int();
}
std::optional<Result<void>> tell_path_mtu(const GetCall& c, Engine& e) {
  File& f = c.file();
  if (!f.is_tcp() || !is_of_v6(f)) return std::nullopt;
  const EngineGuard guard(e);
  ip6_mtuinfo info{};
  if (is_readable(c.len) && static_cast<int>(*c.len) < static_cast<int>(sizeof info))
    return fail(EINVAL, "getsockopt");
  info.ip6m_mtu = f.flow != nullptr ? f.tcp_flow().egress.mtu : 0;
  if (info.ip6m_mtu == 0) return fail(ENOTCONN, "getsockopt");
  return c.give(info);
}

/// IPV6_ADDRFORM.
std::optional<Result<void>> tell_family(const GetCall& c, Engine& e) {
  File& f = c.file();
  if (!f.is_tcp() || !is_of_v6(f)) return std::nullopt;
  const EngineGuard guard(e);
  const bool is_there = f.flow != nullptr && !tcp::is_opening(f.tcp_flow().tcb);
  if (!is_there) return fail(ENOTCONN, "getsockopt");
  return c.give(AF_INET6);
}

using namespace rows;
#define IPV6(name) IPPROTO_IPV6, name, #name

constexpr SocketOption kRows[] = {
    {IPV6(IPV6_ADDRFORM), kRefused, kLeaves, kSet, ENOTCONN, {.tell = of_flow<tell_family>}},
    leaves(IPV6(IPV6_2292PKTINFO)),
    leaves(IPV6(IPV6_2292HOPOPTS)),
    leaves(IPV6(IPV6_2292DSTOPTS)),
    leaves(IPV6(IPV6_2292RTHDR)),
    leaves(IPV6(IPV6_2292PKTOPTIONS), kSet),
    kernels(IPV6(IPV6_CHECKSUM)),  // raw sockets only
    leaves(IPV6(IPV6_2292HOPLIMIT)),
    kernels(IPV6(IPV6_NEXTHOP)),  // not in Linux
    kernels(IPV6(IPV6_AUTHHDR)),
    leaves(IPV6(IPV6_FLOWINFO)),
    ours(IPV6(IPV6_UNICAST_HOPS), {.kept = kept<&Ipv6Options::hops>, .apply = apply_ip}),
    ours(IPV6(IPV6_MULTICAST_IF), {.kept = kept<&Ipv6Options::mc_ifindex>}),
    ours(IPV6(IPV6_MULTICAST_HOPS), {.kept = kept<&Ipv6Options::mc_hops>}),
    ours(IPV6(IPV6_MULTICAST_LOOP), {.kept = kept<&Ipv6Options::mc_loop>}),
    ours(IPV6(IPV6_ADD_MEMBERSHIP), {.change_groups = change_groups}),
    ours(IPV6(IPV6_DROP_MEMBERSHIP), {.change_groups = change_groups}),
    kernels(IPV6(IPV6_ROUTER_ALERT)),  // raw sockets only
    ours(IPV6(IPV6_MTU_DISCOVER), {.kept = kept<&Ipv6Options::mtu_discover>, .apply = apply_ip}),
    ours(IPV6(IPV6_MTU), {.keep = keep_mtu, .tell = of_flow<tell_mtu>}),
    leaves(IPV6(IPV6_RECVERR)),
    ours(IPV6(IPV6_V6ONLY), {.kept = kept<&Ipv6Options::v6only>,
                             .is_fixed = is_v6,
                             .tell = tell_v6only,
                             .give = give_v6only}),
    kernels(IPV6(IPV6_JOIN_ANYCAST)),
    kernels(IPV6(IPV6_LEAVE_ANYCAST)),
    ours(IPV6(IPV6_MULTICAST_ALL), {.kept = kept<&Ipv6Options::mc_all>}),
    kernels(IPV6(IPV6_ROUTER_ALERT_ISOLATE)),
    leaves(IPV6(IPV6_RECVERR_RFC4884)),
    leaves(IPV6(IPV6_FLOWLABEL_MGR), kSet),
    kernels(IPV6(IPV6_FLOWINFO_SEND)),  // Java sets it with IP_TOS; it concerns sin6_flowinfo
    leaves(IPV6(IPV6_IPSEC_POLICY), kSet),
    leaves(IPV6(IPV6_XFRM_POLICY), kSet),
    kernels(IPV6(IPV6_HDRINCL)),
    ours(IPV6(MCAST_JOIN_GROUP), {.change_groups = change_groups}),
    groups(IPV6(MCAST_BLOCK_SOURCE), kLeaves),
    groups(IPV6(MCAST_UNBLOCK_SOURCE), kKernels),
    ours(IPV6(MCAST_LEAVE_GROUP), {.change_groups = change_groups}),
    groups(IPV6(MCAST_JOIN_SOURCE_GROUP), kLeaves),
    groups(IPV6(MCAST_LEAVE_SOURCE_GROUP), kKernels),
    groups(IPV6(MCAST_MSFILTER), kLeaves),
    ours(IPV6(IPV6_RECVPKTINFO), {.kept = kept<&Ipv6Options::pktinfo>}),
    leaves(IPV6(IPV6_PKTINFO), kSet),
    ours(IPV6(IPV6_RECVHOPLIMIT), {.kept = kept<&Ipv6Options::recvhops>}),
    kernels(IPV6(IPV6_HOPLIMIT)),  // of one message
    leaves(IPV6(IPV6_RECVHOPOPTS)),
    leaves(IPV6(IPV6_HOPOPTS), kSet),
    leaves(IPV6(IPV6_RTHDRDSTOPTS), kSet),
    leaves(IPV6(IPV6_RECVRTHDR)),
    leaves(IPV6(IPV6_RTHDR), kSet),
    leaves(IPV6(IPV6_RECVDSTOPTS)),
    leaves(IPV6(IPV6_DSTOPTS), kSet),
    leaves(IPV6(IPV6_RECVPATHMTU)),
    ours(IPV6(IPV6_PATHMTU), {.tell = of_flow<tell_path_mtu>}),
    // Whether to fragment large datagrams.
    {IPV6(IPV6_DONTFRAG), kKernels, kOurs, kOn, 0, {.kept = kept<&Ipv6Options::dontfrag>}},
    kernels(IPV6(IPV6_USE_MIN_MTU)),
    ours(IPV6(IPV6_RECVTCLASS), {.kept = kept<&Ipv6Options::recvtclass>}),
    ours(IPV6(IPV6_TCLASS), {.kept = kept<&Ipv6Options::tclass>, .apply = apply_ip}),
    leaves(IPV6(IPV6_AUTOFLOWLABEL)),
    leaves(IPV6(IPV6_ADDR_PREFERENCES), kSet),
    leaves(IPV6(IPV6_MINHOPCOUNT)),
    leaves_udp(IPV6(IPV6_ORIGDSTADDR)),
    leaves(IPV6(IPV6_TRANSPARENT)),
    leaves_udp(IPV6(IPV6_UNICAST_IF)),
    leaves_udp(IPV6(IPV6_RECVFRAGSIZE)),
    kernels(IPV6(IPV6_FREEBIND)),
    kernels(IPV6(IP6T_SO_GET_INFO)),
    kernels(IPV6(IP6T_SO_GET_ENTRIES)),
    kernels(IPV6(IP6T_SO_GET_REVISION_MATCH)),
    kernels(IPV6(IP6T_SO_GET_REVISION_TARGET)),
    kernels(IPV6(IP6T_SO_ORIGINAL_DST)),
};

#undef IPV6

}  // namespace

constinit const OptionLevel kIpv6Level(kRows);

}  // namespace vireo
