// recv(2) to sendfile(2): each call is dispatched to TCP, UDP, or the kernel.
#include <netinet/tcp.h>

#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/cmsg.h"
#include "stack/sock/dummy_send.h"
#include "stack/sock/fast_open.h"
#include "stack/sock/iov.h"
#include "stack/sock/options/values.h"
#include "stack/sock/send_control.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/served_by.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stamps.h"
#include "stack/sock/tcp_socket.h"
#include "stack/sock/udp_socket.h"

namespace vireo::sock {
namespace {

msghdr message(std::span<const iovec> iov, void* name = nullptr, socklen_t name_len = 0) {
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(iov.data());
  m.msg_iovlen = iov.size();
  m.msg_name = name;
  m.msg_namelen = name_len;
  return m;
}

// Separate functions, so that the carried path has no message header in its frame.
[[gnu::noinline]] Result<ssize_t> recv_message(Handle h, std::span<const iovec> iov, int flags) {
  msghdr m = message(iov);
  return recvmsg(h, m, flags);
}
[[gnu::noinline]] Result<ssize_t> send_message(Handle h, std::span<const iovec> iov, int flags) {
  return sendmsg(h, message(iov), flags);
}

/// A piece of a stream that is the kernel's for good.
bool is_kernels_piece(Handle h, std::span<const iovec> iov, int flags) {
  return mode(h) == Mode::kKernel && kind(h) == FileKind::kTcp && iov.size() == 1 &&
         (flags & (MSG_FASTOPEN | kDummySend)) == 0;
}

}  // namespace

Result<ssize_t> recv(Handle h, std::span<const iovec> iov, int flags) {
  if (mode(h) == Mode::kCarried) [[likely]]
    return kind(h) == FileKind::kTcp ? tcp_socket::recv(h, iov, flags)
                                     : udp_socket::recv(h, iov, flags);
  if (is_kernels_piece(h, iov, flags)) return kernel_recv(h, iov[0], flags);
  return recv_message(h, iov, flags);
}

Result<ssize_t> recvfrom(Handle h, std::span<const iovec> iov, int flags, sockaddr* addr,
                         socklen_t* len) {
  if (addr == nullptr) return recv(h, iov, flags);
  // On a bad `len` the received data is lost, as with the kernel.
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

[[gnu::cold, gnu::noinline]] int unusual_error(const msghdr& m) noexcept {
  if (m.msg_name != nullptr && static_cast<int>(m.msg_namelen) < 0) return EINVAL;
  return m.msg_iovlen > UIO_MAXIOV ? EMSGSIZE : vector_error({m.msg_iov, m.msg_iovlen});
}

namespace {
/// Writes the ancillary data of wants_stream_control(). `times`: of the last byte received.
[[gnu::cold]] void put_control(Handle h, FrameTimes times, msghdr& msg) {
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
      if (left == 0 && tcp::peer_closed(t)) left = 1;  // the end of the stream is yet to be read
    }
  }
  // As net/ipv4/tcp.c tcp_recv_timestamp(): nothing of data that came before the option was set.
  if (o.socket.stamp != 0 && times.arrival != 0) put_stamp(o, times.arrival, out);
  put_timestamping(o, reported(o, times), out);
  if (o.tcp.inq != 0) out.put(IPPROTO_TCP, TCP_CM_INQ, left);
}
}  // namespace

