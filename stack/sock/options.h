// Socket options that a carried socket honours itself. The kernel's socket beneath is asked first,
// so that limits, clamping and errno are Linux's; then its answer is read back and kept here.
// Owner: SharedOptions, UdpSocket. Guard: the File's control lock; applied to a flow under the
// engine's. Source: socket(7), ip(7), ipv6(7), tcp(7), udp(7).
#pragma once

#include <cstdint>
#include <optional>

#include "core/address.h"
#include "core/carriage.h"
#include "core/result.h"
#include "stack/engine/flow.h"
#include "stack/sock/file.h"
#include "stack/tcp/tcp.h"

namespace vireo {

/// As getsockopt(2) gives them.
struct SocketOptions {
  // SOL_SOCKET
  int reuse_addr = 0;
  int reuse_port = 0;
  int keepalive = 0;
  int broadcast = 0;
  int rcvbuf = 0;  ///< doubled, as Linux reports it; 0 = never set
  int sndbuf = 0;
  int rcvlowat = 1;
  int priority = 0;
  int mark = 0;
  int busy_poll = 0;
  int oobinline = 0;
  int incoming_cpu = -1;
  int rxq_ovfl = 0;
  int timestamp = 0;      ///< SO_TIMESTAMP
  int timestamp_ns = 0;   ///< SO_TIMESTAMPNS
  int timestamping = 0;   ///< SO_TIMESTAMPING: SOF_TIMESTAMPING_*
  int bound_ifindex = 0;  ///< SO_BINDTODEVICE
  int linger_on = 0;
  int linger_s = 0;
  // IPPROTO_IP, IPPROTO_IPV6
  int ip_tos = 0;
  int ip_ttl = 64;
  int ip_mtu_discover = 1;
  int ip_pktinfo = 0;
  int ip_recvttl = 0;
  int ip_recvtos = 0;
  int bind_no_port = 0;  ///< IP_BIND_ADDRESS_NO_PORT
  int port_range = 0;    ///< IP_LOCAL_PORT_RANGE
  int ip_mc_ttl = 1;
  int ip_mc_loop = 1;
  int ip_mc_ifindex = 0;
  IpAddr ip_mc_address = IpAddr::any_v4();  ///< IP_MULTICAST_IF by address, if no index
  int v6only = 0;
  int v6_mtu_discover = 1;
  int v6_fragment = 0;  ///< IPV6_MTU of UDP; 0 = never set
  int v6_tclass = 0;
  int v6_hops = 64;
  int v6_pktinfo = 0;
  int v6_recvhops = 0;
  int v6_recvtclass = 0;
  int v6_mc_hops = 1;
  int v6_mc_loop = 1;
  int v6_mc_ifindex = 0;
  // IPPROTO_TCP
  int nodelay = 0;
  int cork = 0;
  int quickack = -1;  ///< TCP_QUICKACK as set before there was a connection; -1 = never
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

  uint64_t max_pacing_rate = UINT64_MAX;  ///< SO_MAX_PACING_RATE of TCP, bytes a second
  int notsent_lowat = 0;                  ///< 0: net.ipv4.tcp_notsent_lowat
  int rto_min_us = 0;                     ///< 0 = never set
  int delack_max_us = 0;
  int rto_max_ms = 0;
  int inq = 0;

  bool rcvbuf_set = false;
  bool sndbuf_set = false;

  // fcntl(2)
  bool owner_is_thread = false;
  pid_t owner = 0;  ///< F_SETOWN: whom SIGURG is for, a group as a negative number

  Endpoint void_name;  ///< not an option: of a connection without a flow, what getsockname(2) says

  bool operator==(const SocketOptions&) const = default;
};

/// The socket has these from now on. Control lock held, the engine's not. Errors: ENOMEM.
Result<void> replace_options(File& f, const SocketOptions& o);
/// TCP: recvmsg(2) gives what tcp(7) TCP_INQ and socket(7) SO_TIMESTAMP ask for beside the bytes.
inline bool wants_stream_control(const SocketOptions& o) {
  return (o.inq | o.timestamp | o.timestamp_ns) != 0;
}
/// UDP: recvmsg(2) gives more than bytes and source.
enum class DatagramControl : uint8_t {
  kNever,
  kOfLosses,  ///< once something was lost
  kAlways,
};
inline DatagramControl datagram_control(const SocketOptions& o) {
  if ((o.timestamp | o.timestamp_ns | o.timestamping | o.ip_pktinfo | o.ip_recvttl | o.ip_recvtos |
       o.v6_pktinfo | o.v6_recvhops | o.v6_recvtclass) != 0)
    return DatagramControl::kAlways;
  return o.rxq_ovfl != 0 ? DatagramControl::kOfLosses : DatagramControl::kNever;
}
/// The flow goes and the File stays: its name does too. Engine's lock held, or nobody else is here.
void leave_name(File& f);

/// What a connection starts with: settings, kernel defaults, then the program's options.
tcp::Config tcp_config(const Stack& stack, const SocketOptions& o);

/// Options as sockets share them, with what follows from them.
struct OptionsWithConfig : SocketOptions {
  constexpr OptionsWithConfig() = default;
  OptionsWithConfig(const SocketOptions& o, const Stack& stack)
      : SocketOptions(o), config(tcp_config(stack, o)) {}
  tcp::Config config;
};

/// What the flow of a socket asks of IP.
IpSettings ip_settings(const SocketOptions& o, bool v6);

/// A new socket: reads the kernel's starting values, applies VMA_TCP_NODELAY and others.
void init_options(File& f);
/// Those of a TCP socket of which nothing was set yet. Without memory: the ordinary ones.
SharedOptions first_options(Stack& stack);

/// Sets on the kernel's socket `fd` what the program has set on one of its family.
void give_options(const SocketOptions& o, int domain, int fd);
/// The same with its timeouts.
void give_timeouts(const File& f, int fd);

/// SO_TIMESTAMPING asks for the device's time of what is received.
bool wants_device_time(const SocketOptions& o);

}  // namespace vireo
