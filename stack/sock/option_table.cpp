#include "stack/sock/option_table.h"

#include <linux/in6.h>
#include <linux/net_tstamp.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <array>
#include <cerrno>

#include "stack/sock/options.h"

// Newer than the headers of Debian 12.
#define SO_RCVPRIORITY 82
#define SO_PASSRIGHTS 83
#define SO_INQ 84
#define SO_PASSPIDFD 76
#define SO_PEERPIDFD 77
#define SO_DEVMEM_DONTNEED 80
#define TCP_AO_ADD_KEY 38
#define TCP_AO_DEL_KEY 39
#define TCP_AO_INFO 40
#define TCP_AO_GET_KEYS 41
#define TCP_AO_REPAIR 42
#define TCP_IS_MPTCP 43
#ifndef TCP_RTO_MAX_MS  // Linux 6.15
#define TCP_RTO_MAX_MS 44
#define TCP_RTO_MIN_US 45
#define TCP_DELACK_MAX_US 46
#endif
#ifndef IP_LOCAL_PORT_RANGE  // Linux 6.3
#define IP_LOCAL_PORT_RANGE 51
#define IP_PROTOCOL 52
#endif
#ifndef IPV6_USE_MIN_MTU  // in the header, but not in Linux
#define IPV6_USE_MIN_MTU 63
#endif

// Of headers that do not go together with libc's. Each is of the same number as one that sets.
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
#define IP6T_SO_GET_INFO 64
#define IP6T_SO_GET_ENTRIES 65
#define IP6T_SO_GET_REVISION_MATCH 68
#define IP6T_SO_GET_REVISION_TARGET 69
#define IP6T_SO_ORIGINAL_DST 80
#ifndef UDPLITE_SEND_CSCOV
#define UDPLITE_SEND_CSCOV 10
#define UDPLITE_RECV_CSCOV 11
#endif

