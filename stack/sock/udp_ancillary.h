// The ancillary data of a datagram that was received (ip(7), ipv6(7), socket(7), udp(7)), as far as
// its socket's options ask for it. `by()`: the interface that received it.
// Owner: none (functions). Guard: the engine's lock.
#pragma once

#include <netinet/in.h>

#include <linux/udp.h>  // behind <netinet/in.h>

#include <cstring>

#include "stack/sock/cmsg.h"
#include "stack/sock/options/values.h"
#include "stack/sock/stamps.h"
#include "stack/sock/udp_joined.h"
#include "stack/sock/udp_socket.h"
#include "stack/wire/parse.h"

namespace vireo::udp_socket {

/// As net/socket.c __sock_recv_timestamp().
template <class By>
void put_times(const File& f, const wire::ParsedFrame& p, By&& by, FrameTimes times,
               CmsgWriter& out) {
  const SocketOptions& o = f.udp->options;
  // A datagram that came before the option was set gets the time of the call.
  if (o.socket.stamp != 0 && times.arrival == 0) times.arrival = Clock::wall_ns();
  if (o.socket.stamp != 0) put_stamp(o, times.arrival, out);
  times = reported(o, times);
  if (p && times.device != 0 && (stamp_flags(o) & SOF_TIMESTAMPING_OPT_PKTINFO) != 0)
    out.put(SOL_SOCKET, SCM_TIMESTAMPING_PKTINFO,
            scm_ts_pktinfo{.if_index = by().value(),
                           .pkt_length = uint32_t{p.payload_at} + p.payload_bytes,
                           .reserved = {}});
  put_timestamping(o, times, out);
}

/// `joined`: what UDP_GRO makes of the datagram.
template <class By>
void put_control(const File& f, const wire::ParsedFrame& p, By&& by, FrameTimes times,
                 const Joined& joined, msghdr& msg) {
  const SocketOptions& o = f.udp->options;
  CmsgWriter out(msg);
  if ((o.socket.stamp | o.socket.timestamping) != 0) put_times(f, p, by, times, out);
  // socket(7) SIOCGSTAMP: of what came while no other stamp was asked for.
  constexpr uint32_t kTold = SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_RX_SOFTWARE;
  if (o.socket.keeps_stamp != 0 && o.socket.stamp == 0 && (stamp_flags(o) & kTold) == 0)
    f.udp->last_stamp = times.arrival;
  if (const auto lost = static_cast<uint32_t>(f.stats->rx_drops.get());
      lost != 0 && o.socket.rxq_ovfl != 0)
    out.put(SOL_SOCKET, SO_RXQ_OVFL, lost);
  if (joined.datagrams > 1) out.put(IPPROTO_UDP, UDP_GRO, static_cast<int>(joined.segment));
  if (!p) return;
  if (!p.is_v6) {
    if (o.ip.pktinfo != 0) {
      in_pktinfo info{};
      info.ipi_ifindex = static_cast<int>(by().value());
      const uint32_t dst = p.dst().as_v4().raw();
      info.ipi_addr.s_addr = dst;
      info.ipi_spec_dst.s_addr = p.dst().is_multicast() ? 0 : dst;
      out.put(IPPROTO_IP, IP_PKTINFO, info);
    }
    if (o.ip.recvttl != 0) out.put(IPPROTO_IP, IP_TTL, static_cast<int>(p.ttl));
    if (o.ip.recvtos != 0) out.put(IPPROTO_IP, IP_TOS, p.tos);
  }
  if (f.domain.load(std::memory_order_relaxed) == AF_INET6) {
    if (o.ipv6.pktinfo != 0) {
      in6_pktinfo info{};
      std::memcpy(&info.ipi6_addr, p.dst().bytes().data(), 16);
      info.ipi6_ifindex = by().value();
      out.put(IPPROTO_IPV6, IPV6_PKTINFO, info);
    }
    if (p.is_v6 && o.ipv6.recvhops != 0)
      out.put(IPPROTO_IPV6, IPV6_HOPLIMIT, static_cast<int>(p.ttl));
    if (p.is_v6 && o.ipv6.recvtclass != 0)
      out.put(IPPROTO_IPV6, IPV6_TCLASS, static_cast<int>(p.tos));
  }
}

}  // namespace vireo::udp_socket
