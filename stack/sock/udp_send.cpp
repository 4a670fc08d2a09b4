// Sending datagrams: by the flow's cached egress, else by a new route, else by the kernel's socket,
// which has the same port. The kernel also sends the rare cases: unresolved neighbours, fragments,
// broadcast, ancillary data, malformed calls (whose errno is then the kernel's).
#include <sched.h>

#include "core/sleep.h"
#include "stack/engine/fast_path/send_plain.h"
#include "stack/sock/blocking.h"
#include "stack/sock/carriage.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/iov.h"
#include "stack/sock/options/values.h"
#include "stack/sock/packet_filter.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/udp_socket.h"

namespace vireo::udp_socket {
namespace {

constexpr size_t kMaxDatagram = 65'507;
constexpr socklen_t kMaxName = sizeof(sockaddr_storage);  // the kernel ignores the rest
/// How long a destination that the engine refused goes to the kernel.
constexpr Duration kRefusalLife = Duration::s(1);

/// The datagram's destination; nullopt: leave it to the kernel.
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

constexpr int kPlainFlags = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_CONFIRM;

/// An IPv6 socket that may not send to IPv4, or is bound to an address of the other family: the
/// kernel returns the errno (ipv6(7) IPV6_V6ONLY).
bool crosses_families(const File& f, const Endpoint& to) {
  if (f.domain.load(std::memory_order_relaxed) != AF_INET6) return false;
  const UdpSocket& s = *f.udp;
  const bool v4 = to.addr.is_v4();
  return (v4 && s.options.ipv6.v6only != 0) ||
         (s.local.addr != IpAddr() && s.local.addr.is_v4() != v4);
}

bool is_for_kernel(const File& f, int flags, const Endpoint& to) {
  if ((flags & ~(kPlainFlags | MSG_ZEROCOPY)) != 0) return true;
  if (to.addr.is_limited_broadcast() || crosses_families(f, to)) return true;
  // The kernel loops a copy to members on this host; Vireo only sends to the wire.
  const SocketOptions& o = f.udp->options;
  const bool loops = f.domain.load(std::memory_order_relaxed) == AF_INET6 ? o.ipv6.mc_loop != 0
                                                                          : o.ip.mc_loop != 0;
  return to.addr.is_multicast() && loops &&
         f.stack->host_sockets().groups.has_member(to.addr, *f.stack);
}

/// The first send: binds the kernel's socket to a port and opens the flow.
/// @return whether the flow may try the destination.
bool first_send(Handle h, const Endpoint& to) {
  File& f = *h.file;
  const LockGuard control(f.control);
  if (!h.is_alive() || f.mode.load(std::memory_order_relaxed) != Mode::kUndecided)
    return f.is_carried();
  const auto local = kernel_name(h.fd).value_or(Endpoint{});
  const auto may = may_carry(*f.stack, Role::kUdpSender, f.forced, local, to);
  if (!may) {
    // Another destination may be carried; the refusal is counted once.
    if (f.stats->carriage == Carriage::kUndecided) record_kernel(f, may.error());
    return false;
  }
  if (local.port == 0) {
    sockaddr_storage any{};
    const socklen_t len = Endpoint{local.addr, 0, local.scope}.to_sockaddr(
        any, f.domain.load(std::memory_order_relaxed));
    if (libc().bind(h.fd, reinterpret_cast<const sockaddr*>(&any), len) != 0) return false;
  }
  bound(f, h.fd);
  return f.is_carried();
}

struct Attempt {
  Result<void> sent;
  bool by_kernel = false;
  std::optional<Passage> unjudged = {};  ///< nothing was done: ask the packet filter first
};

/// A datagram above the path's MTU, or IPV6_MTU. The kernel fragments it, or refuses it if the
/// program forbids that; but only Vireo knows of a path MTU below the link's.
Attempt too_big(File& f, const UdpFlow& u) {
  UdpSocket& s = *f.udp;
  if (u.path_mtu >= u.egress.link_mtu) return {.sent = {}, .by_kernel = true};
  if (u.ip.mtu_discover == IP_PMTUDISC_DO) return {.sent = fail(EMSGSIZE, "path MTU")};
  s.cut_at = u.egress.mtu;
  return {.sent = {}, .by_kernel = true};
}

/// Lets the kernel's socket send a datagram above the path MTU: routers fragment it (IPv4), or the
/// socket does (IPv6). No lock held.
void let_kernel_cut(Handle h, const Endpoint& to) {
  UdpSocket& s = *h->udp;
  const int mtu = static_cast<int>(std::exchange(s.cut_at, 0));
  const int off = IP_PMTUDISC_DONT;
  if (!to.addr.is_v4())
    (void)libc().setsockopt(h.fd, IPPROTO_IPV6, IPV6_MTU, &mtu, sizeof mtu);
  else
    (void)libc().setsockopt(h.fd, IPPROTO_IP, IP_MTU_DISCOVER, &off, sizeof off);
}

/// The common case: one piece, no ancillary data, unicast over IPv4, to the flow's last
/// destination, as `is_same(File&)` checks under the engine's lock.
/// @return false: nothing was done.
template <class IsSame>
[[gnu::always_inline]] inline bool send_as_before(Handle h, const iovec& v, Doorbell bell,
                                                  IsSame&& is_same) VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  Engine* const e = f.engine.load(std::memory_order_acquire);
  if (e == nullptr) [[unlikely]]
    return false;
  e->take_lock();  // not acquire(): deferred work of connections can wait
  const bool is_sent = h.is_alive() && f.flow != nullptr && f.udp->shut == 0 &&
                       f.udp_flow().soft_error == 0 && is_same(f) &&
                       (e->udp().send_datagram_here(f.udp_flow(), v, bell) ||
                        e->udp().send_datagram(f.udp_flow(), v, bell));
  e->unlock();
  return is_sent;
}
bool is_to_peer(const File& f) { return f.udp_flow().goes_to_peer; }
bool is_to_same(const File& f, const msghdr& msg) {
  if (msg.msg_name == nullptr) return is_to_peer(f);
  if (msg.msg_namelen < sizeof(sockaddr_in) ||
      f.domain.load(std::memory_order_relaxed) != AF_INET ||
      !is_readable(msg.msg_name, sizeof(sockaddr_in))) [[unlikely]]
    return false;
  uint64_t name;  // family, port, address
  static_assert(offsetof(sockaddr_in, sin_zero) == sizeof name);
  std::memcpy(&name, msg.msg_name, sizeof name);
  return name == f.udp_flow().egress_name;
}

/// One attempt under the engine's lock.
Attempt try_send(File& f, Engine& e, const Endpoint& to, std::span<const iovec> iov,
                 Doorbell bell) {
  UdpFlow& u = f.udp_flow();
  UdpSocket& s = *f.udp;
  const Instant now = Clock::now();
  auto sent = e.udp().send_cached(u, to, iov, bell, now);
  if (sent) [[likely]]
    return {.sent = sent};
  if (sent.error().code == ENOENT) {
    if (s.kernel_dst == to && now < s.kernel_dst_until) return {.sent = {}, .by_kernel = true};
    const auto refuse = [&]() -> Attempt {
      s.kernel_dst = to;
      s.kernel_dst_until = now + kRefusalLife;
      return {.sent = {}, .by_kernel = true};
    };
    if (!s.connected && !may_carry(*f.stack, Role::kUdpSender, f.forced, s.local, to))
      return refuse();
    const SocketOptions& o = s.options;
    const bool v6 = f.domain.load(std::memory_order_relaxed) == AF_INET6;
    uint32_t oif = to.scope != 0 ? to.scope : static_cast<uint32_t>(o.socket.bound_ifindex);
    if (oif == 0 && to.addr.is_multicast())
      oif = static_cast<uint32_t>(v6 ? o.ipv6.mc_ifindex : o.ip.mc_ifindex);
    IpAddr from = s.local.addr;
    if (from.is_multicast()) from = IpAddr();  // of the route (net/ipv4/af_inet.c __inet_bind())
    if (from.is_unspecified() && to.addr.is_multicast() && !v6) from = o.ip.mc_address;
    const auto route = e.next_hops().route({.dst = to.addr,
                                            .src = from,
                                            .oif = IfIndex(oif),
                                            .tos = u.ip.tos,
                                            .proto = IpProto::kUdp,
                                            .mark = u.ip.mark});
    if (!route) return refuse();
    if (!s.connected && is_filtered(*f.stack)) [[unlikely]] {
      const Passage p{.proto = IpProto::kUdp,
                      .local = {route->hop.src, s.local.port, s.local.scope},
                      .remote = to,
                      .interface = route->hop.ifindex,
                      .begins_here = true};
      const auto passes = s.verdicts.find(p, rules_generation(*f.stack));
      if (!passes) return {.sent = {}, .unjudged = p};
      if (!*passes) return refuse();
    }
    const IpAddr src = from.is_unspecified() ? route->hop.src : from;
    sent = e.udp().send(u, *route, {src, s.local.port, s.local.scope}, to, iov, bell, now);
  }
  if (!sent && sent.error().code == EHOSTUNREACH) return {{}, true};
  if (!sent && sent.error().code == EMSGSIZE) return too_big(f, u);
  return {.sent = sent};
}

/// Asks the packet filter about a new destination, with no lock held.
[[gnu::cold, gnu::noinline]] void ask_filter(Handle h, const Passage& p, EngineGuard& guard,
                                             FilePin& pin) VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  pin.pin(f);
  guard.unlock();
  const uint32_t generation = rules_generation(*f.stack);
  const bool passes = may_pass(*f.stack, p).has_value();
  guard.lock();
  if (h.is_alive()) f.udp->verdicts.keep(p, generation, passes);
}

