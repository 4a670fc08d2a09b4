// A UDP socket's flow, and how bind, connect and options change it. The kernel socket beneath gets
// every call too: it owns the port, the membership and the error queue, and it receives what is not
// steered to Vireo (loopback, other interfaces).
#include "stack/sock/udp_socket.h"

#include <algorithm>

#include "stack/sock/blocking.h"
#include "stack/sock/carriage.h"
#include "stack/sock/inspection.h"
#include "stack/sock/options/options.h"
#include "stack/sock/packet_filter.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/stamps.h"

namespace vireo::udp_socket {
namespace {

void apply(UdpFlow& u, const UdpSocket& s, const Stack& stack, bool v6) {
  const SocketOptions& o = s.options;
  const int rcvbuf = o.socket.rcvbuf_set ? o.socket.rcvbuf : stack.defaults().rmem_default;
  u.rcv_buf = std::max(static_cast<uint32_t>(std::max(rcvbuf, 0)),
                       static_cast<uint32_t>(stack.settings().rx_bytes_min.value()));
  u.reuse_port = o.socket.reuse_port != 0;
  u.ip = ip_settings(o, v6);
  u.fragment_bytes = static_cast<uint32_t>(o.ipv6.fragment);
  u.multicast_ttl = static_cast<uint8_t>(v6 ? o.ipv6.mc_hops : o.ip.mc_ttl);
  u.is_watched = s.reports_sends;
  u.segment = static_cast<uint16_t>(o.udp.segment);
  u.go_to({});  // the header template must be rebuilt
  u.egress.generation = 0;
}

bool is_v6(const File& f) { return f.domain.load(std::memory_order_relaxed) == AF_INET6; }

constexpr Refusal kChildsPort{Carriage::kInherited, 0, "a child's port"};
constexpr Refusal kKernelsClock{Carriage::kOption, ENOTSUP,
                                "SO_TIMESTAMPING: the clock is the driver's"};

/// Changes fields that are read under the engine's lock. Holder of the control lock.
template <class F>
void change(const File& f, F&& edit) {
  Engine* const e = f.engine.load(std::memory_order_relaxed);
  if (e == nullptr) return edit();
  const EngineGuard guard(*e);
  edit();
}

/// A descriptor of the socket; -1: there is none any more.
int descriptor_of(const File& f) {
  for (int fd = 0; fd < fd_table().end(); ++fd)
    if (fd_table().find(fd).file == &f) return fd;
  return -1;
}

/// Room in the kernel's socket for what our queue has. The kernel charges a page for a frame that
/// it is given. It keeps the room: else nothing more would come in before the program has read.
void make_room(int fd, uint32_t datagrams) {
  constexpr int kCharge = 4608;
  int bytes = 0;  // twice what was set, as SO_RCVBUF says
  socklen_t n = sizeof bytes;
  if (libc().getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &n) != 0) return;
  bytes = bytes / 2 + static_cast<int>(datagrams) * kCharge / 2;
  (void)libc().setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
}

/// `then`: kKernel, or no socket of either.
void close_flow(File& f, Mode then) {
  Engine* e = f.engine.load(std::memory_order_relaxed);
  if (e == nullptr) return;
  const EngineGuard guard(*e);
  const Instant now = Clock::now();
  const bool is_kernels = f.flow != nullptr && then == Mode::kKernel;
  inspection::give_queue_back(f);
  if (is_kernels) {
    const uint32_t waiting = f.udp_flow().queue.buffers();
    const int fd = waiting != 0 || f.udp->hears_once ? descriptor_of(f) : -1;
    if (waiting != 0 && fd >= 0) make_room(fd, waiting);
    e->udp().leave_to_kernel(f.udp_flow(), now, [&] {
      if (fd >= 0) hear_unfiltered(f, fd);
    });
  } else if (f.flow != nullptr) {
    e->udp().close(f.udp_flow());
  }
  f.flow = nullptr;
  f.stats->shared.store(SharedPort::kNo, std::memory_order_relaxed);
  f.mode.store(then, std::memory_order_release);
  if (is_kernels) e->steering().give_strays(now);
}

/// Whether other sockets can get what a socket of these ends receives.
bool may_share(const Endpoint& local, const Endpoint& remote) {
  return remote.port == 0 || local.addr.is_multicast();
}

/// Sets UdpSocket::cookie, once other sockets may have the port. @return whether they may.
bool learn_cookie(UdpSocket& s, int fd) {
  if (s.cookie != 0) return true;  // who came while it was so stays
  if ((s.options.socket.reuse_addr | s.options.socket.reuse_port) == 0) return false;
  uint64_t cookie = 0;
  socklen_t n = sizeof cookie;
  if (libc().getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &n) == 0) s.cookie = cookie;
  return s.cookie != 0;
}

