// A carried TCP connection as the program sees it: connect, shutdown, errors, readiness. Behaviour
// is Linux's (net/ipv4/af_inet.c inet_stream_connect, inet_shutdown; net/ipv4/tcp.c tcp_poll); data
// transfer is in tcp_recv.cpp and tcp_send.cpp.
#include "stack/sock/tcp_socket.h"

#include <netinet/tcp.h>

#include "stack/sock/blocking.h"
#include "stack/sock/cancel.h"
#include "stack/sock/carriage.h"
#include "stack/sock/fast_open.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/listener.h"
#include "stack/sock/options/options.h"
#include "stack/sock/packet_filter.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/urgent.h"

namespace vireo::tcp_socket {
namespace {

using tcp::State;

ReadyBits bits_of(tcp::Effects e) {
  using tcp::Effects;
  ReadyBits bits = 0;
  if (has(e, Effects::kReadable)) bits |= kReadyIn;
  if (has(e, Effects::kWritable | Effects::kConnected)) bits |= kReadyOut;
  if (has(e, Effects::kPeerClosed)) bits |= kReadyIn | EPOLLRDHUP;
  if (has(e, Effects::kError)) bits |= EPOLLERR | EPOLLHUP | EPOLLRDHUP | kReadyIn | kReadyOut;
  if (has(e, Effects::kClosed)) bits |= EPOLLHUP | EPOLLRDHUP | kReadyIn | kReadyOut;
  if (has(e, Effects::kUrgentByte)) bits |= EPOLLPRI | kReadyIn;
  return bits;
}

}  // namespace

void on_effects(TcpFlow& flow, tcp::Effects e) {
  File& f = *static_cast<File*>(flow.owner);
  f.stats->tcp_state = static_cast<uint8_t>(tcp::state(flow.tcb));
  if (e == tcp::Effects::kReadable) [[likely]] {
    f.ready.notify(kReadyIn);
    return;
  }
  if (has(e, tcp::Effects::kUrgent)) [[unlikely]]
    send_sigurg(f);
  if (const ReadyBits bits = bits_of(e); bits != 0) f.ready.notify(bits);
}

int take_error(File& f) noexcept {
  TcpSocket& s = f.tcp;
  if (s.error_taken || f.flow == nullptr) return 0;
  const int error = tcp::error(f.tcp_flow().tcb);
  if (error != 0) s.error_taken = true;
  return error;
}

ReadyBits readiness(const File& f, ReadyBits asked) noexcept {
  const TcpSocket& s = f.tcp;
  tcp::Tcb& t = f.tcp_flow().tcb;
  const State state = tcp::state(t);
  const bool dead = state == State::kClosed;
  if (s.undone) [[unlikely]] {
    const bool is_error = (!s.error_taken && tcp::error(t) != 0) || (s.shut & kHasReports) != 0;
    return EPOLLHUP | kReadyOut | (is_error ? EPOLLERR : ReadyBits{0});
  }
  constexpr uint8_t kBoth = kShutRead | kShutWrite;
  const auto shut = static_cast<uint8_t>(dead                  ? s.shut | kBoth
                                         : tcp::peer_closed(t) ? s.shut | kShutRead
                                                               : s.shut);
  ReadyBits bits = 0;
  if (shut != 0) [[unlikely]] {
    if ((shut & kBoth) == kBoth) bits |= EPOLLHUP;
    if ((shut & kShutRead) != 0) bits |= kReadyIn | EPOLLRDHUP;
    if ((shut & kHasReports) != 0) bits |= EPOLLERR;
  }
  if (!tcp::is_opening(t)) {
    auto least = static_cast<uint32_t>(std::max(s.options->socket.rcvlowat, 1));
    if (const tcp::Urgent u = tcp::urgent(t); u != tcp::Urgent::kNone) [[unlikely]] {
      if (u == tcp::Urgent::kThere) bits |= EPOLLPRI;
      // The urgent byte alone does not count as readable.
      if (s.options->socket.oobinline == 0 && tcp::bytes_to_mark(t) == 0) ++least;
    }
    if (tcp::has_readable(t, least)) bits |= kReadyIn;
    if ((asked & kReadyOut) != 0 && ((shut & kShutWrite) != 0 || tcp::is_writable(t)))
      bits |= kReadyOut;
  } else if (tcp::is_syn_deferred(t)) {
    bits |= kReadyOut;  // the SYN waits for the first data (tcp(7) TCP_FASTOPEN_CONNECT)
  }
  if (!s.error_taken && tcp::error(t) != 0) bits |= EPOLLERR;
  return bits;
}

namespace {

/// Whether the port that the kernel chooses is this socket's alone, and so can be leased later.
bool is_exclusive(const SocketOptions& o) {
  return o.socket.reuse_addr == 0 && o.socket.reuse_port == 0 && o.socket.bound_ifindex == 0;
}

uint32_t scope_of(const IpAddr& a, IfIndex link) {
  return !a.is_v4() && a.is_link_local() ? link.value() : 0;
}

/// Binds the shadow to a local port, so that the kernel gives it to no other socket. `link`: the
/// connection's interface, which is the scope of a link-local address.
Result<Endpoint> bind_shadow(File& f, int fd, const IpAddr& src, IfIndex link) {
  TcpSocket& s = f.tcp;
  f.touch();
  auto name = kernel_name(fd);
  if (!name) return name;
  const bool is_any = name->addr.is_unspecified();
  if (is_any) s.has_drawn_source = true;
  if (name->port == 0) {
    // With IP_BIND_ADDRESS_NO_PORT the program may have bound an address: only the port is missing.
    const Endpoint want =
        is_any ? Endpoint{src, 0, scope_of(src, link)} : Endpoint{name->addr, 0, name->scope};
    const auto set_no_port = [&](int on) {
      if (s.options->ip.bind_no_port != 0)
        (void)libc().setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    };
    set_no_port(0);
    sockaddr_storage sa{};
    const socklen_t len = want.to_sockaddr(sa, f.domain.load(std::memory_order_relaxed));
    if (libc().bind(fd, reinterpret_cast<const sockaddr*>(&sa), len) != 0)
      return fail_errno("bind");
    set_no_port(1);
    name = kernel_name(fd);
    if (!name) return name;
    if (is_any && is_exclusive(*s.options)) s.port = PortOrigin::kDrawn;
  }
  if (name->addr.is_unspecified()) {
    name->addr = src;
    name->scope = scope_of(src, link);
  }
  return name;
}

}  // namespace

RouteRequest way_to(const File& f, const Endpoint& local, const Endpoint& to) {
  const SocketOptions& o = *f.tcp.options;
  const IpSettings ip = ip_settings(o, !to.addr.is_v4());
  const IfIndex bound = bound_interface(o);
  return {.dst = to.addr,
          .src = local.addr,
          .oif = bound != IfIndex() ? bound : IfIndex(to.scope),
          .tos = ip.tos,
          .mark = ip.mark,
          .hears = true};
}

namespace {

/// Route, port, rule, SYN. Control lock held, engine's not. @return the local address.
Carried<Endpoint> carry(File& f, int fd, const Endpoint& local, const Endpoint& to,
                        const FastConnect* fast) {
  TcpSocket& s = f.tcp;
  const IpSettings ip = ip_settings(*s.options, !to.addr.is_v4());
  const RouteRequest way = way_to(f, local, to);
  Engine* const own = f.engine.load(std::memory_order_relaxed);
  const auto engine =
      own != nullptr ? Carried<Engine*>(own) : f.stack->engine_for({.local = local, .way = &way});
  if (!engine) return std::unexpected(engine.error());
  Engine& e = **engine;
  look_at_filter(*f.stack);
  e.acquire();
  const auto route = e.next_hops().route(way);
  Carried<void> pass;
  if (route && is_filtered(*f.stack)) [[unlikely]] {
    e.unlock();
    pass = may_pass(*f.stack, {.local = {route->hop.src, local.port, local.scope},
                               .remote = to,
                               .interface = route->hop.ifindex,
                               .begins_here = true});
    e.acquire();
  }
  std::optional<PortLease> lease;
  if (route && pass && local.port == 0 && local.addr.is_unspecified() &&
      s.options->ip.port_range == 0)
    lease = e.tcp().lease_port(*route, Clock::now());
  e.unlock();
  if (!route) return std::unexpected(route.error());
  if (!pass) return std::unexpected(pass.error());
  if (lease)
    s.port = PortOrigin::kLeased;
  else if (s.port == PortOrigin::kLeased)
    s.port = PortOrigin::kProgram;
  if (lease) s.has_drawn_source = true;
  const auto from = lease ? Result<Endpoint>(lease->local)
                          : bind_shadow(f, fd, route->hop.src, route->hop.ifindex);
  if (!from) return std::unexpected(Refusal{Carriage::kDevice, from.error().code, "source port"});

  const EngineGuard guard(e);
  const Instant now = Clock::now();
  const Endpoint peer{to.addr, to.port, way.oif.value()};
  const auto flow = e.tcp().connect(*route, *from, peer, s.options.config(), ip, &f, *f.stats, now,
                                    fast, std::move(lease), s.port);
  if (!flow) return std::unexpected(flow.error());
  (*flow)->port_origin = s.port;
  (*flow)->reuse_addr = s.options->socket.reuse_addr != 0;
  (*flow)->reuse_port = s.options->socket.reuse_port != 0;
  if (s.options->tcp.quickack == 0) tcp::set_quickack((*flow)->tcb, false, now);
  f.flow = *flow;
  send_reports::follow_new(f, e);
  f.stats->tcp_state = static_cast<uint8_t>(tcp::state((*flow)->tcb));
  f.engine.store(&e, std::memory_order_release);
  s.link = Link::kConnecting;
  s.error_taken = false;
  s.undone = false;
  s.shut &= kHasReports;
  // Pairs with the acquire in is_carried(): the flow is in place.
  f.mode.store(Mode::kCarried, std::memory_order_release);
  return *from;
}

}  // namespace

Result<void> finish_connect(Handle h, Engine& e, const SignalMark& signals, bool first,
                            bool nonblock, FilePin& pin) VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  TcpSocket& s = f.tcp;
  const auto opening = [&] { return f.flow != nullptr && tcp::is_opening(f.tcp_flow().tcb); };
  if (s.link == Link::kConnected) return fail(EISCONN, "connect");
  if (f.flow != nullptr && tcp::is_syn_deferred(f.tcp_flow().tcb)) {
    if (first) return {};
    return fail(EISCONN, "connect");
  }
  if (opening()) {
    if (nonblock) {
      e.poll_to_return(Clock::now());
      // As in Linux, the call that starts a connection does not return its outcome, however fast
      // that is known.
      if (first) return fail(EINPROGRESS, "connect");
      if (opening()) return fail(EALREADY, "connect");
    } else {
      pin.pin(f);
      const WaitFor what{h, Deadline::after_ns(f.snd_timeout_ns.load(std::memory_order_relaxed))};
      const auto woken = wait_until(e, what, signals, [&] { return !opening(); });
      if (!woken)
        return fail(
            woken.error().code == EAGAIN ? (first ? EINPROGRESS : EALREADY) : woken.error().code,
            "connect");
    }
  }
  if (f.flow == nullptr && f.mode.load(std::memory_order_relaxed) == Mode::kKernel)
    return {};  // established, and handed over
  if (f.flow == nullptr) return fail(ECONNABORTED, "connect");
  if (tcp::state(f.tcp_flow().tcb) == State::kClosed) {
    const int error = take_error(f);
    s.link = Link::kUnconnected;
    s.undone = true;
    s.shut &= kHasReports;
    return fail(error != 0 ? error : ECONNABORTED, "connect");
  }
  s.link = Link::kConnected;
  return {};
}