namespace vireo {
namespace {

using enum LeavesIf;
using S = SocketOptions;
constexpr auto kOurs = OptionClass::kOurs;
constexpr auto kKernels = OptionClass::kKernels;
constexpr auto kLeaves = OptionClass::kLeaves;
constexpr auto kRefused = OptionClass::kRefused;

/// The same for TCP and UDP.
constexpr SocketOption ours(int level, int name, const char* text, int S::* kept = nullptr) {
  return {level, name, text, kOurs, kOurs, kOn, 0, kept};
}
constexpr SocketOption kernels(int level, int name, const char* text, int S::* kept = nullptr) {
  return {level, name, text, kKernels, kKernels, kOn, 0, kept};
}
constexpr SocketOption leaves(int level, int name, const char* text, LeavesIf when = kOn) {
  return {level, name, text, kLeaves, kLeaves, when};
}
/// Linux does nothing for it on a stream.
constexpr SocketOption leaves_udp(int level, int name, const char* text, LeavesIf when = kOn) {
  return {level, name, text, kKernels, kLeaves, when};
}

#define SOCKET(name) SOL_SOCKET, name, #name
#define IP(name) IPPROTO_IP, name, #name
#define IPV6(name) IPPROTO_IPV6, name, #name
#define TCP(name) IPPROTO_TCP, name, #name
#define UDP(name) IPPROTO_UDP, name, #name

constexpr SocketOption kOptions[] = {
    // ---- socket(7)
    kernels(SOCKET(SO_DEBUG)),
    ours(SOCKET(SO_REUSEADDR), &S::reuse_addr),
    kernels(SOCKET(SO_TYPE)),
    ours(SOCKET(SO_ERROR)),
    leaves(SOCKET(SO_DONTROUTE)),
    ours(SOCKET(SO_BROADCAST), &S::broadcast),
    ours(SOCKET(SO_SNDBUF), &S::sndbuf),
    ours(SOCKET(SO_RCVBUF), &S::rcvbuf),
    ours(SOCKET(SO_SNDBUFFORCE)),
    ours(SOCKET(SO_RCVBUFFORCE)),
    ours(SOCKET(SO_KEEPALIVE), &S::keepalive),
    ours(SOCKET(SO_OOBINLINE), &S::oobinline),
    leaves_udp(SOCKET(SO_NO_CHECK)),
    ours(SOCKET(SO_PRIORITY), &S::priority),
    ours(SOCKET(SO_LINGER)),
    kernels(SOCKET(SO_BSDCOMPAT)),
    ours(SOCKET(SO_REUSEPORT), &S::reuse_port),
    kernels(SOCKET(SO_PASSCRED)),
    kernels(SOCKET(SO_PEERCRED)),
    ours(SOCKET(SO_RCVLOWAT), &S::rcvlowat),
    kernels(SOCKET(SO_SNDLOWAT)),
    ours(SOCKET(SO_RCVTIMEO_OLD)),
    ours(SOCKET(SO_SNDTIMEO_OLD)),
    kernels(SOCKET(SO_SECURITY_AUTHENTICATION)),
    kernels(SOCKET(SO_SECURITY_ENCRYPTION_TRANSPORT)),
    kernels(SOCKET(SO_SECURITY_ENCRYPTION_NETWORK)),
    ours(SOCKET(SO_BINDTODEVICE)),
    leaves(SOCKET(SO_ATTACH_FILTER), kSet),
    kernels(SOCKET(SO_DETACH_FILTER)),
    ours(SOCKET(SO_PEERNAME)),
    ours(SOCKET(SO_TIMESTAMP_OLD), &S::timestamp),
    kernels(SOCKET(SO_ACCEPTCONN)),
    kernels(SOCKET(SO_PEERSEC)),
    leaves_udp(SOCKET(SO_PASSSEC)),
    ours(SOCKET(SO_TIMESTAMPNS_OLD), &S::timestamp_ns),
    ours(SOCKET(SO_MARK), &S::mark),
    {SOCKET(SO_TIMESTAMPING_OLD), kLeaves, kLeaves, kUnknownStamps, 0, &S::timestamping},
    kernels(SOCKET(SO_PROTOCOL)),
    kernels(SOCKET(SO_DOMAIN)),
    {SOCKET(SO_RXQ_OVFL), kKernels, kOurs, kOn, 0, &S::rxq_ovfl},
    leaves_udp(SOCKET(SO_WIFI_STATUS)),
    leaves(SOCKET(SO_PEEK_OFF), kNotNegative),
    kernels(SOCKET(SO_NOFCS)),  // of packet sockets
    leaves(SOCKET(SO_LOCK_FILTER)),
    kernels(SOCKET(SO_SELECT_ERR_QUEUE)),  // the queue is the kernel's, and polled there
    // Vireo polls by VMA_RX_POLL and VMA_SELECT_POLL; the kernel does for what it serves.
    kernels(SOCKET(SO_BUSY_POLL), &S::busy_poll),
    {SOCKET(SO_MAX_PACING_RATE), kOurs, kLeaves, kSet},
    kernels(SOCKET(SO_BPF_EXTENSIONS)),
    kernels(SOCKET(SO_INCOMING_CPU), &S::incoming_cpu),  // a hint
    leaves(SOCKET(SO_ATTACH_BPF), kSet),
    leaves(SOCKET(SO_ATTACH_REUSEPORT_CBPF), kSet),
    leaves(SOCKET(SO_ATTACH_REUSEPORT_EBPF), kSet),
    kernels(SOCKET(SO_CNX_ADVICE)),  // a hint
    kernels(SOCKET(SO_MEMINFO)),
    kernels(SOCKET(SO_INCOMING_NAPI_ID)),
    kernels(SOCKET(SO_COOKIE)),
    kernels(SOCKET(SO_PEERGROUPS)),
    {SOCKET(SO_ZEROCOPY), kRefused, kLeaves, kOn, EOPNOTSUPP},
    leaves(SOCKET(SO_TXTIME), kSet),
    ours(SOCKET(SO_BINDTOIFINDEX)),
    leaves(SOCKET(SO_TIMESTAMP_NEW)),
    leaves(SOCKET(SO_TIMESTAMPNS_NEW)),
    leaves(SOCKET(SO_TIMESTAMPING_NEW)),
    ours(SOCKET(SO_RCVTIMEO_NEW)),
    ours(SOCKET(SO_SNDTIMEO_NEW)),
    kernels(SOCKET(SO_DETACH_REUSEPORT_BPF)),
    kernels(SOCKET(SO_PREFER_BUSY_POLL)),  // as SO_BUSY_POLL
    kernels(SOCKET(SO_BUSY_POLL_BUDGET)),
    kernels(SOCKET(SO_NETNS_COOKIE)),
    leaves(SOCKET(SO_BUF_LOCK)),
    kernels(SOCKET(SO_RESERVE_MEM)),  // of a control group
    kernels(SOCKET(SO_TXREHASH)),     // a hint
    leaves_udp(SOCKET(SO_RCVMARK)),
    kernels(SOCKET(SO_PASSPIDFD)),
    kernels(SOCKET(SO_PEERPIDFD)),
    leaves(SOCKET(SO_DEVMEM_DONTNEED), kSet),
    leaves_udp(SOCKET(SO_RCVPRIORITY)),
    kernels(SOCKET(SO_PASSRIGHTS)),
    kernels(SOCKET(SO_INQ)),  // of Unix sockets
    // ---- ip(7)
    ours(IP(IP_TOS), &S::ip_tos),
    ours(IP(IP_TTL), &S::ip_ttl),
    kernels(IP(IP_HDRINCL)),  // of raw sockets
    leaves(IP(IP_OPTIONS), kNotEmpty),
    kernels(IP(IP_ROUTER_ALERT)),  // of raw sockets
    leaves(IP(IP_RECVOPTS)),
    leaves(IP(IP_RETOPTS)),
    ours(IP(IP_PKTINFO), &S::ip_pktinfo),
    kernels(IP(IP_PKTOPTIONS)),
    ours(IP(IP_MTU_DISCOVER), &S::ip_mtu_discover),
    leaves(IP(IP_RECVERR)),
    ours(IP(IP_RECVTTL), &S::ip_recvttl),
    ours(IP(IP_RECVTOS), &S::ip_recvtos),
    ours(IP(IP_MTU)),
    kernels(IP(IP_FREEBIND)),  // of bind(2)
    leaves(IP(IP_IPSEC_POLICY), kSet),
    leaves(IP(IP_XFRM_POLICY), kSet),
    leaves_udp(IP(IP_PASSSEC)),
    leaves(IP(IP_TRANSPARENT)),
    leaves_udp(IP(IP_ORIGDSTADDR)),
    leaves(IP(IP_MINTTL)),
    kernels(IP(IP_NODEFRAG)),  // of raw sockets
    leaves_udp(IP(IP_CHECKSUM)),
    ours(IP(IP_BIND_ADDRESS_NO_PORT), &S::bind_no_port),
    leaves_udp(IP(IP_RECVFRAGSIZE)),
    leaves(IP(IP_RECVERR_RFC4884)),
    ours(IP(IP_MULTICAST_IF)),
    ours(IP(IP_MULTICAST_TTL), &S::ip_mc_ttl),
    ours(IP(IP_MULTICAST_LOOP), &S::ip_mc_loop),
    ours(IP(IP_ADD_MEMBERSHIP)),
    ours(IP(IP_DROP_MEMBERSHIP)),
    kernels(IP(IP_UNBLOCK_SOURCE)),  // it was left to the kernel by IP_BLOCK_SOURCE
    leaves(IP(IP_BLOCK_SOURCE), kSet),
    leaves(IP(IP_ADD_SOURCE_MEMBERSHIP), kSet),
    kernels(IP(IP_DROP_SOURCE_MEMBERSHIP)),
    leaves(IP(IP_MSFILTER), kSet),
    ours(IP(MCAST_JOIN_GROUP)),
    leaves(IP(MCAST_BLOCK_SOURCE), kSet),
    kernels(IP(MCAST_UNBLOCK_SOURCE)),
    ours(IP(MCAST_LEAVE_GROUP)),
    leaves(IP(MCAST_JOIN_SOURCE_GROUP), kSet),
    kernels(IP(MCAST_LEAVE_SOURCE_GROUP)),
    leaves(IP(MCAST_MSFILTER), kSet),
    kernels(IP(IP_MULTICAST_ALL)),  // what is carried hears its own groups alone
    leaves_udp(IP(IP_UNICAST_IF)),
    ours(IP(IP_LOCAL_PORT_RANGE), &S::port_range),
    kernels(IP(IP_PROTOCOL)),
    // Of the packet filter, not of the socket by which they are called.
    kernels(IP(IPT_SO_GET_INFO)),
    kernels(IP(IPT_SO_GET_ENTRIES)),
    kernels(IP(IPT_SO_GET_REVISION_MATCH)),
    kernels(IP(IPT_SO_GET_REVISION_TARGET)),
    kernels(IP(SO_ORIGINAL_DST)),  // of a connection that it has redirected: ours are none
    kernels(IP(SO_IP_SET)),
    kernels(IP(ARPT_SO_GET_INFO)),
    kernels(IP(ARPT_SO_GET_ENTRIES)),
    kernels(IP(ARPT_SO_GET_REVISION_MATCH)),
    kernels(IP(ARPT_SO_GET_REVISION_TARGET)),
    // ---- ipv6(7)
    {IPV6(IPV6_ADDRFORM), kRefused, kLeaves, kSet, ENOTCONN},
    leaves(IPV6(IPV6_2292PKTINFO)),
    leaves(IPV6(IPV6_2292HOPOPTS)),
    leaves(IPV6(IPV6_2292DSTOPTS)),
    leaves(IPV6(IPV6_2292RTHDR)),
    leaves(IPV6(IPV6_2292PKTOPTIONS), kSet),
    kernels(IPV6(IPV6_CHECKSUM)),  // of raw sockets
    leaves(IPV6(IPV6_2292HOPLIMIT)),
    kernels(IPV6(IPV6_NEXTHOP)),  // not in Linux
    kernels(IPV6(IPV6_AUTHHDR)),
    leaves(IPV6(IPV6_FLOWINFO)),
    ours(IPV6(IPV6_UNICAST_HOPS), &S::v6_hops),
    ours(IPV6(IPV6_MULTICAST_IF), &S::v6_mc_ifindex),
    ours(IPV6(IPV6_MULTICAST_HOPS), &S::v6_mc_hops),
    ours(IPV6(IPV6_MULTICAST_LOOP), &S::v6_mc_loop),
    ours(IPV6(IPV6_ADD_MEMBERSHIP)),
    ours(IPV6(IPV6_DROP_MEMBERSHIP)),
    kernels(IPV6(IPV6_ROUTER_ALERT)),  // of raw sockets
    ours(IPV6(IPV6_MTU_DISCOVER), &S::v6_mtu_discover),
    ours(IPV6(IPV6_MTU)),
    leaves(IPV6(IPV6_RECVERR)),
    ours(IPV6(IPV6_V6ONLY), &S::v6only),
    kernels(IPV6(IPV6_JOIN_ANYCAST)),
    kernels(IPV6(IPV6_LEAVE_ANYCAST)),
    kernels(IPV6(IPV6_MULTICAST_ALL)),
    kernels(IPV6(IPV6_ROUTER_ALERT_ISOLATE)),
    leaves(IPV6(IPV6_RECVERR_RFC4884)),
    leaves(IPV6(IPV6_FLOWLABEL_MGR), kSet),
    kernels(IPV6(IPV6_FLOWINFO_SEND)),  // Java sets it with IP_TOS; it is about sin6_flowinfo
    leaves(IPV6(IPV6_IPSEC_POLICY), kSet),
    leaves(IPV6(IPV6_XFRM_POLICY), kSet),
    kernels(IPV6(IPV6_HDRINCL)),
    ours(IPV6(MCAST_JOIN_GROUP)),
    leaves(IPV6(MCAST_BLOCK_SOURCE), kSet),
    kernels(IPV6(MCAST_UNBLOCK_SOURCE)),
    ours(IPV6(MCAST_LEAVE_GROUP)),
    leaves(IPV6(MCAST_JOIN_SOURCE_GROUP), kSet),
    kernels(IPV6(MCAST_LEAVE_SOURCE_GROUP)),
    leaves(IPV6(MCAST_MSFILTER), kSet),
    ours(IPV6(IPV6_RECVPKTINFO), &S::v6_pktinfo),
    leaves(IPV6(IPV6_PKTINFO), kSet),
    ours(IPV6(IPV6_RECVHOPLIMIT), &S::v6_recvhops),
    kernels(IPV6(IPV6_HOPLIMIT)),  // a message's
    leaves(IPV6(IPV6_RECVHOPOPTS)),
    leaves(IPV6(IPV6_HOPOPTS), kSet),
    leaves(IPV6(IPV6_RTHDRDSTOPTS), kSet),
    leaves(IPV6(IPV6_RECVRTHDR)),
    leaves(IPV6(IPV6_RTHDR), kSet),
    leaves(IPV6(IPV6_RECVDSTOPTS)),
    leaves(IPV6(IPV6_DSTOPTS), kSet),
    leaves(IPV6(IPV6_RECVPATHMTU)),
    ours(IPV6(IPV6_PATHMTU)),
    kernels(IPV6(IPV6_DONTFRAG)),  // it fragments what is too large, or does not
    kernels(IPV6(IPV6_USE_MIN_MTU)),
    ours(IPV6(IPV6_RECVTCLASS), &S::v6_recvtclass),
    ours(IPV6(IPV6_TCLASS), &S::v6_tclass),
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
    // ---- tcp(7)
    ours(TCP(TCP_NODELAY), &S::nodelay),
    ours(TCP(TCP_MAXSEG)),
    ours(TCP(TCP_CORK), &S::cork),
    ours(TCP(TCP_KEEPIDLE), &S::keepidle),
    ours(TCP(TCP_KEEPINTVL), &S::keepintvl),
    ours(TCP(TCP_KEEPCNT), &S::keepcnt),
    ours(TCP(TCP_SYNCNT), &S::syncnt),
    ours(TCP(TCP_LINGER2), &S::linger2),
    ours(TCP(TCP_DEFER_ACCEPT), &S::defer_accept),
    ours(TCP(TCP_WINDOW_CLAMP), &S::window_clamp),
    ours(TCP(TCP_INFO)),
    ours(TCP(TCP_QUICKACK)),
    ours(TCP(TCP_CONGESTION)),
    leaves(TCP(TCP_MD5SIG), kSet),
    leaves(TCP(TCP_THIN_LINEAR_TIMEOUTS)),
    kernels(TCP(TCP_THIN_DUPACK)),  // not in Linux any more
    ours(TCP(TCP_USER_TIMEOUT), &S::user_timeout_ms),
    leaves(TCP(TCP_REPAIR), kSet),
    leaves(TCP(TCP_REPAIR_QUEUE), kSet),
    leaves(TCP(TCP_QUEUE_SEQ), kSet),
    leaves(TCP(TCP_REPAIR_OPTIONS), kSet),
    ours(TCP(TCP_FASTOPEN), &S::fastopen),
    leaves(TCP(TCP_TIMESTAMP), kSet),
    ours(TCP(TCP_NOTSENT_LOWAT), &S::notsent_lowat),
    kernels(TCP(TCP_CC_INFO)),
    leaves(TCP(TCP_SAVE_SYN)),
    kernels(TCP(TCP_SAVED_SYN)),
    leaves(TCP(TCP_REPAIR_WINDOW), kSet),
    ours(TCP(TCP_FASTOPEN_CONNECT), &S::fastopen_connect),
    {TCP(TCP_ULP), kRefused, kKernels, kSet, ENOENT},
    leaves(TCP(TCP_MD5SIG_EXT), kSet),
    ours(TCP(TCP_FASTOPEN_KEY)),
    ours(TCP(TCP_FASTOPEN_NO_COOKIE), &S::fastopen_no_cookie),
    ours(TCP(TCP_ZEROCOPY_RECEIVE)),  // refused
    ours(TCP(TCP_INQ), &S::inq),
    leaves(TCP(TCP_TX_DELAY)),
    leaves(TCP(TCP_AO_ADD_KEY), kSet),
    leaves(TCP(TCP_AO_DEL_KEY), kSet),
    leaves(TCP(TCP_AO_INFO), kSet),
    kernels(TCP(TCP_AO_GET_KEYS)),
    leaves(TCP(TCP_AO_REPAIR), kSet),
    kernels(TCP(TCP_IS_MPTCP)),
    ours(TCP(TCP_RTO_MAX_MS), &S::rto_max_ms),
    ours(TCP(TCP_RTO_MIN_US), &S::rto_min_us),
    ours(TCP(TCP_DELACK_MAX_US), &S::delack_max_us),
    // ---- udp(7)
    leaves(UDP(UDP_CORK)),
    kernels(UDP(UDPLITE_SEND_CSCOV)),  // of UDP-Lite
    kernels(UDP(UDPLITE_RECV_CSCOV)),
    leaves(UDP(UDP_ENCAP)),
    leaves(UDP(UDP_NO_CHECK6_TX)),
    leaves(UDP(UDP_NO_CHECK6_RX)),
    leaves(UDP(UDP_SEGMENT)),
    leaves(UDP(UDP_GRO)),
};

#undef SOCKET
#undef IP
#undef IPV6
#undef TCP
#undef UDP

}  // namespace

std::span<const SocketOption> all_options() { return kOptions; }

namespace {

constexpr int kLevels[] = {SOL_SOCKET, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPPROTO_UDP};
constexpr int kMostNames = 128;
constexpr uint16_t kNone = 0xffff;
static_assert(std::size(kOptions) < kNone);

/// Places in kOptions by level and name.
constexpr auto kPlaces = [] {
  std::array<std::array<uint16_t, kMostNames>, std::size(kLevels)> all;
  for (auto& of_level : all) of_level.fill(kNone);
  for (size_t i = 0; i < std::size(kOptions); ++i)
    for (size_t l = 0; l < std::size(kLevels); ++l)
      if (kLevels[l] == kOptions[i].level)
        all[l][static_cast<size_t>(kOptions[i].name)] = static_cast<uint16_t>(i);
  return all;
}();

}  // namespace

const SocketOption* find_option(int level, int name) {
  if (name < 0 || name >= kMostNames) return nullptr;
  for (size_t l = 0; l < std::size(kLevels); ++l) {
    if (kLevels[l] != level) continue;
    const uint16_t place = kPlaces[l][static_cast<size_t>(name)];
    return place == kNone ? nullptr : &kOptions[place];
  }
  return nullptr;
}

bool SocketOption::leaves_with(int value, socklen_t len, bool is_udp) const {
  // What is received, and how it is told; times of what is sent come by the error queue.
  constexpr unsigned kTold = SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RX_SOFTWARE |
                             SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_SYS_HARDWARE |
                             SOF_TIMESTAMPING_RAW_HARDWARE;
  if (of(is_udp) == kOurs || of(is_udp) == kKernels) return false;
  switch (leaves) {
    case kSet:
      return true;
    case kOn:
      return value != 0;
    case kNotNegative:
      return value >= 0;
    case kNotEmpty:
      return len != 0;
    case kUnknownStamps:
      return (static_cast<unsigned>(value) & ~(is_udp ? kTold : 0U)) != 0;
  }
  __builtin_unreachable();
}

}  // namespace vireo
