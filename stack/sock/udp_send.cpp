// Sending datagrams: by the flow's cached egress, else by a new route, else by the kernel's socket,
// which has the same port. The kernel also sends the rare cases: unresolved neighbours, fragments,
// broadcast, ancillary data unknown to us, malformed calls (whose errno is then the kernel's).
#include <sched.h>

#include <atomic>
#include <utility>

#include "core/sleep.h"
#include "stack/engine/fast_path/send_plain.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/carriage.h"
#include "stack/sock/dummy_send.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/iov.h"
#include "stack/sock/options/values.h"
#include "stack/sock/packet_filter.h"
#include "stack/sock/send_control.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/udp_socket.h"
#include "stack/sock/udp_way.h"

namespace vireo::udp_socket {
namespace {

constexpr size_t kMaxDatagram = 65'507;
constexpr socklen_t kMaxName = sizeof(sockaddr_storage);  // the kernel ignores the rest
/// How long a destination that the engine refused goes to the kernel.
constexpr Duration kRefusalLife = Duration::s(1);

/// UDP_MAX_SEGMENTS: how many datagrams UDP_SEGMENT makes of a message at most. Newer kernels have
/// 128: the first message of more than 64 goes to the kernel, which knows.
constexpr uint32_t kOldMostSegments = 64, kNewMostSegments = 128;
constinit std::atomic<uint32_t> g_most_segments{kOldMostSegments};

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
  bool asks_segments = false;            ///< by_kernel: does it make so many?
};

/// A datagram above the path's MTU, or IPV6_MTU. The kernel fragments it, or refuses it if the
/// program forbids that; but only Vireo knows of a path MTU below the link's. `whole`: ancillary
/// data or UDP_SEGMENT forbids it.
Attempt too_big(File& f, const UdpFlow& u, bool whole) {
  UdpSocket& s = *f.udp;
  if (u.path_mtu >= u.egress.link_mtu) return {.sent = {}, .by_kernel = true};
  if (whole || u.ip.mtu_discover == IP_PMTUDISC_DO) return {.sent = fail(EMSGSIZE, "path MTU")};
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
                       f.udp_flow().soft_error <= 0 && is_same(f) &&
                       (e->udp().send_datagram_here(f.udp_flow(), v, bell) ||
                        e->udp().send_datagram(f.udp_flow(), v, bell));
  e->unlock();
  return is_sent;
}
bool is_to_peer(const File& f) { return f.udp_flow().goes_to_peer; }
[[gnu::always_inline]] inline bool is_to_same(const File& f, const msghdr& msg) {
  if (msg.msg_name == nullptr) return is_to_peer(f);
  if (msg.msg_namelen < sizeof(sockaddr_in) ||
      f.domain.load(std::memory_order_relaxed) != AF_INET ||
      !is_readable(msg.msg_name, sizeof(sockaddr_in))) [[unlikely]]
    return false;
  uint64_t name;  // family, port, address
  static_assert(offsetof(sockaddr_in, sin_zero) == sizeof name);
  std::memcpy(&name, msg.msg_name, sizeof name);
  const uint64_t there = f.udp_flow().egress_name;
  return there != 0 && name == there;
}

/// Sends by a new route. `m.asked` is of `control`.
Attempt send_anew(File& f, Engine& e, const Endpoint& to, const UdpMessage& m,
                  const SendControl* control, Doorbell bell, Instant now) VIREO_REQUIRES(e.lock()) {
  UdpFlow& u = f.udp_flow();
  UdpSocket& s = *f.udp;
  const bool is_asked = m.asked != nullptr;
  if (!is_asked && s.kernel_dst == to && now < s.kernel_dst_until)
    return {.sent = {}, .by_kernel = true};
  const auto refuse = [&]() -> Attempt {
    if (!is_asked) {
      s.kernel_dst = to;
      s.kernel_dst_until = now + kRefusalLife;
    }
    return {.sent = {}, .by_kernel = true};
  };
  const auto oif = interface_for(f, to, m.asked);
  if (!oif) return refuse();
  const auto from = source_for(f, e, to, *oif, control);
  if (!from) return refuse();
  if ((!s.connected || is_asked) &&
      !may_carry(*f.stack, Role::kUdpSender, f.forced, {*from, s.local.port, s.local.scope}, to))
    return refuse();
  const IpSettings& ip = is_asked ? m.asked->ip : u.ip;
  const auto route = e.next_hops().route({.dst = to.addr,
                                          .src = *from,
                                          .oif = *oif,
                                          .tos = ip.tos,
                                          .proto = IpProto::kUdp,
                                          .mark = ip.mark});
  if (!route) return refuse();
  if ((!s.connected || is_asked) && is_filtered(*f.stack)) [[unlikely]] {
    const Passage p{.proto = IpProto::kUdp,
                    .local = {route->hop.src, s.local.port, s.local.scope},
                    .remote = to,
                    .interface = route->hop.ifindex,
                    .begins_here = true};
    const auto passes = s.verdicts.find(p, rules_generation(*f.stack));
    if (!passes) return {.sent = {}, .unjudged = p};
    if (!*passes) return refuse();
  }
  const IpAddr src = from->is_unspecified() ? route->hop.src : *from;
  return {.sent = e.udp().send(u, *route, {src, s.local.port, s.local.scope}, to, m, bell, now)};
}

/// One attempt under the engine's lock. `control`: what the message asks for; null: nothing.
Attempt try_send(File& f, Engine& e, const Endpoint& to, std::span<const iovec> iov,
                 const SendControl* control, Doorbell bell) VIREO_REQUIRES(e.lock()) {
  UdpFlow& u = f.udp_flow();
  const Instant now = Clock::now();
  if (send_reports::t_sending != nullptr) [[unlikely]]
    send_reports::watch_datagram(u);
  UdpMessage m{.data = iov, .segment = u.segment};
  UdpAsked asked;
  if (control != nullptr) [[unlikely]] {
    m.segment = control->segment.value_or(m.segment);
    if (control->names_way) {
      IpSettings ip = u.ip;
      if (to.addr.is_multicast()) ip.ttl = u.multicast_ttl;
      asked = control->asked(ip);
      m.asked = &asked;
    }
  }
  if (m.segment != 0) [[unlikely]]
    if (iov_bytes(iov) > m.segment * g_most_segments.load(std::memory_order_relaxed))
      return {.sent = {}, .by_kernel = true, .asks_segments = true};
  auto sent = e.udp().send_cached(u, to, m, bell, now);
  if (sent) [[likely]]
    return {.sent = sent};
  if (sent.error().code == ENOENT) {
    Attempt anew = send_anew(f, e, to, m, control, bell, now);
    if (anew.by_kernel || anew.unjudged || anew.sent) return anew;
    sent = anew.sent;
  }
  if (sent.error().code == EHOSTUNREACH) return {{}, true};
  if (sent.error().code == EMSGSIZE) {
    const bool is_whole = control != nullptr && control->dont_fragment
                              ? *control->dont_fragment
                              : f.udp->options.ipv6.dontfrag != 0;
    return too_big(f, u, m.segment != 0 || (is_whole && !to.addr.is_v4()));
  }
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
/// must send it; `asks_segments`: see send_by_kernel().
std::optional<Result<ssize_t>> send_carried(Handle h, Engine& e, const Endpoint& to,
                                            const msghdr& msg, const SendControl* control,
                                            int flags, Doorbell bell, bool& asks_segments) {
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
    const Attempt a = try_send(f, e, to, iov, control, bell);
    if (a.unjudged) [[unlikely]] {
      ask_filter(h, *a.unjudged, guard, pin);
      continue;
    }
    if (a.by_kernel) {
      if (f.udp->cut_at != 0) [[unlikely]]
        let_kernel_cut(h, to);
      asks_segments = a.asks_segments;
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

/// By the kernel's socket, which holds what is sent with MSG_MORE until a send without it (udp(7)).
/// `asks_segments`: if it takes this, it makes so many datagrams of one.
Result<ssize_t> send_by_kernel(Handle h, const msghdr& msg, int flags, bool asks_segments) {
  const auto sent = kernel_sendmsg(h, msg, flags);
  if (sent && asks_segments) g_most_segments.store(kNewMostSegments, std::memory_order_relaxed);
  const bool corks = (flags & MSG_MORE) != 0;
  UdpSocket& s = *h->udp;
  Engine* const e = h->engine.load(std::memory_order_acquire);
  if (!sent || s.is_corked == corks) return sent;
  if (e == nullptr) {
    s.is_corked = corks;
    return sent;
  }
  const EngineGuard guard(*e);
  if (!h.is_alive()) return sent;
  s.is_corked = corks;
  if (h->flow != nullptr) h->udp_flow().go_to({});  // the short ways do not ask
  return sent;
}

/// Sends by the engine. nullopt: the kernel's socket must send; `asks_segments`: see
/// send_by_kernel().
std::optional<Result<ssize_t>> send_here(Handle h, const msghdr& msg, int flags, Doorbell bell,
                                         bool& asks_segments) {
  File& f = *h.file;
  const Mode mode = f.mode.load(std::memory_order_acquire);
  if (mode != Mode::kCarried && mode != Mode::kUndecided) return std::nullopt;
  if (msg.msg_name != nullptr)
    if (const int error = address_error(static_cast<const sockaddr*>(msg.msg_name),
                                        std::min<socklen_t>(msg.msg_namelen, kMaxName)))
      return fail(error, "send");
  const auto to = destination(f, msg);
  if (!to || is_for_kernel(f, flags, *to)) return std::nullopt;
  std::optional<SendControl> control;
  if (msg.msg_controllen != 0) [[unlikely]] {
    control = read_send_control(msg, f.domain.load(std::memory_order_relaxed), *to);
    if (!control) return std::nullopt;
  }
  if (mode == Mode::kUndecided && !first_send(h, *to)) return std::nullopt;
  const std::span<const iovec> iov(msg.msg_iov, msg.msg_iovlen);
  if (iov_bytes(iov) > kMaxDatagram) return std::nullopt;  // EMSGSIZE
  if (!is_readable(iov)) return fail(EFAULT, "send");
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) [[unlikely]]
    return fail(EBADF, "send");  // closed by another thread
  return send_carried(h, *engine, *to, msg, control ? &*control : nullptr, flags, bell,
                      asks_segments);
}

/// A send with ancillary data, or of a socket with reports.
[[gnu::cold, gnu::noinline]] Result<ssize_t> send_reported(Handle h, const msghdr& msg, int flags,
                                                           Doorbell bell) {
  File& f = *h.file;
  const Mode mode = f.mode.load(std::memory_order_acquire);
  auto [asks, is_kernels] = send_reports::asks_of_datagram(f.udp->options, msg, flags);
  if (mode == Mode::kKernel) return kernel_sendmsg(h, msg, flags);
  if (asks.stamps != 0 && fd_table().reports_of(f) == nullptr)
    return send_by_kernel(h, msg, flags, false);
  send_reports::begin_datagram(f, asks);
  std::optional<Result<ssize_t>> sent;
  bool asks_segments = false;
  if (!is_kernels) {
    // A signal handler that sends meanwhile puts it back.
    const SendAsks* const outer = std::exchange(send_reports::t_sending, &asks);
    sent = send_here(h, msg, flags, bell, asks_segments);
    send_reports::t_sending = outer;
  }
  // A copy is made in any case, and counted here.
  const bool is_zerocopy = asks.is_zerocopy && iov_bytes({msg.msg_iov, msg.msg_iovlen}) != 0;
  const bool completes = is_zerocopy && f.is_carried();
  if (!sent) {
    sent = send_by_kernel(h, msg, completes ? flags & ~MSG_ZEROCOPY : flags, asks_segments);
    if (*sent) send_reports::kernel_sends(f, asks);
    if (*sent && is_zerocopy && !completes) send_reports::kernel_completes(f);
  }
  if (!*sent)
    send_reports::undo_datagram(f, asks);
  else if (completes)
    send_reports::end_datagram(f, asks);
  return *sent;
}

/// The general send().
[[gnu::noinline]] Result<ssize_t> send_any(Handle h, const msghdr& msg, int flags, Doorbell bell) {
  if ((flags & kDummySend) != 0) [[unlikely]]
    return send_dummy(h, msg);
  if (h->udp->reports_sends || msg.msg_controllen != 0) [[unlikely]]
    return send_reported(h, msg, flags, bell);
  bool asks_segments = false;
  if (auto sent = send_here(h, msg, flags, bell, asks_segments)) return *sent;
  return send_by_kernel(h, msg, flags, asks_segments);
}

// A separate function, so that the common case does not pay for the message header.
[[gnu::noinline]] Result<ssize_t> send_any_bytes(Handle h, std::span<const iovec> iov, int flags) {
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(iov.data());
  m.msg_iovlen = iov.size();
  return send_any(h, m, flags, Doorbell::kNow);
}

/// The general send() of one among several: under the engine's lock, without a doorbell. @return
/// false: nothing was done.
[[gnu::noinline]] bool send_without_wait(Handle h, Engine& e, const msghdr& msg, int flags)
    VIREO_REQUIRES(e.lock()) {
  File& f = *h.file;
  if (f.udp->reports_sends) return false;
  if (msg.msg_name != nullptr && address_error(static_cast<const sockaddr*>(msg.msg_name),
                                               std::min<socklen_t>(msg.msg_namelen, kMaxName)) != 0)
    return false;
  const auto to = destination(f, msg);
  if (!to || to->addr.is_multicast() || is_for_kernel(f, flags, *to)) return false;
  const std::span<const iovec> iov(msg.msg_iov, msg.msg_iovlen);
  if (iov_bytes(iov) > kMaxDatagram || !is_readable(iov)) return false;
  std::optional<SendControl> control;
  if (msg.msg_controllen != 0) {
    control = read_send_control(msg, f.domain.load(std::memory_order_relaxed), *to);
    if (!control || control->asks_report) return false;
  }
  const Attempt a = try_send(f, e, *to, iov, control ? &*control : nullptr, Doorbell::kLater);
  return a.sent && !a.by_kernel && !a.unjudged;
}

/// Sends messages from the first of `all` on, as far as that needs no wait and no kernel. @return
/// how many.
size_t send_row(Handle h, Engine& e, std::span<mmsghdr> all, int flags) VIREO_NO_THREAD_ANALYSIS {
  e.take_lock();  // not acquire(): deferred work of connections can wait
  File& f = *h.file;
  size_t done = 0;
  if (h.is_alive() && f.flow != nullptr && f.udp->shut == 0) {
    for (; done < all.size() && f.udp_flow().soft_error <= 0; ++done) {
      if (!is_writable(&all[done])) break;
      const msghdr& m = all[done].msg_hdr;
      if (sock::message_error(m) != 0) break;
      const bool is_usual =
          m.msg_iovlen == 1 && m.msg_controllen == 0 && is_to_same(f, m) &&
          (e.udp().send_datagram_here(f.udp_flow(), *m.msg_iov, Doorbell::kLater) ||
           e.udp().send_datagram(f.udp_flow(), *m.msg_iov, Doorbell::kLater));
      if (!is_usual && !send_without_wait(h, e, m, flags)) break;
      all[done].msg_len = static_cast<unsigned>(iov_bytes({m.msg_iov, m.msg_iovlen}));
    }
    if (done != 0) e.ports().flush();
  }
  e.unlock();
  return done;
}

}  // namespace

[[gnu::hot]] Result<int> send_many(Handle h, std::span<mmsghdr> all, int flags) {
  size_t done = 0;
  while (done < all.size()) {
    Engine* const e = h->engine.load(std::memory_order_acquire);
    if (h->is_carried() && e != nullptr && (flags & ~kPlainFlags) == 0) [[likely]]
      done += send_row(h, *e, all.subspan(done), flags);
    if (done == all.size()) break;
    mmsghdr& m = all[done];
    const auto send_one = [&]() -> Result<ssize_t> {
      if (!is_writable(&m)) return fail(EFAULT, "sendmmsg");
      if (const int error = sock::message_error(m.msg_hdr); error != 0)
        return fail(error, "sendmmsg");
      return send(h, m.msg_hdr, flags, Doorbell::kNow);
    };
    const auto n = send_one();
    if (!n && done == 0) return std::unexpected(n.error());
    if (!n) break;
    m.msg_len = static_cast<unsigned>(*n);
    ++done;
  }
  return static_cast<int>(done);
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