/// The kernel's socket does not hear what the process gets a copy of, as soon as there may be
/// copies.
void hear_once(File& f, int fd) {
  const int filter = f.stack->host_sockets().filter_of_copied();
  f.udp->hears_once =
      filter >= 0 && libc().setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &filter, sizeof filter) == 0;
}

/// After its flow was opened for these ends.
void begin_watch(File& f, int fd, const Endpoint& local, const Endpoint& remote) {
  UdpSocket& s = *f.udp;
  const uint16_t port = s.cookie != 0 && may_share(local, remote) ? local.port : uint16_t{0};
  if (s.watched_port == port) return;
  end_watch(f);
  if (port == 0) return;
  s.watched_port = port;
  if (!s.hears_once) hear_once(f, fd);
  if (f.stack->host_sockets().ports.begin(port, s.cookie)) f.stack->wake_helper();
}

/// The socket's engine, chosen if it has none. Control lock held.
Carried<Engine*> engine_of(File& f, const Endpoint& local, const RouteRequest* way = nullptr) {
  if (Engine* const own = f.engine.load(std::memory_order_relaxed)) return own;
  UdpSocket& s = *f.udp;
  if (s.home != nullptr) return s.home;
  const auto chosen =
      f.stack->engine_for({.proto = IpProto::kUdp,
                           .local = local,
                           .shares_port = local.port != 0 && (s.options.socket.reuse_addr != 0 ||
                                                              s.options.socket.reuse_port != 0),
                           .way = way});
  if (chosen) s.home = *chosen;
  return chosen;
}

/// Opens the flow for `local`, replacing the present one, whose queue and error it takes over.
/// `is_asked_first`: no peer knows its port before it sends.
Carried<void> open_flow(File& f, int fd, const Endpoint& local, const Endpoint& remote,
                        bool is_asked_first) {
  const auto engine = engine_of(f, local);
  if (!engine) return std::unexpected(engine.error());
  Engine& e = **engine;
  UdpSocket& s = *f.udp;
  look_at_filter(*f.stack);
  const uint32_t rules = rules_generation(*f.stack);
  const Passage passage{.proto = IpProto::kUdp,
                        .local = local,
                        .remote = remote,
                        .v6only = s.options.ipv6.v6only != 0,
                        .interface = bound_interface(s.options),
                        .begins_there = !is_asked_first,
                        .begins_here = remote.port != 0};
  auto pass = may_pass(*f.stack, passage);
  if (!pass) return pass;
  std::vector<net::DiagSocket> sharers;
  const bool is_watched = learn_cookie(s, fd) && may_share(local, remote);
  if (is_watched) sharers = f.stack->host_sockets().ports.look(local.port);
  if (is_watched && !s.hears_once) hear_once(f, fd);
  const EngineGuard guard(e);
  pass = may_still_pass(*f.stack, passage, rules);
  if (!pass) return pass;
  if (only_kernel_has_clock(e, stamp_flags(s.options))) return std::unexpected(kKernelsClock);
  if (f.flow != nullptr) catch_up(e);
  if (is_watched) e.udp().heed_sharers(local.port, std::move(sharers), s.cookie);
  auto made =
      e.udp().open(local, remote, s.options.ipv6.v6only != 0, &f, *f.stats,
                   IfIndex(static_cast<uint32_t>(s.options.socket.bound_ifindex)), s.cookie);
  if (!made) return std::unexpected(made.error());
  UdpFlow& u = **made;
  if (f.flow != nullptr) {
    UdpFlow& old = f.udp_flow();
    u.queue = std::move(old.queue);
    u.queue_truesize = old.queue_truesize;
    u.soft_error = old.soft_error;
    e.udp().close(old);
  }
  e.ports().ask_arrivals(u, asks_arrivals(s.options));
  apply(u, s, *f.stack, is_v6(f));
  e.udp().hear_all(u, s.options.ip.mc_all != 0, s.options.ipv6.mc_all != 0);
  for (const Membership& m : s.groups) (void)e.udp().join(u, m.group, m.ifindex, m.sources);
  if (u.soft_error == 0 && inspection::has_inspector(f)) u.soft_error = inspection::kInspected;
  f.flow = &u;
  f.engine.store(&e, std::memory_order_release);
  s.kernel_dst_until = {};
  // Pairs with the acquire in is_carried(): the flow is in place.
  f.mode.store(Mode::kCarried, std::memory_order_release);
  return {};
}

}  // namespace

