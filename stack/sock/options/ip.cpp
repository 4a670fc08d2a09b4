// Rows of ip(7).
#include <netinet/in.h>

#include "stack/sock/blocking.h"
#include "stack/sock/options/call.h"
#include "stack/sock/options/options.h"
#include "stack/sock/options/rows.h"
#include "stack/sock/options/values.h"
#include "stack/sock/udp_socket.h"

#ifndef IP_LOCAL_PORT_RANGE  // Linux 6.3
#define IP_LOCAL_PORT_RANGE 51
#define IP_PROTOCOL 52
#endif

// From headers that conflict with libc's. Each shares its number with an option that sets.
#define IPT_SO_GET_INFO 64
#define IPT_SO_GET_ENTRIES 65
#define IPT_SO_GET_REVISION_MATCH 66
#define IPT_SO_GET_REVISION_TARGET 67
#define SO_ORIGINAL_DST 80
#define SO_IP_SET 83
#define ARPT_SO_GET_INFO 96
#define ARPT_SO_GET_ENTRIES 97
#define ARPT_SO_GET_REVISION_MATCH 98
#define ARPT_SO_GET_REVISION_TARGET 99

namespace vireo {

int priority_of_tos(int tos) {
  constexpr int kPriorities[] = {0, 2, 6, 4};  // TC_PRIO_*
  return kPriorities[tos >> 3 & 3];
}

std::optional<Result<void>> tell_mtu(const GetCall& c, Engine& e) {
  File& f = c.file();
  const EngineGuard guard(e);
  if (f.flow == nullptr || (f.is_udp() && !f.udp->connected)) return std::nullopt;
  const uint32_t mtu = f.is_tcp() ? f.tcp_flow().egress.mtu : f.udp_flow().path_mtu;
  if (mtu == 0) return std::nullopt;  // nothing was sent yet
  return c.give(static_cast<int>(mtu));
}

namespace {

template <int IpOptions::* kMember>
int& kept(SocketOptions& o) {
  return o.ip.*kMember;
}

void keep_tos(const SetCall& c, SocketOptions& o) {
  const int before = o.ip.tos;
  if (c.read_back(IP_TOS, o.ip.tos) && o.ip.tos != before)
    o.socket.priority = priority_of_tos(o.ip.tos);
}
/// Not `kept`: a stream's answer is the kernel socket's, which depends on the family.
void keep_multicast_all(const SetCall& c, SocketOptions& o) {
  (void)c.read_back(IP_MULTICAST_ALL, o.ip.mc_all);
}
/// It also sets SO_PRIORITY, which the program may have changed since.
void give_tos(const File& f, int fd) {
  const SocketOptions& o = *f.tcp.options;
  if (o.ip.tos == 0) return;
  give_to(fd, IPPROTO_IP, IP_TOS, o.ip.tos);
  give_to(fd, SOL_SOCKET, SO_PRIORITY, o.socket.priority);
}

using namespace rows;
#define IP(name) IPPROTO_IP, name, #name

constexpr SocketOption kRows[] = {
    ours(IP(IP_TOS),
         {.kept = kept<&IpOptions::tos>, .keep = keep_tos, .apply = apply_ip, .give = give_tos}),
    ours(IP(IP_TTL), {.kept = kept<&IpOptions::ttl>, .apply = apply_ip}),
    kernels(IP(IP_HDRINCL)),  // raw sockets only
    leaves(IP(IP_OPTIONS), kNotEmpty),
    kernels(IP(IP_ROUTER_ALERT)),  // raw sockets only
    leaves(IP(IP_RECVOPTS)),
    leaves(IP(IP_RETOPTS)),
    ours(IP(IP_PKTINFO), {.kept = kept<&IpOptions::pktinfo>}),
    kernels(IP(IP_PKTOPTIONS)),
    ours(IP(IP_MTU_DISCOVER), {.kept = kept<&IpOptions::mtu_discover>, .apply = apply_ip}),
    leaves(IP(IP_RECVERR)),
    ours(IP(IP_RECVTTL), {.kept = kept<&IpOptions::recvttl>}),
    ours(IP(IP_RECVTOS), {.kept = kept<&IpOptions::recvtos>}),
    ours(IP(IP_MTU), {.tell = of_flow<tell_mtu>}),
    kernels(IP(IP_FREEBIND)),  // for bind(2)
    leaves(IP(IP_IPSEC_POLICY), kSet),
    leaves(IP(IP_XFRM_POLICY), kSet),
    leaves_udp(IP(IP_PASSSEC)),
    leaves(IP(IP_TRANSPARENT)),
    leaves_udp(IP(IP_ORIGDSTADDR)),
    leaves(IP(IP_MINTTL)),
    kernels(IP(IP_NODEFRAG)),  // raw sockets only
    leaves_udp(IP(IP_CHECKSUM)),
    ours(IP(IP_BIND_ADDRESS_NO_PORT), {.kept = kept<&IpOptions::bind_no_port>}),
    leaves_udp(IP(IP_RECVFRAGSIZE)),
    leaves(IP(IP_RECVERR_RFC4884)),
    ours(IP(IP_MULTICAST_IF), {.keep = keep_multicast_if}),
    ours(IP(IP_MULTICAST_TTL), {.kept = kept<&IpOptions::mc_ttl>}),
    ours(IP(IP_MULTICAST_LOOP), {.kept = kept<&IpOptions::mc_loop>}),
    ours(IP(IP_ADD_MEMBERSHIP), {.change_groups = change_groups}),
    ours(IP(IP_DROP_MEMBERSHIP), {.change_groups = change_groups}),
    groups(IP(IP_UNBLOCK_SOURCE), kKernels),
    groups(IP(IP_BLOCK_SOURCE), kLeaves),
    groups(IP(IP_ADD_SOURCE_MEMBERSHIP), kLeaves),
    groups(IP(IP_DROP_SOURCE_MEMBERSHIP), kKernels),
    groups(IP(IP_MSFILTER), kLeaves),
    ours(IP(MCAST_JOIN_GROUP), {.change_groups = change_groups}),
    groups(IP(MCAST_BLOCK_SOURCE), kLeaves),
    groups(IP(MCAST_UNBLOCK_SOURCE), kKernels),
    ours(IP(MCAST_LEAVE_GROUP), {.change_groups = change_groups}),
    groups(IP(MCAST_JOIN_SOURCE_GROUP), kLeaves),
    groups(IP(MCAST_LEAVE_SOURCE_GROUP), kKernels),
    groups(IP(MCAST_MSFILTER), kLeaves),
    {IP(IP_MULTICAST_ALL), kKernels, kOurs, kOn, 0, {.keep = keep_multicast_all}},
    leaves_udp(IP(IP_UNICAST_IF)),
    ours(IP(IP_LOCAL_PORT_RANGE), {.kept = kept<&IpOptions::port_range>}),
    kernels(IP(IP_PROTOCOL)),
    // About the packet filter, not about the socket.
    kernels(IP(IPT_SO_GET_INFO)),
    kernels(IP(IPT_SO_GET_ENTRIES)),
    kernels(IP(IPT_SO_GET_REVISION_MATCH)),
    kernels(IP(IPT_SO_GET_REVISION_TARGET)),
    kernels(IP(SO_ORIGINAL_DST)),  // of a redirected connection: never a carried one
    kernels(IP(SO_IP_SET)),
    kernels(IP(ARPT_SO_GET_INFO)),
    kernels(IP(ARPT_SO_GET_ENTRIES)),
    kernels(IP(ARPT_SO_GET_REVISION_MATCH)),
    kernels(IP(ARPT_SO_GET_REVISION_TARGET)),
};

#undef IP

}  // namespace

constinit const OptionLevel kIpLevel(kRows);

}  // namespace vireo
