// The values of the options that a carried socket honours itself, as getsockopt(2) gives them. They
// start as on Linux. Each is named by one row of the table (stack/sock/options/table.h), which says
// how it is set and read.
// Owner: SharedOptions (TCP), UdpSocket. Guard: see there. Source: socket(7), ip(7), ipv6(7),
// tcp(7), udp(7).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "core/address.h"
#include "stack/tcp/tcp.h"

namespace vireo {

/// SOL_SOCKET.
struct SocketLevelOptions {
  int reuse_addr = 0;
  int reuse_port = 0;
  int keepalive = 0;
  int broadcast = 0;
  int rcvbuf = 0;  ///< doubled, as Linux reports it; valid if rcvbuf_set
  int sndbuf = 0;  ///< the same
  bool rcvbuf_set = false;
  bool sndbuf_set = false;
  int rcvlowat = 1;
  int priority = 0;
  int mark = 0;
  int busy_poll = 0;
  int oobinline = 0;
  int incoming_cpu = -1;
  int rxq_ovfl = 0;
  int stamp = 0;         ///< SO_TIMESTAMP or SO_TIMESTAMPNS, of either kind
  int stamp_ns = 0;      ///< and it was SO_TIMESTAMPNS
  int stamp_new = 0;     ///< the last such option, or SO_TIMESTAMPING, was that of 64-bit times
  int timestamping = 0;  ///< SO_TIMESTAMPING: SOF_TIMESTAMPING_*
  int keeps_stamp = 0;   ///< SIOCGSTAMP was called
  int zerocopy = 0;
  int select_err_queue = 0;
  int bound_ifindex = 0;  ///< SO_BINDTODEVICE
  int linger_on = 0;
  int linger_s = 0;
  uint64_t max_pacing_rate = UINT64_MAX;  ///< SO_MAX_PACING_RATE of TCP, bytes a second

  bool operator==(const SocketLevelOptions&) const = default;
};

/// IPPROTO_IP.
struct IpOptions {
  int tos = 0;
  int ttl = 64;
  int mtu_discover = 1;
  int pktinfo = 0;
  int recvttl = 0;
  int recvtos = 0;
  int bind_no_port = 0;  ///< IP_BIND_ADDRESS_NO_PORT
  int port_range = 0;    ///< IP_LOCAL_PORT_RANGE
  int mc_ttl = 1;
  int mc_loop = 1;
  int mc_all = 1;
  int mc_ifindex = 0;
  IpAddr mc_address = IpAddr::any_v4();  ///< IP_MULTICAST_IF by address, if no index

  bool operator==(const IpOptions&) const = default;
};

/// IPPROTO_IPV6.
struct Ipv6Options {
  int v6only = 0;
  int mtu_discover = 1;
  int fragment = 0;  ///< IPV6_MTU of UDP; 0 = never set
  int tclass = 0;
  int hops = 64;
  int pktinfo = 0;
  int recvhops = 0;
  int recvtclass = 0;
  int mc_hops = 1;
  int mc_loop = 1;
  int mc_all = 1;
  int mc_ifindex = 0;
  int dontfrag = 0;

  bool operator==(const Ipv6Options&) const = default;
};

/// IPPROTO_UDP.
struct UdpOptions {
  int segment = 0;
  int gro = 0;

  bool operator==(const UdpOptions&) const = default;
};

/// IPPROTO_TCP.
struct TcpOptions {
  int nodelay = 0;
  int cork = 0;
  int quickack = -1;  ///< TCP_QUICKACK as set before connecting; -1 = never
  int keepidle = 7200;
  int keepintvl = 75;
  int keepcnt = 9;
  int user_timeout_ms = 0;
  int maxseg = 0;  ///< 0 = never set
  int linger2 = 60;
  int defer_accept = 0;
  int fastopen = 0;
  int fastopen_connect = 0;
  int fastopen_no_cookie = 0;
  int syncnt = 6;
  int window_clamp = 0;
  std::optional<tcp::CcKind> congestion;  ///< nullopt: never set
  int notsent_lowat = 0;                  ///< 0: net.ipv4.tcp_notsent_lowat
  int rto_min_us = 0;                     ///< 0 = never set, as of the next two
  int delack_max_us = 0;
  int rto_max_ms = 0;
  int inq = 0;

  bool operator==(const TcpOptions&) const = default;
};

/// The recipient of SIGURG and SIGIO: fcntl(2) F_SETOWN.
struct SignalOwner {
  bool is_thread = false;
  pid_t pid = 0;  ///< a process group as a negative number; 0: none

  bool operator==(const SignalOwner&) const = default;
};

struct SocketOptions {
  SocketLevelOptions socket;
  IpOptions ip;
  Ipv6Options ipv6;
  UdpOptions udp;
  TcpOptions tcp;
  SignalOwner owner;
  Endpoint void_name;  ///< not an option: the local address of a connection without a flow, for
                       ///< getsockname(2)

  bool operator==(const SocketOptions&) const = default;
};

/// TCP: recvmsg(2) returns the ancillary data of tcp(7) TCP_INQ or socket(7) SO_TIMESTAMP.
inline bool wants_stream_control(const SocketOptions& o) {
  return (o.tcp.inq | o.socket.stamp | o.socket.timestamping) != 0;
}

/// UDP: whether recvmsg(2) returns ancillary data.
enum class DatagramControl : uint8_t {
  kNever,
  kOfLosses,  ///< once a datagram was lost
  kAlways,
};
inline DatagramControl datagram_control(const SocketOptions& o) {
  if ((o.socket.stamp | o.socket.keeps_stamp | o.socket.timestamping | o.ip.pktinfo | o.ip.recvttl |
       o.ip.recvtos | o.ipv6.pktinfo | o.ipv6.recvhops | o.ipv6.recvtclass | o.udp.gro) != 0)
    return DatagramControl::kAlways;
  return o.socket.rxq_ovfl != 0 ? DatagramControl::kOfLosses : DatagramControl::kNever;
}

/// SO_BINDTODEVICE; 0: none.
inline IfIndex bound_interface(const SocketOptions& o) {
  return IfIndex(static_cast<uint32_t>(o.socket.bound_ifindex));
}

}  // namespace vireo