namespace {
/// On a stream with wants_stream_control().
[[gnu::cold, gnu::noinline]] Result<ssize_t> recvmsg_with_control(Handle h, msghdr& msg,
                                                                  int flags) {
  FrameTimes times;
  auto n = tcp_socket::recv_timed(h, {msg.msg_iov, msg.msg_iovlen}, flags, times);
  if (n) {
    msg.msg_namelen = 0;
    msg.msg_flags = 0;
    put_control(h, times, msg);
    if ((flags & MSG_OOB) != 0 && *n == 1) msg.msg_flags |= MSG_OOB;
  }
  return n;
}

// A separate function, so that the datagram path does not pay for its frame.
[[gnu::noinline]] Result<ssize_t> recvmsg_bytes(Handle h, msghdr& msg, int flags) {
  if (h->tcp.wants_control.load(std::memory_order_relaxed))
    return recvmsg_with_control(h, msg, flags);
  auto n = tcp_socket::recv(h, {msg.msg_iov, msg.msg_iovlen}, flags);
  if (n) {
    msg.msg_namelen = 0;  // tcp(7): no address
    msg.msg_flags = 0;
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
  if (is_tcp_carried(h))
    return (flags & MSG_ERRQUEUE) == 0 ? recvmsg_bytes(h, msg, flags)
                                       : send_reports::receive(h, msg, flags);
  if (auto ok = use(h, "recv"); !ok) return std::unexpected(ok.error());
  if (is_udp_ours(h)) return udp_socket::recv(h, msg, flags);
  return kernel_recvmsg(h, msg, flags);
}

namespace {

/// As Linux: the error of a later message is that of the next call, and SO_ERROR's.
[[gnu::cold]] void keep_error(Handle h, int error) {
  Engine* const e = h->engine.load(std::memory_order_acquire);
  // Linux keeps a restart of its own, too, which no program can name.
  const bool is_restart = error == EINTR && h->rcv_timeout_ns.load(std::memory_order_relaxed) == 0;
  if (error == EAGAIN || is_restart || e == nullptr) return;
  const EngineGuard guard(*e);
  if (!h.is_alive() || h->flow == nullptr) return;
  if (h->is_udp())
    h->udp_flow().soft_error = error;
  else if (h->is_tcp() && mode(h) == Mode::kCarried && tcp::error(h->tcp_flow().tcb) == error)
    h->tcp.error_taken = false;
}

/// One message of recvmmsg().
Result<int> recv_one(Handle h, mmsghdr& m, int flags) {
  if (!is_writable(&m)) return fail(EFAULT, "recvmmsg");
  const auto n = recvmsg(h, m.msg_hdr, flags);
  if (!n) return std::unexpected(n.error());
  m.msg_len = static_cast<unsigned>(*n);
  return 1;
}

/// What is left until `end`.
timespec time_left(Instant end) {
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t ns = std::max<int64_t>((end - Clock::now()).ns(), 0);
  return {ns / kSecond, ns % kSecond};
}

}  // namespace

Result<int> recvmmsg(Handle h, mmsghdr* vec, unsigned count, int flags, timespec* timeout) {
  if (timeout != nullptr && !is_readable(timeout)) return fail(EFAULT, "recvmmsg");
  if (timeout != nullptr &&
      (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1'000'000'000))
    return fail(EINVAL, "recvmmsg");
  if (auto ok = use(h, "recv"); !ok) return std::unexpected(ok.error());
  const std::span all(vec, count);
  if (mode(h) == Mode::kKernel) return kernel_recvmmsg(h, all, flags, timeout);
  // As in Linux, the timeout is checked between messages only (recvmmsg(2), BUGS).
  constexpr int64_t kMostSeconds = 9'000'000'000;
  const Instant end =
      timeout == nullptr
          ? Instant::never()
          : Clock::now() +
                Duration::ns(std::min<int64_t>(timeout->tv_sec, kMostSeconds) * 1'000'000'000 +
                             timeout->tv_nsec);
  int each = flags & ~MSG_WAITFORONE;
  size_t done = 0;
  while (done < count) {
    bool is_all = false;
    const auto n = is_udp_carried(h) && (flags & MSG_ERRQUEUE) == 0
                       ? udp_socket::recv_many(h, all.subspan(done), each, end, is_all)
                       : recv_one(h, vec[done], each);
    if (!n) {
      if (done == 0) return std::unexpected(n.error());
      keep_error(h, n.error().code);
      break;
    }
    done += static_cast<size_t>(*n);
    if ((flags & MSG_WAITFORONE) != 0) each |= MSG_DONTWAIT;
    const bool may_wait =
        (each & MSG_DONTWAIT) == 0 && !h->nonblock.load(std::memory_order_relaxed);
    if ((is_all && !may_wait) || (timeout != nullptr && Clock::now() >= end)) break;
    if ((vec[done - 1].msg_hdr.msg_flags & MSG_OOB) != 0) break;
  }
  if (timeout != nullptr && done != 0) {
    if (!is_writable(timeout)) return fail(EFAULT, "recvmmsg");
    *timeout = time_left(end);
  }
  return static_cast<int>(done);
}

Result<ssize_t> send(Handle h, std::span<const iovec> iov, int flags) {
  if (mode(h) == Mode::kCarried && (flags & (MSG_FASTOPEN | kDummySend)) == 0) [[likely]]
    return kind(h) == FileKind::kTcp ? tcp_socket::send(h, iov, flags)
                                     : udp_socket::send(h, iov, flags);
  if (is_kernels_piece(h, iov, flags)) return kernel_send(h, iov[0], flags);
  return send_message(h, iov, flags);
}

Result<ssize_t> sendto(Handle h, std::span<const iovec> iov, int flags, const sockaddr* addr,
                       socklen_t len) {
  // A connected stream ignores a valid address (net/ipv4/tcp.c).
  if (is_tcp_carried(h) && (flags & (MSG_FASTOPEN | kDummySend)) == 0) {
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
  if (is_tcp_carried(h) && (flags & (MSG_FASTOPEN | kDummySend)) == 0) {
    if (msg.msg_controllen == 0) [[likely]]
      return tcp_socket::send(h, {msg.msg_iov, msg.msg_iovlen}, flags);
    if (const int error = stream_control_error(msg); error != 0) return fail(error, "sendmsg");
    return tcp_socket::send_with_control(h, msg, flags);
  }
  if (is_udp_carried(h)) [[likely]]
    return udp_socket::send(h, msg, flags, Doorbell::kNow);
  if ((flags & kDummySend) != 0) [[unlikely]]
    return send_dummy(h, msg);
  if (auto ok = use(h, "send"); !ok) return std::unexpected(ok.error());
  if ((flags & MSG_FASTOPEN) != 0 && kind(h) == FileKind::kTcp && h->stack->is_owner())
    return tcp_socket::send_fast_open(h, msg, flags);
  if (is_udp_ours(h)) return udp_socket::send(h, msg, flags, Doorbell::kNow);
  return kernel_sendmsg(h, msg, flags);
}

Result<int> sendmmsg(Handle h, mmsghdr* vec, unsigned count, int flags) {
  if (auto ok = use(h, "send"); !ok) return std::unexpected(ok.error());
  const std::span all(vec, std::min<unsigned>(count, UIO_MAXIOV));
  if (mode(h) == Mode::kKernel && (flags & MSG_FASTOPEN) == 0)
    return kernel_sendmmsg(h, all, flags);
  if (is_udp_ours(h)) return udp_socket::send_many(h, all, flags);
  int done = 0;
  for (mmsghdr& m : all) {
    const auto n =
        is_writable(&m) ? sendmsg(h, m.msg_hdr, flags) : Result<ssize_t>(fail(EFAULT, "sendmmsg"));
    if (!n && done == 0) return std::unexpected(n.error());
    if (!n) break;
    m.msg_len = static_cast<unsigned>(*n);
    ++done;
    if (m.msg_len < iov_bytes({m.msg_hdr.msg_iov, m.msg_hdr.msg_iovlen})) break;  // as in Linux
  }
  return done;
}

Result<ssize_t> sendfile(Handle out, int in_fd, off_t* offset, size_t count) {
  const bool ours = is_tcp_carried(out) || (kind(out) == FileKind::kUdp && out->is_carried());
  if (!ours) {
    if (auto ok = use(out, "sendfile"); !ok) return std::unexpected(ok.error());
    const ssize_t n = libc().sendfile(out.fd, in_fd, offset, count);
    if (n < 0) return fail_errno("sendfile");
    return n;
  }
  // Through a buffer: data that was read but not sent stays in the file (the offset shows it).
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

}  // namespace vireo::sock