void prepare(File& f, const Endpoint& local) {
  if (!may_carry(*f.stack, Role::kUdpReceiver, f.forced, local, {})) return;
  const auto engine = engine_of(f, local);
  if (!engine) return;
  const EngineGuard guard(**engine);
  if (local.addr.is_unspecified())
    (void)(*engine)->ports().open_all();
  else
    (void)(*engine)->ports().of_address(local.addr);
}

void bound(File& f, int fd) {
  UdpSocket& s = *f.udp;
  const auto name = kernel_name(fd);
  if (!name || name->port == 0) return;
  change(f, [&] {
    s.bound = true;
    s.local = *name;
  });
  Carried<void> carried = may_carry(*f.stack, Role::kUdpReceiver, f.forced, *name, {});
  if (f.stack->family().heirs.has_udp_port(name->port)) carried = std::unexpected(kChildsPort);
  if (carried) carried = open_flow(f, fd, *name, {}, false);
  if (carried) {
    begin_watch(f, fd, *name, {});
    record_carried(f, *name, {});
  } else {
    f.mode.store(Mode::kKernel, std::memory_order_release);
    record_kernel(f, carried.error());
    record_address(*f.stats, *name, {});
  }
  f.ready.notify(kModeChanged);
}

Result<void> connect(Handle h, const sockaddr* addr, socklen_t len) {
  File& f = *h.file;
  const LockGuard control(f.control);
  if (!h.is_alive()) return fail(EBADF, "connect");
  UdpSocket& s = *f.udp;
  const bool had_port = s.bound;
  // The kernel first: it filters its own queue, chooses source address and port, and validates.
  if (kernel::connect(h.fd, addr, len) != 0) return fail_errno("connect");
  const auto name = kernel_name(h.fd);
  if (!name) return std::unexpected(name.error());
  const auto peer = kernel_peer(h.fd);
  change(f, [&] {
    s.local = *name;
    s.bound = name->port != 0;
    s.connected = peer.has_value();
    s.remote = peer.value_or(Endpoint{});
  });
  if (!s.connected) {  // AF_UNSPEC: the association is dissolved, the port may be kept
    if (s.bound)
      bound(f, h.fd);
    else
      close_flow(f, Mode::kUndecided);
    if (!s.bound) end_watch(f);
    return {};
  }
  Carried<void> carried = may_carry(*f.stack, Role::kUdpConnect, f.forced, s.local, s.remote);
  if (carried) {
    const RouteRequest way{
        .dst = s.remote.addr,
        .src = s.local.addr.is_multicast() ? IpAddr() : s.local.addr,
        .oif = IfIndex(s.options.socket.bound_ifindex != 0
                           ? static_cast<uint32_t>(s.options.socket.bound_ifindex)
                           : s.remote.scope),
        .tos = static_cast<uint8_t>(s.options.ip.tos),
        .proto = IpProto::kUdp};
    const auto engine = engine_of(f, s.local, &way);
    if (!engine) {
      carried = std::unexpected(engine.error());
    } else {
      const EngineGuard guard(**engine);
      const auto route = (*engine)->next_hops().route(way);
      if (!route) carried = std::unexpected(route.error());
    }
  }
  if (carried) carried = open_flow(f, h.fd, s.local, s.remote, !had_port);
  if (carried) {
    begin_watch(f, h.fd, s.local, s.remote);
    record_carried(f, s.local, s.remote);
  } else {
    close_flow(f, Mode::kKernel);
    end_watch(f);
    f.mode.store(Mode::kKernel, std::memory_order_release);
    record_kernel(f, carried.error());
    record_address(*f.stats, s.local, s.remote);
  }
  f.ready.notify(kModeChanged);
  return {};
}

void give_up(File& f, const Refusal& why, Forced forced) {
  change(f, [&] { f.forced = forced; });
  if (!f.is_carried()) return;
  close_flow(f, Mode::kKernel);
  end_watch(f);
  record_kernel(f, why);
  f.ready.notify(kModeChanged);
}

void catch_up(Engine& e) noexcept VIREO_NO_THREAD_ANALYSIS {
  constexpr int kTurns = 64;  // under a flood there is always more
  for (int i = 0; i < kTurns && e.poll_for_helper(Clock::now()); ++i) {
  }
}

void end_watch(File& f) {
  const uint16_t port = std::exchange(f.udp->watched_port, uint16_t{0});
  if (port == 0 || !f.stack->host_sockets().ports.end(port, f.udp->cookie)) return;
  f.stack->for_each_engine([&](Engine& e) {
    const EngineGuard guard(e);
    e.udp().forget_sharers(port);
  });
}

