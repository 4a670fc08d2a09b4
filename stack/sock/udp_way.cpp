#include "stack/sock/udp_way.h"

#include "stack/sock/options/values.h"
#include "stack/sock/stack.h"
#include "stack/sock/udp_socket.h"

namespace vireo::udp_socket {
namespace {

/// An IPv6 socket that may not send to IPv4, or is bound to an address of the other family: the
/// kernel returns the errno (ipv6(7) IPV6_V6ONLY).
bool crosses_families(const File& f, const Endpoint& to) {
  if (f.domain.load(std::memory_order_relaxed) != AF_INET6) return false;
  const UdpSocket& s = *f.udp;
  const bool v4 = to.addr.is_v4();
  return (v4 && s.options.ipv6.v6only != 0) ||
         (s.local.addr != IpAddr() && s.local.addr.is_v4() != v4);
}

}  // namespace

std::optional<Endpoint> destination(const File& f, const msghdr& msg) {
  if (msg.msg_name == nullptr || msg.msg_namelen == 0) {
    if (!f.udp->connected) return std::nullopt;
    return f.udp->remote;
  }
  const auto* sa = static_cast<const sockaddr*>(msg.msg_name);
  const int domain = f.domain.load(std::memory_order_relaxed);
  if (msg.msg_namelen < sizeof(sa_family_t) || sa->sa_family != domain) return std::nullopt;
  auto to = Endpoint::from_sockaddr(sa, msg.msg_namelen);
  if (!to || to->port == 0 || to->addr.is_unspecified()) return std::nullopt;
  return to;
}

bool is_for_kernel(const File& f, int flags, const Endpoint& to) {
  if ((flags & ~(kPlainFlags | MSG_ZEROCOPY)) != 0 || f.udp->is_corked) return true;
  if (to.addr.is_limited_broadcast() || crosses_families(f, to)) return true;
  // The kernel loops a copy to members on this host; Vireo only sends to the wire.
  const SocketOptions& o = f.udp->options;
  const bool loops = f.domain.load(std::memory_order_relaxed) == AF_INET6 ? o.ipv6.mc_loop != 0
                                                                          : o.ip.mc_loop != 0;
  return to.addr.is_multicast() && loops &&
         f.stack->host_sockets().groups.has_member(to.addr, *f.stack);
}

std::optional<IpAddr> source_for(const File& f, const Engine& e, const Endpoint& to, IfIndex oif,
                                 const SendControl* control) {
  const UdpSocket& s = *f.udp;
  IpAddr from = s.local.addr;
  if (from.is_multicast()) from = IpAddr();  // of the route (net/ipv4/af_inet.c __inet_bind())
  if (control != nullptr && control->source) {
    from = *control->source;
    if (from.is_unspecified()) from = IpAddr();
    // Over IPv4 the kernel takes that address's interface for a group.
    if (from != IpAddr() &&
        (!e.host().may_send_from(from, oif) || (to.addr.is_multicast() && oif == IfIndex())))
      return std::nullopt;
  }
  if (from.is_unspecified() && to.addr.is_multicast() &&
      f.domain.load(std::memory_order_relaxed) == AF_INET)
    from = s.options.ip.mc_address;
  return from;
}

std::optional<IfIndex> interface_for(const File& f, const Endpoint& to, const UdpAsked* asked) {
  const SocketOptions& o = f.udp->options;
  IfIndex oif(to.scope != 0 ? to.scope : static_cast<uint32_t>(o.socket.bound_ifindex));
  if (asked != nullptr && asked->by != IfIndex()) {
    const bool may_differ = to.addr.is_v4() || oif == IfIndex();
    if (!may_differ && oif != asked->by) return std::nullopt;
    return asked->by;
  }
  if (oif == IfIndex() && to.addr.is_multicast()) {
    const bool v6 = f.domain.load(std::memory_order_relaxed) == AF_INET6;
    oif = IfIndex(static_cast<uint32_t>(v6 ? o.ipv6.mc_ifindex : o.ip.mc_ifindex));
  }
  return oif;
}

}  // namespace vireo::udp_socket
