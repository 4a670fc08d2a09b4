// bind(2) to getpeername(2): each call is dispatched to TCP, UDP, a listener, or the kernel.
#include <atomic>

#include "core/log.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/listener.h"
#include "stack/sock/options/values.h"
#include "stack/sock/served_by.h"
#include "stack/sock/shadow.h"
#include "stack/sock/tcp_socket.h"
#include "stack/sock/udp_socket.h"

namespace vireo::sock {

[[gnu::cold]] Result<void> take_inherited(Handle h, const char* call) {
  auto done = h->stack->family().inherited.take(h, call);
  static std::atomic<bool> is_said{false};
  if (!done && done.error().code == ENOTCONN && !h->stack->ends_elsewhere() &&
      !is_said.exchange(true))
    log<LogLevel::kWarn>(
        "descriptor {}: another process carries this connection and did not give it to the kernel "
        "({}: ENOTCONN): it was killed, or is stopped; a rule `use os` keeps such connections on "
        "the kernel",
        h.fd, call);
  return done;
}

namespace {

Result<void> told(int error, const char* where) {
  if (error != 0) return fail(error, where);
  return {};
}

Result<void> from_kernel(int returned, const char* where) {
  if (returned != 0) return fail_errno(where);
  return {};
}

/// Whether a carried connection without a kernel socket uses the port, which the kernel cannot
/// know. Control lock held.
bool is_in_use(const File& f, const Endpoint& local) {
  const SocketOptions& o = *f.tcp.options;
  if (o.socket.bound_ifindex != 0)
    return false;  // it may share addresses with sockets of other interfaces
  const BindWish wish{local, o.ipv6.v6only != 0, o.socket.reuse_addr != 0,
                      o.socket.reuse_port != 0};
  bool is_used = false;
  f.stack->for_each_engine([&](Engine& e) {
    const EngineGuard guard(e);
    is_used = is_used || e.tcp().is_in_use(wish);
  });
  return is_used;
}

}  // namespace

Result<void> bind(Handle h, const sockaddr* addr, socklen_t len) {
  File& f = *h.file;
  if (!f.stack->is_owner()) return from_kernel(libc().bind(h.fd, addr, len), "bind");
  (void)use(h, "bind");
  if (const int error = address_error(addr, len); error != 0) return fail(error, "bind");
  const LockGuard control(f.control);
  if (!h.is_alive()) return fail(EBADF, "bind");
  if (kind(h) == FileKind::kTcp) tcp_socket::renew(h);
  const Mode m = mode(h);
  if (f.placeholder || m == Mode::kListening || m == Mode::kVoid ||
      (m == Mode::kCarried && kind(h) == FileKind::kTcp))
    return fail(EINVAL, "bind");
  const auto local = Endpoint::from_sockaddr(addr, len);
  if (local && kind(h) == FileKind::kUdp && m != Mode::kCarried) udp_socket::prepare(f, *local);
  f.touch();
  if (local && kind(h) == FileKind::kTcp && local->port != 0 && is_in_use(f, *local))
    return fail(EADDRINUSE, "bind");
  auto ok = from_kernel(libc().bind(h.fd, addr, len), "bind");
  // The port may be one leased for a next connection.
  if (!ok && ok.error().code == EADDRINUSE && kind(h) == FileKind::kTcp &&
      give_up_leases(*f.stack, local ? local->port : 0))
    ok = from_kernel(libc().bind(h.fd, addr, len), "bind");
  if (!ok) return ok;
  if (kind(h) == FileKind::kUdp && m != Mode::kCarried) udp_socket::bound(f, h.fd);
  return {};
}

Result<void> listen(Handle h, int backlog) {
  if (kind(h) != FileKind::kTcp || !h->stack->is_owner())
    return from_kernel(libc().listen(h.fd, backlog), "listen");
  (void)use(h, "listen");
  return listener::listen(h, backlog);
}

namespace {
bool is_v6only(Handle h) {
  const LockGuard control(h->control);
  return h.is_alive() && h->tcp.options->ipv6.v6only != 0;
}
}  // namespace

Result<void> connect(Handle h, const sockaddr* addr, socklen_t len) {
  if (!h->stack->is_owner()) return from_kernel(libc().connect(h.fd, addr, len), "connect");
  (void)use(h, "connect");
  h->receives_left.store(0, std::memory_order_relaxed);  // it may become another connection
  if (const int error = address_error(addr, len); error != 0) return fail(error, "connect");
  if (kind(h) == FileKind::kUdp) return udp_socket::connect(h, addr, len);
  if (addr == nullptr || len < sizeof(sa_family_t))  // the kernel returns an error
    return from_kernel(libc().connect(h.fd, addr, len), "connect");
  if (addr->sa_family == AF_UNSPEC) return tcp_socket::disconnect(h, addr, len);
  const int domain = h->domain.load(std::memory_order_relaxed);
  const auto to = addr->sa_family == domain ? Endpoint::from_sockaddr(addr, len) : std::nullopt;
  // Calls that the kernel refuses anyway are passed to it, for the right errno.
  const bool is_barred = to && to->addr.is_v4() && domain == AF_INET6 && is_v6only(h);
  if (!to || to->port == 0 || to->addr.is_multicast() || is_barred) {
    if (is_tcp_carried(h)) return fail(EISCONN, "connect");
    h->touch();
    return from_kernel(libc().connect(h.fd, addr, len), "connect");
  }
  return tcp_socket::connect(h, *to, addr, len,
                             {.nonblock = h->nonblock.load(std::memory_order_relaxed)});
}

Result<int> accept(Handle h, sockaddr* addr, socklen_t* len, int flags) {
  if (kind(h) != FileKind::kTcp || !h->stack->is_owner())
    return from_libc(libc().accept4(h.fd, addr, len, flags), "accept");
  (void)use(h, "accept");
  return listener::accept(h, addr, len, flags);
}

Result<void> shutdown(Handle h, int how) {
  File& f = *h.file;
  if (!f.stack->is_owner()) return from_kernel(libc().shutdown(h.fd, how), "shutdown");
  if (auto ok = use(h, "shutdown"); !ok) return ok;
  if (how < SHUT_RD || how > SHUT_RDWR) return fail(EINVAL, "shutdown");
  if (kind(h) == FileKind::kUdp) return udp_socket::shutdown(h, how);
  if (is_tcp_carried(h)) {
    const auto done = tcp_socket::shutdown(h, how);
    if (done || mode(h) != Mode::kKernel) return done;  // else it was just handed over
  }
  if (mode(h) == Mode::kListening && how != SHUT_WR) {
    const LockGuard control(f.control);
    if (!h.is_alive()) return fail(EBADF, "shutdown");
    if (mode(h) == Mode::kListening) listener::stop(f);
  }
  f.touch();
  f.receives_left.store(0, std::memory_order_relaxed);  // what is shut would have to be known
  const auto done = from_kernel(libc().shutdown(h.fd, how), "shutdown");
  f.ready.notify(kReadyIn | EPOLLHUP | kModeChanged);
  return done;
}

namespace {

/// For a connection that is or was carried. Control lock held.
Endpoint local_name(const File& f) {
  Engine* const e = f.engine.load(std::memory_order_acquire);
  if (e == nullptr) return f.tcp.options->void_name;
  const EngineGuard guard(*e);
  if (f.flow == nullptr) return f.tcp.options->void_name;
  const Endpoint& local = f.flow->key.local;
  if (!f.tcp.undone || !f.tcp.has_drawn_source) return local;
  return {f.domain.load(std::memory_order_relaxed) == AF_INET ? IpAddr::any_v4() : IpAddr(),
          local.port};
}

}  // namespace

Result<void> getsockname(Handle h, sockaddr* addr, socklen_t* len) {
  File& f = *h.file;
  if (is_tcp_carried(h) || (is_void(h) && f.has_own_name())) {
    if (addr == nullptr) return fail(EFAULT, "getsockname");
    const LockGuard control(f.control);
    if (!h.is_alive()) return fail(EBADF, "getsockname");
    if (is_tcp_carried(h) || is_void(h))  // else it was just handed over
      return told(give_address(local_name(f), f.domain.load(std::memory_order_relaxed), addr, len),
                  "getsockname");
  }
  return from_kernel(libc().getsockname(h.fd, addr, len), "getsockname");
}

Result<void> getpeername(Handle h, sockaddr* addr, socklen_t* len) {
  File& f = *h.file;
  if (auto ok = use(h, "getpeername"); !ok) return ok;
  if (!is_tcp_carried(h)) return from_kernel(libc().getpeername(h.fd, addr, len), "getpeername");
  if (addr == nullptr) return fail(EFAULT, "getpeername");
  const LockGuard control(f.control);
  if (!h.is_alive()) return fail(EBADF, "getpeername");
  if (!is_tcp_carried(h))  // it was just handed over
    return from_kernel(libc().getpeername(h.fd, addr, len), "getpeername");
  Endpoint peer;
  {
    const EngineGuard guard(*f.engine.load(std::memory_order_acquire));
    const tcp::State s = f.flow == nullptr ? tcp::State::kClosed : tcp::state(f.tcp_flow().tcb);
    // In TIME-WAIT the connection is no longer the program's socket (Linux tcp_time_wait).
    if (s == tcp::State::kClosed || s == tcp::State::kSynSent || s == tcp::State::kTimeWait ||
        f.tcp.undone)
      return fail(ENOTCONN, "getpeername");
    peer = f.flow->key.remote;
  }
  return told(give_address(peer, f.domain.load(std::memory_order_relaxed), addr, len),
              "getpeername");
}

}  // namespace vireo::sock