namespace {

/// Ends the connection as Linux's tcp_disconnect(): notifies the peer, and leaves ECONNRESET for
/// the program if the end was not orderly. Engine's lock held.
void undo(File& f, Engine& e, Instant now) {
  TcpSocket& s = f.tcp;
  tcp::Tcb& t = f.tcp_flow().tcb;
  const State state = tcp::state(t);
  const bool is_told = state != State::kClosed && state != State::kClosing &&
                       state != State::kLastAck && state != State::kTimeWait;
  if (is_told) {
    tcp::recv_queue(t).clear();
    (void)(state == State::kSynSent ? tcp::fail(t, ECONNRESET) : tcp::evict(t, ECONNRESET));
    s.error_taken = false;
  } else if (state != State::kClosed) {
    tcp::abort(t, now);
  }
  e.tcp().progress(f.tcp_flow(), now);
  s.link = Link::kUnconnected;
  s.undone = true;
  s.shut &= kHasReports;
  f.stats->tcp_state = static_cast<uint8_t>(tcp::state(t));
}

/// Closes the flow of a socket that stays open. Control and engine's lock held.
void drop_flow(Handle h, Engine& e, UniqueFd holder, bool reset) {
  File& f = *h.file;
  f.touch();
  // Not set on the kernel socket while the socket was carried (setsockopt()).
  const int nodelay = f.tcp.options->tcp.nodelay;
  (void)libc().setsockopt(h.fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof nodelay);
  e.tcp().close(f.tcp_flow(), std::move(holder), reset, Clock::now());
  f.flow = nullptr;
  // Reports stay to be read, and no more come.
  if (SendReports* const r = fd_table().reports_of(f); r != nullptr) r->marks.clear();
  f.mode.store(Mode::kUndecided, std::memory_order_release);
  f.tcp.link = Link::kUnconnected;
  f.tcp.shut &= kHasReports;
  f.tcp.undone = false;
  if (f.tcp.port == PortOrigin::kLeased) f.tcp.has_drawn_source = false;  // it is unbound again
}

}  // namespace

