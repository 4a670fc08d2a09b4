// Each call goes where its socket is: TCP, UDP, a listener, or the kernel.
#include <linux/sockios.h>
#include <netinet/tcp.h>

#include <atomic>

#include "core/log.h"
#include "stack/sock/async_io.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/cmsg.h"
#include "stack/sock/fast_open.h"
#include "stack/sock/listener.h"
#include "stack/sock/options/values.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/tcp_socket.h"
#include "stack/sock/udp_socket.h"
#include "stack/sock/urgent.h"

namespace vireo::sock {
namespace {

FileKind kind(Handle h) { return h->kind.load(std::memory_order_relaxed); }
Mode mode(Handle h) { return h->mode.load(std::memory_order_acquire); }
bool is_tcp_carried(Handle h) { return mode(h) == Mode::kCarried && kind(h) == FileKind::kTcp; }
bool is_udp_carried(Handle h) { return mode(h) == Mode::kCarried && kind(h) == FileKind::kUdp; }

/// What is carried is carried in no child (fork.cpp); else the question costs a system call.
bool is_udp_ours(Handle h) {
  return kind(h) == FileKind::kUdp && (h->is_carried() || h->stack->is_owner());
}

/// A carried connection in the child of a fork.
bool is_void(Handle h) { return mode(h) == Mode::kVoid; }

/// What a use of it is answered. A program that needs it is told why, once.
[[gnu::cold]] std::unexpected<Err> parents_own(Handle h, const char* call) {
  static std::atomic<bool> is_said{false};
  if (!h->stack->ends_elsewhere() && !is_said.exchange(true))
    log<LogLevel::kWarn>(
        "descriptor {}: this process is a child of the one that carries the connection, and cannot "
        "use it ({}: ENOTCONN); a rule `use os` keeps such connections on the kernel",
        h.fd, call);
  return fail(ENOTCONN, call);
}

msghdr message(std::span<const iovec> iov, void* name = nullptr, socklen_t name_len = 0) {
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(iov.data());
  m.msg_iovlen = iov.size();
  m.msg_name = name;
  m.msg_namelen = name_len;
  return m;
}

Result<void> told(int error, const char* where) {
  if (error != 0) return fail(error, where);
  return {};
}

Result<void> from_kernel(int returned, const char* where) {
  if (returned != 0) return fail_errno(where);
  return {};
}

}  // namespace

// ---- connections

namespace {

/// The kernel knows nothing of connections that have no socket of its own any more, or never had.
/// Control lock held.
bool is_in_use(const File& f, const Endpoint& local) {
  const SocketOptions& o = *f.tcp.options;
  if (o.socket.bound_ifindex != 0)
    return false;  // it shares addresses with other interfaces' sockets
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
  // The port may be one that rests between two connections of ours.
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
  if (const int error = address_error(addr, len); error != 0) return fail(error, "connect");
  if (kind(h) == FileKind::kUdp) return udp_socket::connect(h, addr, len);
  if (addr == nullptr || len < sizeof(sa_family_t))  // nothing comes of it
    return from_kernel(libc().connect(h.fd, addr, len), "connect");
  if (addr->sa_family == AF_UNSPEC) return tcp_socket::disconnect(h, addr, len);
  const int domain = h->domain.load(std::memory_order_relaxed);
  const auto to = addr->sa_family == domain ? Endpoint::from_sockaddr(addr, len) : std::nullopt;
  // What the kernel would refuse anyway, it refuses in its own words.
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
  return listener::accept(h, addr, len, flags);
}

Result<void> shutdown(Handle h, int how) {
  File& f = *h.file;
  if (!f.stack->is_owner()) return from_kernel(libc().shutdown(h.fd, how), "shutdown");
  if (is_void(h)) return parents_own(h, "shutdown");
  if (how < SHUT_RD || how > SHUT_RDWR) return fail(EINVAL, "shutdown");
  if (kind(h) == FileKind::kUdp) return udp_socket::shutdown(h, how);
  if (is_tcp_carried(h)) {
    const auto done = tcp_socket::shutdown(h, how);
    if (done || mode(h) != Mode::kKernel) return done;  // else it was handed over just now
  }
  if (mode(h) == Mode::kListening && how != SHUT_WR) {
    const LockGuard control(f.control);
    if (!h.is_alive()) return fail(EBADF, "shutdown");
    if (mode(h) == Mode::kListening) listener::stop(f);
  }
  f.touch();
  const auto done = from_kernel(libc().shutdown(h.fd, how), "shutdown");
  f.ready.notify(kReadyIn | EPOLLHUP | kModeChanged);
  return done;
}

namespace {

/// Of a connection that is or was carried. Control lock held.
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
    if (is_tcp_carried(h) || is_void(h))  // else it was handed over just now
      return told(give_address(local_name(f), f.domain.load(std::memory_order_relaxed), addr, len),
                  "getsockname");
  }
  return from_kernel(libc().getsockname(h.fd, addr, len), "getsockname");
}

Result<void> getpeername(Handle h, sockaddr* addr, socklen_t* len) {
  File& f = *h.file;
  if (is_void(h)) return parents_own(h, "getpeername");
  if (!is_tcp_carried(h)) return from_kernel(libc().getpeername(h.fd, addr, len), "getpeername");
  if (addr == nullptr) return fail(EFAULT, "getpeername");
  const LockGuard control(f.control);
  if (!h.is_alive()) return fail(EBADF, "getpeername");
  if (!is_tcp_carried(h))  // it was handed over just now
    return from_kernel(libc().getpeername(h.fd, addr, len), "getpeername");
  Endpoint peer;
  {
    const EngineGuard guard(*f.engine.load(std::memory_order_acquire));
    const tcp::State s = f.flow == nullptr ? tcp::State::kClosed : tcp::state(f.tcp_flow().tcb);
    // What is in TIME-WAIT is the program's socket no more (Linux tcp_time_wait).
    if (s == tcp::State::kClosed || s == tcp::State::kSynSent || s == tcp::State::kTimeWait ||
        f.tcp.undone)
      return fail(ENOTCONN, "getpeername");
    peer = f.flow->key.remote;
  }
  return told(give_address(peer, f.domain.load(std::memory_order_relaxed), addr, len),
              "getpeername");
}

// ---- data

namespace {

// Apart: what is carried shall pay nothing for their message headers.
[[gnu::noinline]] Result<ssize_t> recv_message(Handle h, std::span<const iovec> iov, int flags) {
  msghdr m = message(iov);
  return recvmsg(h, m, flags);
}
[[gnu::noinline]] Result<ssize_t> send_message(Handle h, std::span<const iovec> iov, int flags) {
  return sendmsg(h, message(iov), flags);
}

}  // namespace

Result<ssize_t> recv(Handle h, std::span<const iovec> iov, int flags) {
  if (mode(h) == Mode::kCarried) [[likely]]
    return kind(h) == FileKind::kTcp ? tcp_socket::recv(h, iov, flags)
                                     : udp_socket::recv(h, iov, flags);
  return recv_message(h, iov, flags);
}

Result<ssize_t> recvfrom(Handle h, std::span<const iovec> iov, int flags, sockaddr* addr,
                         socklen_t* len) {
  if (addr == nullptr) return recv(h, iov, flags);
  // What was received is lost then, as with the kernel.
  const int bad = !is_writable(len) ? EFAULT : static_cast<int>(*len) < 0 ? EINVAL : 0;
  if (is_tcp_carried(h)) [[likely]] {
    auto n = tcp_socket::recv(h, iov, flags);
    if (n && bad != 0) return fail(bad, "recv");
    if (n) *len = 0;  // tcp(7): no address
    return n;
  }
  msghdr m = message(iov, addr, bad != 0 ? 0 : *len);
  auto n = recvmsg(h, m, flags);
  if (n && bad != 0) return fail(bad, "recv");
  if (n) *len = m.msg_namelen;
  return n;
}

namespace {
/// As the kernel judges a message before a byte moves (net/socket.c). @return errno, 0: none.
[[gnu::cold, gnu::noinline]] int unusual_error(const msghdr& m) noexcept {
  if (m.msg_name != nullptr && static_cast<int>(m.msg_namelen) < 0) return EINVAL;
  return m.msg_iovlen > UIO_MAXIOV ? EMSGSIZE : vector_error({m.msg_iov, m.msg_iovlen});
}
inline int message_error(const msghdr& m) noexcept {
  if (m.msg_iovlen == 1 && is_readable(m.msg_iov) &&
      (static_cast<ssize_t>(m.msg_iov->iov_len) | static_cast<int>(m.msg_namelen)) >= 0) [[likely]]
    return 0;
  return unusual_error(m);
}

/// What wants_stream_control() is about.
[[gnu::cold]] void put_control(Handle h, msghdr& msg) {
  CmsgWriter out(msg);
  SocketOptions o;
  int left = 0;
  if (Engine* const e = h->engine.load(std::memory_order_acquire); e != nullptr) {
    const EngineGuard guard(*e);
    if (!h.is_alive()) return;
    o = *h->tcp.options;
    if (h->flow != nullptr) {
      tcp::Tcb& t = h->tcp_flow().tcb;
      left = static_cast<int>(tcp::recv_queue(t).bytes());
      if (left == 0 && tcp::peer_closed(t)) left = 1;  // there is the end to be read
    }
  }
  put_times(o, 0, out);
  if (o.tcp.inq != 0) out.put(IPPROTO_TCP, TCP_CM_INQ, left);
}
}  // namespace

namespace {
// Apart: the way of a datagram shall pay nothing for its frame.
[[gnu::noinline]] Result<ssize_t> recvmsg_bytes(Handle h, msghdr& msg, int flags) {
  auto n = tcp_socket::recv(h, {msg.msg_iov, msg.msg_iovlen}, flags);
  if (n) {
    msg.msg_namelen = 0;  // tcp(7): no address
    msg.msg_flags = 0;
    if (h->tcp.wants_control.load(std::memory_order_relaxed))
      put_control(h, msg);
    else
      msg.msg_controllen = 0;
    if ((flags & MSG_OOB) != 0 && *n == 1) msg.msg_flags = MSG_OOB;
  }
  return n;
}
}  // namespace

Result<ssize_t> recvmsg(Handle h, msghdr& msg, int flags) {
  if (const int error = message_error(msg); error != 0) [[unlikely]]
    return fail(error, "recvmsg");
  if (is_udp_carried(h)) [[likely]]
    return udp_socket::recv(h, msg, flags);
  if (is_tcp_carried(h)) return recvmsg_bytes(h, msg, flags);
  if (is_void(h)) return parents_own(h, "recv");
  if (is_udp_ours(h)) return udp_socket::recv(h, msg, flags);
  return kernel_recvmsg(h, msg, flags);
}

Result<int> recvmmsg(Handle h, mmsghdr* vec, unsigned count, int flags, const timespec* timeout) {
  if (timeout != nullptr && !is_readable(timeout)) return fail(EFAULT, "recvmmsg");
  if (timeout != nullptr &&
      (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1'000'000'000))
    return fail(EINVAL, "recvmmsg");
  // As Linux: the timeout is looked at between datagrams only (recvmmsg(2), BUGS).
  const auto end =
      timeout == nullptr
          ? Instant::never()
          : Clock::now() + Duration::ns(timeout->tv_sec * 1'000'000'000 + timeout->tv_nsec);
  int each = flags & ~MSG_WAITFORONE;
  unsigned done = 0;
  while (done < count) {
    const auto n = is_writable(&vec[done]) ? recvmsg(h, vec[done].msg_hdr, each)
                                           : Result<ssize_t>(fail(EFAULT, "recvmmsg"));
    if (!n) {
      if (done == 0) return std::unexpected(n.error());
      break;  // Linux reports the error at the next call; ours stays pending where it can
    }
    vec[done].msg_len = static_cast<unsigned>(*n);
    ++done;
    if ((flags & MSG_WAITFORONE) != 0) each |= MSG_DONTWAIT;
    if (Clock::now() >= end) break;
  }
  return static_cast<int>(done);
}

Result<ssize_t> send(Handle h, std::span<const iovec> iov, int flags) {
  if (mode(h) == Mode::kCarried && (flags & MSG_FASTOPEN) == 0) [[likely]]
    return kind(h) == FileKind::kTcp ? tcp_socket::send(h, iov, flags)
                                     : udp_socket::send(h, iov, flags);
  return send_message(h, iov, flags);
}

Result<ssize_t> sendto(Handle h, std::span<const iovec> iov, int flags, const sockaddr* addr,
                       socklen_t len) {
  // A connected stream ignores the address (net/ipv4/tcp.c), if there is one.
  if (is_tcp_carried(h) && (flags & MSG_FASTOPEN) == 0) {
    const int error = addr != nullptr ? address_error(addr, len) : 0;
    return error == 0 ? tcp_socket::send(h, iov, flags) : fail(error, "sendto");
  }
  const msghdr m = message(iov, const_cast<sockaddr*>(addr), addr == nullptr ? 0 : len);
  if (is_udp_carried(h)) [[likely]]
    return udp_socket::send(h, m, flags, Doorbell::kNow);
  return sendmsg(h, m, flags);
}

Result<ssize_t> sendmsg(Handle h, const msghdr& msg, int flags) {
  if (const int error = message_error(msg); error != 0) [[unlikely]]
    return fail(error, "sendmsg");
  if (is_tcp_carried(h) && (flags & MSG_FASTOPEN) == 0)
    return tcp_socket::send(h, {msg.msg_iov, msg.msg_iovlen}, flags);
  if (is_udp_carried(h)) [[likely]]
    return udp_socket::send(h, msg, flags, Doorbell::kNow);
  if (is_void(h)) return parents_own(h, "send");
  if ((flags & MSG_FASTOPEN) != 0 && kind(h) == FileKind::kTcp && h->stack->is_owner())
    return tcp_socket::send_fast_open(h, msg, flags);
  if (is_udp_ours(h)) return udp_socket::send(h, msg, flags, Doorbell::kNow);
  return kernel_sendmsg(h, msg, flags);
}

Result<int> sendmmsg(Handle h, mmsghdr* vec, unsigned count, int flags) {
  const bool udp = is_udp_ours(h);
  unsigned done = 0;
  for (; done < count; ++done) {
    // One doorbell for all but the last.
    const auto send_one = [&]() -> Result<ssize_t> {
      if (!is_writable(&vec[done])) [[unlikely]]
        return fail(EFAULT, "sendmmsg");
      const msghdr& m = vec[done].msg_hdr;
      if (!udp) return sendmsg(h, m, flags);
      if (const int error = message_error(m); error != 0) [[unlikely]]
        return fail(error, "sendmmsg");
      return udp_socket::send(h, m, flags, done + 1 < count ? Doorbell::kLater : Doorbell::kNow);
    };
    const auto n = send_one();
    if (!n) {
      if (udp && done != 0) udp_socket::flush(h);
      if (done == 0) return std::unexpected(n.error());
      break;
    }
    vec[done].msg_len = static_cast<unsigned>(*n);
  }
  // The last may have gone by the kernel, without a doorbell for those before.
  if (udp && done > 1) udp_socket::flush(h);
  return static_cast<int>(done);
}

Result<ssize_t> sendfile(Handle out, int in_fd, off_t* offset, size_t count) {
  const bool ours = is_tcp_carried(out) || (kind(out) == FileKind::kUdp && out->is_carried());
  if (!ours) {
    if (is_void(out)) return parents_own(out, "sendfile");
    const ssize_t n = libc().sendfile(out.fd, in_fd, offset, count);
    if (n < 0) return fail_errno("sendfile");
    return n;
  }
  // Through a buffer: what was read but could not be sent is not taken (the offset says so).
  char buffer[16384];
  if (offset != nullptr && !is_writable(offset)) return fail(EFAULT, "sendfile");
  const off_t start = offset != nullptr ? *offset : ::lseek(in_fd, 0, SEEK_CUR);
  if (start < 0) return fail(errno == EBADF ? EBADF : EINVAL, "sendfile");
  size_t done = 0;
  Result<ssize_t> last = 0;
  while (done < count) {
    const size_t want = std::min(count - done, sizeof buffer);
    const ssize_t got = libc().pread(in_fd, buffer, want, start + static_cast<off_t>(done));
    if (got < 0) last = fail(errno == EISDIR ? EINVAL : errno, "sendfile");
    if (got <= 0) break;
    const iovec v{buffer, static_cast<size_t>(got)};
    const bool more = done + static_cast<size_t>(got) < count && static_cast<size_t>(got) == want;
    last = send(out, {&v, 1}, more && kind(out) == FileKind::kTcp ? MSG_MORE : 0);
    if (!last) break;
    done += static_cast<size_t>(*last);
    if (*last < got) break;
  }
  if (done == 0 && !last) return last;
  if (is_tcp_carried(out)) tcp_socket::push(out);
  if (offset != nullptr)
    *offset = start + static_cast<off_t>(done);
  else
    (void)::lseek(in_fd, start + static_cast<off_t>(done), SEEK_SET);
  return static_cast<ssize_t>(done);
}

// ---- fcntl, ioctl

namespace {
void set_async_locked(Handle h, bool on) {
  const LockGuard control(h->control);
  if (h.is_alive()) set_async(h, on);
}
}  // namespace

Result<int> fcntl(Handle h, int command, uintptr_t argument) {
  File& f = *h.file;
  switch (command) {
    case F_DUPFD:
      return dup_from(h, static_cast<int>(argument), false);
    case F_DUPFD_CLOEXEC:
      return dup_from(h, static_cast<int>(argument), true);
    case F_GETFL: {
      const int flags = libc().fcntl(h.fd, F_GETFL);
      if (flags < 0) return fail_errno("fcntl");
      // The kernel's flag is ours to use (listeners), or shared by many (placeholders).
      return (flags & ~(O_NONBLOCK | O_ASYNC)) |
             (f.nonblock.load(std::memory_order_relaxed) ? O_NONBLOCK : 0) |
             (is_async(f) ? O_ASYNC : 0);
    }
    case F_SETFL: {
      const auto flags = static_cast<int>(argument);
      const bool nonblock = (flags & O_NONBLOCK) != 0;
      if ((flags & ~(O_NONBLOCK | O_ACCMODE)) != 0) f.touch();
      if (!f.placeholder && f.stack->is_owner()) {
        const int kernel = mode(h) == Mode::kListening ? flags | O_NONBLOCK : flags;
        if (libc().fcntl(h.fd, F_SETFL, kernel) != 0) return fail_errno("fcntl");
      }
      f.nonblock.store(nonblock, std::memory_order_relaxed);
      set_async_locked(h, (flags & O_ASYNC) != 0);
      return 0;
    }
    default:
      if (command != F_GETFD && command != F_SETFD) f.touch();
      if (kind(h) == FileKind::kTcp && f.stack->is_owner())
        if (auto done = tcp_socket::owner_call(h, command, argument)) return *done;
      return from_libc(libc().fcntl(h.fd, command, argument), "fcntl");
  }
}

Result<int> ioctl(Handle h, unsigned long request, void* argument) {
  File& f = *h.file;
  const auto give = [&](uint64_t v) -> Result<int> {
    auto* const to = static_cast<int*>(argument);
    if (!is_writable(to)) return fail(EFAULT, "ioctl");
    *to = static_cast<int>(v);
    return 0;
  };
  const bool reads =
      request == FIONBIO || request == FIOASYNC || request == FIOSETOWN || request == SIOCSPGRP;
  if (reads && !is_readable(static_cast<const int*>(argument))) return fail(EFAULT, "ioctl");
  if (request == FIONBIO) {
    const bool on = *static_cast<const int*>(argument) != 0;
    if (!f.placeholder && mode(h) != Mode::kListening && libc().ioctl(h.fd, FIONBIO, argument) != 0)
      return fail_errno("ioctl");
    f.nonblock.store(on, std::memory_order_relaxed);
    return 0;
  }
  if (request == FIOASYNC) {
    const int on = *static_cast<const int*>(argument);
    f.touch();
    if (!f.placeholder && libc().ioctl(h.fd, FIOASYNC, argument) != 0) return fail_errno("ioctl");
    set_async_locked(h, on != 0);
    return 0;
  }
  if ((request == FIOSETOWN || request == SIOCSPGRP || request == FIOGETOWN ||
       request == SIOCGPGRP) &&
      argument != nullptr && kind(h) == FileKind::kTcp && f.stack->is_owner()) {
    const bool sets = request == FIOSETOWN || request == SIOCSPGRP;
    f.touch();
    auto owner = tcp_socket::owner_call(
        h, sets ? F_SETOWN : F_GETOWN,
        sets ? static_cast<uintptr_t>(*static_cast<const int*>(argument)) : 0);
    if (sets || !*owner) return *owner;
    return give(static_cast<uint64_t>(**owner));
  }
  const bool asks_queue =
      request == FIONREAD || request == SIOCOUTQ || request == SIOCOUTQNSD || request == SIOCATMARK;
  if (argument != nullptr && asks_queue && f.is_carried()) {
    Engine* const engine = f.engine.load(std::memory_order_acquire);
    if (engine == nullptr) [[unlikely]]
      return fail(EBADF, "ioctl");  // closed by another thread
    Engine& e = *engine;
    EngineGuard guard(e);
    if (!h.is_alive()) return fail(EBADF, "ioctl");
    if (f.flow != nullptr && kind(h) == FileKind::kTcp) {
      tcp::Tcb& t = f.tcp_flow().tcb;
      if (request == FIONREAD) {
        if (tcp::recv_queue(t).empty()) e.poll_to_return(Clock::now());
        // Up to the mark, where a read stops.
        uint64_t bytes = tcp::recv_queue(t).bytes();
        if (tcp::urgent(t) != tcp::Urgent::kNone && f.tcp.options->socket.oobinline == 0)
          bytes = std::min(bytes, tcp::bytes_to_mark(t));
        return give(bytes);
      }
      const tcp::State state = tcp::state(t);
      const bool opening = state == tcp::State::kSynSent || state == tcp::State::kSynReceived;
      if (request == SIOCOUTQ) return give(opening ? 0 : tcp::unacked_bytes(t));
      if (request == SIOCOUTQNSD) return give(opening ? 0 : tcp::unsent_bytes(t));
      return give(tcp::urgent(t) != tcp::Urgent::kNone && tcp::bytes_to_mark(t) == 0 ? 1 : 0);
    }
    if (f.flow != nullptr && request == FIONREAD) {
      UdpFlow& u = f.udp_flow();
      if (u.queue.empty()) e.poll_to_return(Clock::now());
      // Of the first datagram only (udp(7)).
      uint64_t bytes = 0;
      for (const PacketBuf* p = u.queue.front(); p != nullptr; p = p->next) {
        bytes += p->length;
        if (p->offset == 0) break;
      }
      if (bytes != 0) return give(bytes);
    }
  }
  if (is_void(h) && asks_queue) return fail(ENOTCONN, "ioctl");
  f.touch();
  return from_libc(libc().ioctl(h.fd, request, argument), "ioctl");
}

}  // namespace vireo::sock