bool hear_unfiltered(File& f, int fd) {
  if (!std::exchange(f.udp->hears_once, false)) return false;
  const int unused = 0;
  (void)libc().setsockopt(fd, SOL_SOCKET, SO_DETACH_BPF, &unused, sizeof unused);
  return true;
}

void apply_options(File& f, int fd) {
  if (!f.is_carried()) return;
  UdpSocket& s = *f.udp;
  if (s.watched_port != 0 && !s.hears_once) hear_once(f, fd);
  Engine& e = *f.engine.load(std::memory_order_relaxed);
  const bool has_company = s.cookie == 0 && learn_cookie(s, fd) && may_share(s.local, s.remote);
  std::vector<net::DiagSocket> sharers;
  if (has_company) sharers = f.stack->host_sockets().ports.look(s.local.port);
  Carried<void> heard;
  {
    const EngineGuard guard(e);
    if (f.flow == nullptr) return;
    const SocketOptions& o = s.options;
    const UdpFlow& u = f.udp_flow();
    if (u.hears_all4 != (o.ip.mc_all != 0) || u.hears_all6 != (o.ipv6.mc_all != 0)) catch_up(e);
    f.udp_flow().cookie = s.cookie;
    if (has_company) e.udp().heed_sharers(s.local.port, std::move(sharers));
    heard = e.udp().hear_by(f.udp_flow(), IfIndex(static_cast<uint32_t>(o.socket.bound_ifindex)));
    e.ports().ask_arrivals(f.udp_flow(), asks_arrivals(o));
    apply(f.udp_flow(), s, *f.stack, is_v6(f));
    e.udp().hear_all(f.udp_flow(), o.ip.mc_all != 0, o.ipv6.mc_all != 0);
    if (heard && only_kernel_has_clock(e, stamp_flags(o))) heard = std::unexpected(kKernelsClock);
  }
  if (heard) {
    if (has_company) begin_watch(f, fd, s.local, s.remote);
    return;
  }
  const Refusal why = heard.error();
  give_up(f, why, {why.why});
}

void on_datagram(UdpFlow& flow) {
  File& f = *static_cast<File*>(flow.owner);
  ReadyBits happened = kReadyIn;
  if (flow.soft_error != 0) [[unlikely]] {
    inspection::note(f);
    if (flow.soft_error != inspection::kInspected) happened |= EPOLLERR;
  }
  f.ready.notify(happened);
}

int take_error(File& f) noexcept {
  if (f.flow == nullptr || f.udp_flow().soft_error == 0) [[likely]]
    return 0;
  const int rest = inspection::has_inspector(f) ? inspection::kInspected : 0;
  return std::max(std::exchange(f.udp_flow().soft_error, rest), 0);
}

ReadyBits readiness(const File& f) noexcept {
  const UdpFlow& u = f.udp_flow();
  const uint8_t shut = f.udp->shut;
  ReadyBits bits = kReadyOut | EPOLLWRBAND;
  if (u.soft_error == 0) [[likely]] {
    if (!u.queue.empty()) bits |= kReadyIn;
  } else {
    if (inspection::is_readable_now(f)) bits |= kReadyIn;
    if (u.soft_error != inspection::kInspected) bits |= EPOLLERR;
  }
  if (shut == 0) [[likely]]
    return bits;
  constexpr uint8_t kBoth = kShutRead | kShutWrite;
  if ((shut & kShutRead) != 0) bits |= kReadyIn | EPOLLRDHUP;
  if ((shut & kBoth) == kBoth) bits |= EPOLLHUP;
  if ((shut & kHasReports) != 0)
    bits |= EPOLLERR | (f.udp->options.socket.select_err_queue != 0 ? EPOLLPRI : 0U);
  return bits;
}

// As net/ipv4/af_inet.c inet_shutdown: a socket without a peer is shut down, too, and the call
// returns ENOTCONN.
Result<void> shutdown(Handle h, int how) {
  File& f = *h.file;
  Result<void> done;
  {
    const LockGuard control(f.control);
    if (!h.is_alive()) return fail(EBADF, "shutdown");
    if (libc().shutdown(h.fd, how) != 0) done = fail_errno("shutdown");
    if (!done && done.error().code != ENOTCONN) return done;
    change(f, [&] {
      if (how != SHUT_WR) f.udp->shut |= kShutRead;
      if (how != SHUT_RD) f.udp->shut |= kShutWrite;
    });
  }
  f.ready.notify(kReadyIn | EPOLLRDHUP | EPOLLHUP);
  return done;
}

}  // namespace vireo::udp_socket