/// The ring or the pool is full; completed transmissions free it. @return errno if the call must
/// end; 0: try again.
[[gnu::cold, gnu::noinline]] int wait_for_room(File& f, Engine& e, bool nonblock,
                                               std::optional<Deadline>& deadline,
                                               const SignalMark& signals, EngineGuard& guard,
                                               FilePin& pin) VIREO_NO_THREAD_ANALYSIS {
  e.ports().flush();
  const Instant now = Clock::now();
  e.poll(now);
  if (nonblock) return EAGAIN;
  if (signals.pending()) return EINTR;
  if (!deadline) deadline = Deadline::after_ns(f.snd_timeout_ns.load(std::memory_order_relaxed));
  if (deadline->passed(now)) return EAGAIN;
  pin.pin(f);
  guard.unlock();
  ::sched_yield();
  guard.lock();
  return 0;
}

/// Sends on a carried socket: until the engine has taken the datagram. nullopt: the kernel's socket
/// must send it.
std::optional<Result<ssize_t>> send_carried(Handle h, Engine& e, const Endpoint& to,
                                            const msghdr& msg, int flags, Doorbell bell) {
  File& f = *h.file;
  const std::span<const iovec> iov(msg.msg_iov, msg.msg_iovlen);
  const SignalMark signals;
  FilePin pin;
  EngineGuard guard(e);
  const bool nonblock = (flags & MSG_DONTWAIT) != 0 || f.nonblock.load(std::memory_order_relaxed);
  std::optional<Deadline> deadline;
  for (;;) {
    if (!h.is_alive()) return fail(EBADF, "send");
    if (f.flow == nullptr) return std::nullopt;
    if ((f.udp->shut & kShutWrite) != 0) return fail(EPIPE, "send");  // no SIGPIPE, as in Linux
    if (const int error = take_error(f); error != 0) return fail(error, "send");
    const Attempt a = try_send(f, e, to, iov, bell);
    if (a.unjudged) [[unlikely]] {
      ask_filter(h, *a.unjudged, guard, pin);
      continue;
    }
    if (a.by_kernel) {
      if (f.udp->cut_at != 0) [[unlikely]]
        let_kernel_cut(h, to);
      return std::nullopt;
    }
    if (a.sent) [[likely]]
      return static_cast<ssize_t>(iov_bytes(iov));
    if (a.sent.error().code != EAGAIN && a.sent.error().code != ENOBUFS)
      return std::unexpected(a.sent.error());
    if (const int error = wait_for_room(f, e, nonblock, deadline, signals, guard, pin); error != 0)
      return fail(error, "send");
  }
}