void renew(Handle h) {
  File& f = *h.file;
  if (f.mode.load(std::memory_order_relaxed) != Mode::kCarried) return;
  Engine& e = *f.engine.load(std::memory_order_relaxed);
  const EngineGuard guard(e);
  if (f.flow != nullptr && f.tcp.undone) drop_flow(h, e, UniqueFd(), false);
}

Result<void> connect(Handle h, const Endpoint& to, const sockaddr* addr, socklen_t len,
                     Opening how) {
  File& f = *h.file;
  const SignalMark signals;
  FilePin pin;
  bool first = false;
  {
    const LockGuard control(f.control);
    if (!h.is_alive()) return fail(EBADF, "connect");
    renew(h);
    const Mode mode = f.mode.load(std::memory_order_relaxed);
    if (mode == Mode::kVoid) return fail(EISCONN, "connect");
    if (mode == Mode::kListening) return fail(EISCONN, "connect");
    if (mode == Mode::kKernel) {
      pin.pin(f);
    } else if (mode == Mode::kUndecided) {
      first = true;
      // A socket that was never bound has no local address.
      const auto local =
          f.is_pristine()
              ? Endpoint{f.domain.load(std::memory_order_relaxed) == AF_INET ? IpAddr::any_v4()
                                                                             : IpAddr(),
                         0}
              : kernel_name(h.fd).value_or(Endpoint{});
      Carried<Endpoint> carried = local;
      if (const auto may = may_carry(*f.stack, Role::kTcpClient, f.forced, local, to); !may) {
        carried = std::unexpected(may.error());
      } else {
        const FastConnect wish = fast_connect(f, how.for_data);
        const bool fast = how.for_data || f.tcp.options->tcp.fastopen_connect != 0;
        carried = carry(f, h.fd, local, to, fast ? &wish : nullptr);
      }
      // The kernel must not connect either: its socket does not know Vireo's connection.
      if (!carried && carried.error().why == Carriage::kDevice &&
          carried.error().err == EADDRNOTAVAIL)
        return fail(EADDRNOTAVAIL, "connect");
      if (!carried) {
        pin.pin(f);
        f.mode.store(Mode::kKernel, std::memory_order_release);
        record_kernel(f, carried.error());
        record_address(*f.stats, local, to);
      } else {
        record_carried(f, *carried, to);
        f.stack->watch_over_tcp();
      }
    }
  }
  if (first) f.ready.notify(kModeChanged);
  if (f.mode.load(std::memory_order_acquire) == Mode::kKernel) {
    f.touch();
    if (how.for_data) return {};
    Result<int> done;
    {
      const KernelWait wait;
      done = from_libc(cancelable([&] { return libc().connect(h.fd, addr, len); }), "connect");
    }
    if (first) {
      // Now it has a local address, also after EINPROGRESS.
      const LockGuard control(f.control);
      if (h.is_alive()) record_address(*f.stats, kernel_name(h.fd).value_or(Endpoint{}), to);
    }
    if (!done) return std::unexpected(done.error());
    return {};
  }
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) [[unlikely]]
    return fail(EBADF, "connect");  // closed by another thread
  Engine& e = *engine;
  EngineGuard guard(e);
  if (!h.is_alive()) return fail(EBADF, "connect");
  if (how.for_data && f.flow != nullptr && tcp::is_syn_deferred(f.tcp_flow().tcb)) return {};
  return finish_connect(h, e, signals, first, how.nonblock, pin);
}

