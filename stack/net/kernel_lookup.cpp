// Queries the kernel for one route (RTM_GETROUTE; rtnetlink(7)).
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/syscall.h>

#include <cstring>

#include "core/byteorder.h"
#include "stack/net/messages.h"
#include "stack/net/policy.h"
#include "stack/net/rtnetlink_socket.h"

namespace vireo::net {
namespace {

Request question(const LookupKey& key, const std::optional<IpAddr>& src, uint32_t seq) {
  rtmsg h{};
  const bool v4 = key.dst.is_v4();
  h.rtm_family = v4 ? AF_INET : AF_INET6;
  h.rtm_dst_len = v4 ? 32 : 128;
  h.rtm_tos = key.tos & 0xfc;
  Request q(RTM_GETROUTE, NLM_F_REQUEST, seq, h);
  if (src) {
    h.rtm_src_len = h.rtm_dst_len;
    q = Request(RTM_GETROUTE, NLM_F_REQUEST, seq, h);
    q.attribute(RTA_SRC, *src);
  }
  q.attribute(RTA_DST, key.dst);
  if (key.oif != IfIndex()) q.attribute(RTA_OIF, key.oif.value());
  if (key.mark != 0) q.attribute(RTA_MARK, key.mark);
  q.attribute(RTA_UID, key.uid);
  q.attribute(RTA_IP_PROTO, static_cast<uint8_t>(key.proto));
  if (key.sport != 0) q.attribute(RTA_SPORT, be16(key.sport));
  if (key.dport != 0) q.attribute(RTA_DPORT, be16(key.dport));
  return q;
}

/// The kernel replies within sendto(); the wait is for a kernel that does not.
Result<Route> ask(RtnetlinkSocket& s, const LookupKey& key, const std::optional<IpAddr>& src,
                  uint32_t seq) {
  if (auto sent = s.send(question(key, src, seq).bytes()); !sent)
    return std::unexpected(sent.error());
  alignas(nlmsghdr) std::byte buffer[4096];
  for (;;) {
    auto got = s.receive(buffer);
    if (!got && got.error().code == EAGAIN) {
      pollfd p{.fd = s.fd(), .events = POLLIN, .revents = 0};
      const timespec limit{.tv_sec = 1, .tv_nsec = 0};
      if (::syscall(SYS_ppoll, &p, 1, &limit, nullptr, 0) == 0)
        return fail(ETIMEDOUT, "RTM_GETROUTE");
      continue;
    }
    if (!got) return std::unexpected(got.error());
    const auto* m = reinterpret_cast<const nlmsghdr*>(got->data());
    if (!NLMSG_OK(m, static_cast<uint32_t>(got->size())) || m->nlmsg_seq != seq) continue;
    if (m->nlmsg_type == NLMSG_ERROR) return fail(parse_error(*m), "the kernel's routing");
    auto route = parse_route(*m);
    if (!route) return fail(EPROTO, "answer to RTM_GETROUTE");
    return route->route;
  }
}

Result<Decision> decision_of(const Snapshot& s, const LookupKey& key,
                             const std::optional<IpAddr>& src, const Route& r) {
  const Hop& hop = r.multipath.empty() ? r.hop : r.multipath.front();
  Decision d{.oif = hop.oif,
             .src = {},
             .via = hop.gateway.value_or(key.dst),
             .route_mtu = r.mtu,
             .advmss = r.advmss,
             .table = r.table};
  if (const int e = refusal(r.type); e != 0) return fail(e, "the kernel's routing");
  if (r.type == RouteType::kLocal || r.type == RouteType::kAnycast) {
    d.kind = DestKind::kLocal;
    d.oif = loopback(s);
  } else if (r.type == RouteType::kBroadcast) {
    d.kind = DestKind::kBroadcast;
  } else if (r.type == RouteType::kMulticast || key.dst.is_multicast()) {
    d.kind = DestKind::kMulticast;
  }
  if (d.kind != DestKind::kUnicast) d.via = key.dst;
  if (!src && !r.prefsrc && !key.dst.is_v4())
    return fail(EADDRNOTAVAIL, "no source address for the destination");
  d.src = src ? *src : r.prefsrc ? *r.prefsrc : key.dst.is_v4() ? IpAddr::any_v4() : IpAddr();
  return d;
}

}  // namespace

Result<NextHop> kernel_lookup(const Snapshot& snapshot, const LookupKey& key) {
  auto socket = RtnetlinkSocket::open(0);
  if (!socket) return std::unexpected(socket.error());
  std::optional<IpAddr> src = flow_of(key).src;
  auto route = ask(*socket, key, src, 1);
  // The second look-up, with the chosen source, as in connect(2). Not for a bound IPv6 socket: with
  // a source, the request cannot make the interface mandatory.
  const bool v4 = key.dst.is_v4();
  if (!src && (v4 ? key.connected : key.oif == IfIndex())) {
    if (route)
      src = route->prefsrc;
    else if (!v4)
      src = choose_source_v6(snapshot, key.dst,
                             IfIndex());  // even after a refusal: ip6_dst_lookup_tail()
    if (src) route = ask(*socket, key, src, 2);
  }
  if (!route) return std::unexpected(route.error());
  auto d = decision_of(snapshot, key, src, *route);
  if (!d) return std::unexpected(d.error());
  return complete(snapshot, key, *d);
}

}  // namespace vireo::net