/// Sends by the engine, without ancillary data. nullopt: the kernel's socket must send.
std::optional<Result<ssize_t>> send_here(Handle h, const msghdr& msg, int flags, Doorbell bell) {
  File& f = *h.file;
  const Mode mode = f.mode.load(std::memory_order_acquire);
  if (mode != Mode::kCarried && mode != Mode::kUndecided) return std::nullopt;
  if (msg.msg_name != nullptr)
    if (const int error = address_error(static_cast<const sockaddr*>(msg.msg_name),
                                        std::min<socklen_t>(msg.msg_namelen, kMaxName)))
      return fail(error, "send");
  const auto to = destination(f, msg);
  if (!to || is_for_kernel(f, flags, *to)) return std::nullopt;
  if (mode == Mode::kUndecided && !first_send(h, *to)) return std::nullopt;
  const std::span<const iovec> iov(msg.msg_iov, msg.msg_iovlen);
  if (iov_bytes(iov) > kMaxDatagram) return std::nullopt;  // EMSGSIZE
  if (!is_readable(iov)) return fail(EFAULT, "send");
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) [[unlikely]]
    return fail(EBADF, "send");  // closed by another thread
  return send_carried(h, *engine, *to, msg, flags, bell);
}

/// A send with ancillary data, or of a socket with reports.
[[gnu::cold, gnu::noinline]] Result<ssize_t> send_reported(Handle h, const msghdr& msg, int flags,
                                                           Doorbell bell) {
  File& f = *h.file;
  const Mode mode = f.mode.load(std::memory_order_acquire);
  auto [asks, is_kernels] = send_reports::asks_of_datagram(f.udp->options, msg, flags);
  if (mode == Mode::kKernel || (asks.stamps != 0 && fd_table().reports_of(f) == nullptr))
    return kernel_sendmsg(h, msg, flags);
  send_reports::begin_datagram(f, asks);
  std::optional<Result<ssize_t>> sent;
  if (!is_kernels) {
    send_reports::t_sending = &asks;
    sent = send_here(h, msg, flags, bell);
    send_reports::t_sending = nullptr;
  }
  // A copy is made in any case, and counted here.
  const bool completes =
      asks.is_zerocopy && f.is_carried() && iov_bytes({msg.msg_iov, msg.msg_iovlen}) != 0;
  if (!sent) {
    sent = kernel_sendmsg(h, msg, completes ? flags & ~MSG_ZEROCOPY : flags);
    if (*sent) send_reports::kernel_sends(f, asks);
  }
  if (!*sent)
    send_reports::undo_datagram(f, asks);
  else if (completes)
    send_reports::end_datagram(f, asks);
  return *sent;
}