Result<void> disconnect(Handle h, const sockaddr* addr, socklen_t len) {
  File& f = *h.file;
  {
    const LockGuard control(f.control);
    if (!h.is_alive()) return fail(EBADF, "connect");
    if (f.mode.load(std::memory_order_relaxed) == Mode::kListening) listener::stop(f);
    // The reason to stay on the kernel as a listener does not apply to a client.
    const Carriage why = f.forced.why;
    if (why != Carriage::kOption && why != Carriage::kNamespace && why != Carriage::kInherited)
      f.forced = {};
    if (f.mode.load(std::memory_order_relaxed) == Mode::kCarried) {
      Engine& e = *f.engine.load(std::memory_order_relaxed);
      EngineGuard guard(e);
      if (f.flow != nullptr && tcp::state(f.tcp_flow().tcb) == State::kTimeWait && !f.placeholder) {
        drop_flow(h, e, dup_shadow(h.fd), true);
      } else if (f.flow != nullptr) {
        undo(f, e, Clock::now());
        guard.unlock();
        f.ready.notify(kReadyOut | EPOLLHUP | EPOLLERR);
        return {};
      }
    }
  }
  f.ready.notify(kModeChanged);
  f.touch();
  if (kernel::connect(h.fd, addr, len) != 0) return fail_errno("connect");
  if (f.mode.load(std::memory_order_relaxed) == Mode::kKernel)
    f.mode.store(Mode::kUndecided, std::memory_order_release);
  return {};
}

