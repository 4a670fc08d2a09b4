// What a message's ancillary data asks for (cmsg(3)), in place of its socket's options.
// Owner: the call. Thread: its own. Source: ip(7), ipv6(7), udp(7); net/ipv4/ip_sockglue.c
// ip_cmsg_send(), net/ipv6/datagram.c ip6_datagram_send_ctl(), net/ipv4/udp.c udp_cmsg_send(),
// net/core/sock.c __sock_cmsg_send().
#pragma once

#include <sys/socket.h>

#include <optional>

#include "core/address.h"
#include "core/types.h"
#include "stack/engine/flow.h"

namespace vireo {

struct SendControl {
  bool names_way = false;  ///< one of the next seven is set
  std::optional<IpAddr> source;
  IfIndex by{};
  std::optional<uint8_t> tos, ttl;
  std::optional<uint8_t> priority;
  std::optional<uint32_t> mark;
  std::optional<uint16_t> segment;    ///< UDP_SEGMENT
  std::optional<bool> dont_fragment;  ///< IPV6_DONTFRAG
  bool asks_report = false;           ///< SO_TIMESTAMPING, SCM_TS_OPT_ID: send_reports.h reads them

  /// `ip`: the settings of the socket.
  UdpAsked asked(IpSettings ip) const noexcept;
};

/// Of a datagram from a socket of `domain` to `to`. nullopt: the kernel's socket must send it, or
/// find what is wrong with it.
std::optional<SendControl> read_send_control(const msghdr& msg, int domain, const Endpoint& to);

/// What is wrong with that of a message on a stream, which ignores all but SOL_SOCKET's. @return
/// errno, or 0 (net/ipv4/tcp.c tcp_sendmsg_locked()).
int stream_control_error(const msghdr& msg);

}  // namespace vireo