/// The general send().
[[gnu::noinline]] Result<ssize_t> send_any(Handle h, const msghdr& msg, int flags, Doorbell bell) {
  if (h->udp->reports_sends || msg.msg_controllen != 0) [[unlikely]]
    return send_reported(h, msg, flags, bell);
  if (auto sent = send_here(h, msg, flags, bell)) return *sent;
  return kernel_sendmsg(h, msg, flags);
}

// A separate function, so that the common case does not pay for the message header.
[[gnu::noinline]] Result<ssize_t> send_any_bytes(Handle h, std::span<const iovec> iov, int flags) {
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(iov.data());
  m.msg_iovlen = iov.size();
  return send_any(h, m, flags, Doorbell::kNow);
}

}  // namespace

void flush(Handle h) {
  Engine* e = h->engine.load(std::memory_order_acquire);
  if (e == nullptr) return;
  const EngineGuard guard(*e);
  e->ports().flush();
}

[[gnu::hot]] Result<ssize_t> send(Handle h, const msghdr& msg, int flags, Doorbell bell) {
  if (h->mode.load(std::memory_order_acquire) == Mode::kCarried && msg.msg_iovlen == 1 &&
      msg.msg_controllen == 0 && (flags & ~kPlainFlags) == 0 &&
      send_as_before(h, *msg.msg_iov, bell, [&](const File& f) { return is_to_same(f, msg); }))
      [[likely]]
    return static_cast<ssize_t>(msg.msg_iov->iov_len);
  return send_any(h, msg, flags, bell);
}

[[gnu::hot]] Result<ssize_t> send(Handle h, std::span<const iovec> iov, int flags) {
  if (iov.size() == 1 && (flags & ~kPlainFlags) == 0 &&
      send_as_before(h, iov[0], Doorbell::kNow, is_to_peer)) [[likely]]
    return static_cast<ssize_t>(iov[0].iov_len);
  return send_any_bytes(h, iov, flags);
}

}  // namespace vireo::udp_socket