Result<void> shutdown(Handle h, int how) {
  File& f = *h.file;
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) [[unlikely]]
    return fail(EBADF, "shutdown");  // closed by another thread
  Engine& e = *engine;
  {
    const EngineGuard guard(e);
    if (!h.is_alive()) return fail(EBADF, "shutdown");
    if (f.flow == nullptr) return fail(ENOTCONN, "shutdown");
    TcpSocket& s = f.tcp;
    tcp::Tcb& t = f.tcp_flow().tcb;
    const Instant now = Clock::now();
    const State state = tcp::state(t);
    if (state == State::kClosed || state == State::kTimeWait) return fail(ENOTCONN, "shutdown");
    if (state == State::kSynSent) {
      undo(f, e, now);
    } else {
      s.link = Link::kConnected;
      if (how != SHUT_WR) s.shut |= kShutRead;
      if (how != SHUT_RD && (s.shut & kShutWrite) == 0) {
        s.shut |= kShutWrite;
        tcp::shutdown_write(t, now);
        e.tcp().progress(f.tcp_flow(), now);
      }
    }
    f.stats->tcp_state = static_cast<uint8_t>(tcp::state(t));
  }
  f.ready.notify(kReadyIn | kReadyOut | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
  return {};
}

void linger(Handle h) {
  File& f = *h.file;
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) return;
  Engine& e = *engine;
  const SignalMark signals;
  FilePin pin;
  EngineGuard guard(e);
  if (!h.is_alive() || f.flow == nullptr || !f.is_carried()) return;
  const SocketOptions& o = *f.tcp.options;
  if (o.socket.linger_on == 0 || o.socket.linger_s == 0 ||
      f.refs.load(std::memory_order_relaxed) != 1)
    return;
  tcp::Tcb& t = f.tcp_flow().tcb;
  // With unread data the close sends a reset: nothing to wait for.
  if (!tcp::recv_queue(t).empty() || tcp::is_opening(t)) return;
  tcp::shutdown_write(t, Clock::now());
  e.tcp().progress(f.tcp_flow(), Clock::now());
  pin.pin(f);
  const WaitFor what{h, Deadline::after_ns(Duration::s(o.socket.linger_s).ns())};
  // The socket closes, whatever ends the wait (time, a signal).
  (void)wait_until(e, what, signals, [&] {
    const State s = tcp::state(t);
    return s != State::kFinWait1 && s != State::kClosing && s != State::kLastAck &&
           s != State::kEstablished && s != State::kCloseWait;
  });
}

}  // namespace vireo::tcp_socket
