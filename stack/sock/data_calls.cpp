// recv(2) to sendfile(2): each call is dispatched to TCP, UDP, or the kernel.
#include <netinet/tcp.h>

#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/cmsg.h"
#include "stack/sock/fast_open.h"
#include "stack/sock/options/values.h"
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
         (flags & MSG_FASTOPEN) == 0;
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

namespace {
/// Checks a message as the kernel does before it moves data (net/socket.c). @return errno, or 0.
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

Result<int> recvmmsg(Handle h, mmsghdr* vec, unsigned count, int flags, const timespec* timeout) {
  if (timeout != nullptr && !is_readable(timeout)) return fail(EFAULT, "recvmmsg");
  if (timeout != nullptr &&
      (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1'000'000'000))
    return fail(EINVAL, "recvmmsg");
  // As in Linux, the timeout is checked between datagrams only (recvmmsg(2), BUGS).
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
      break;  // Linux reports the error at the next call; Vireo's stays pending where possible
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
  if (is_kernels_piece(h, iov, flags)) return kernel_send(h, iov[0], flags);
  return send_message(h, iov, flags);
}

Result<ssize_t> sendto(Handle h, std::span<const iovec> iov, int flags, const sockaddr* addr,
                       socklen_t len) {
  // A connected stream ignores a valid address (net/ipv4/tcp.c).
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
    return msg.msg_controllen == 0 ? tcp_socket::send(h, {msg.msg_iov, msg.msg_iovlen}, flags)
                                   : tcp_socket::send_with_control(h, msg, flags);
  if (is_udp_carried(h)) [[likely]]
    return udp_socket::send(h, msg, flags, Doorbell::kNow);
  if (auto ok = use(h, "send"); !ok) return std::unexpected(ok.error());
  if ((flags & MSG_FASTOPEN) != 0 && kind(h) == FileKind::kTcp && h->stack->is_owner())
    return tcp_socket::send_fast_open(h, msg, flags);
  if (is_udp_ours(h)) return udp_socket::send(h, msg, flags, Doorbell::kNow);
  return kernel_sendmsg(h, msg, flags);
}

Result<int> sendmmsg(Handle h, mmsghdr* vec, unsigned count, int flags) {
  if (auto ok = use(h, "send"); !ok) return std::unexpected(ok.error());
  const bool udp = is_udp_ours(h);
  unsigned done = 0;
  for (; done < count; ++done) {
    // No doorbell for any but the last.
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
  // The last may have been sent by the kernel, without a doorbell for those before.
  if (udp && done > 1) udp_socket::flush(h);
  return static_cast<int>(done);
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
