// The kernel socket beneath: its addresses, its port, and the calls that it serves.
#include "stack/sock/shadow.h"

#include "stack/sock/blocking.h"
#include "stack/sock/cancel.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/stack.h"

namespace vireo {

Result<Endpoint> kernel_name(int fd) {
  sockaddr_storage sa{};
  socklen_t len = sizeof sa;
  if (libc().getsockname(fd, reinterpret_cast<sockaddr*>(&sa), &len) != 0)
    return fail_errno("getsockname");
  auto e = Endpoint::from_sockaddr(reinterpret_cast<const sockaddr*>(&sa), len);
  if (!e) return fail(EAFNOSUPPORT, "getsockname");
  return *e;
}

Result<Endpoint> kernel_peer(int fd) {
  sockaddr_storage sa{};
  socklen_t len = sizeof sa;
  if (libc().getpeername(fd, reinterpret_cast<sockaddr*>(&sa), &len) != 0)
    return fail_errno("getpeername");
  auto e = Endpoint::from_sockaddr(reinterpret_cast<const sockaddr*>(&sa), len);
  if (!e) return fail(EAFNOSUPPORT, "getpeername");
  return *e;
}

bool give_up_leases(Stack& stack, uint16_t port) {
  if (!stack.is_owner()) return false;
  const int saved = errno;
  bool any = false;
  stack.for_each_engine([&](Engine& e) {
    const EngineGuard guard(e);
    any |= e.tcp().give_up_leases(port);
  });
  errno = saved;
  return any;
}

int give_address(const Endpoint& e, int family, sockaddr* addr, socklen_t* len) {
  if (addr == nullptr) return 0;
  if (!is_writable(len)) return EFAULT;
  if (static_cast<int>(*len) < 0) return EINVAL;
  const auto give = [&](const auto& sa) {
    const size_t n = std::min<size_t>(*len, sizeof sa);
    if (n != 0 && !is_writable(addr, n)) return EFAULT;
    std::memcpy(addr, &sa, n);
    *len = sizeof sa;
    return 0;
  };
  return family == AF_INET ? give(e.as_sockaddr_in()) : give(e.as_sockaddr_in6());
}

UniqueFd dup_shadow(int fd) noexcept {
  const int holder = libc().fcntl(fd, F_DUPFD_CLOEXEC, 0);
  return UniqueFd(holder >= 0 ? protect_fd(holder) : -1);
}

void replace_shadow(int fd, int by) noexcept {
  const int flags = libc().fcntl(fd, F_GETFD);
  const int cloexec = flags > 0 && (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0;
  // EBUSY: open(2) in another thread is about to install that number, which cannot last.
  while (libc().dup3(by, fd, cloexec) < 0 && (errno == EINTR || errno == EBUSY)) {
  }
}

void replace_shadows(const File& f, int by) noexcept {
  // A thread that closes a number removes it from the table first, so each one there is open.
  const LockGuard table(fd_table().lock());
  for (int fd = 0; fd < fd_table().end(); ++fd)
    if (fd_table().find(fd).file == &f) replace_shadow(fd, by);
}

namespace {

/// Several threads may add at once, so these counts may be inexact.
void count_received(Handle h, ssize_t n) {
  if (SocketStats* s = h->stats; s != nullptr) {
    s->os_rx_packets.add();
    s->os_rx_bytes.add(static_cast<uint64_t>(n));
  }
  if (n > 0) h->stack->promotion().received(h);
}
void count_sent(Handle h, ssize_t n) {
  if (SocketStats* s = h->stats; s != nullptr) {
    s->os_tx_packets.add();
    s->os_tx_bytes.add(static_cast<uint64_t>(n));
  }
}

/// `now` does not wait, `call` may.
template <class Now, class Call>
ssize_t by_kernel(Handle h, int flags, Now&& now, Call&& call) {
  h->touch();
  if ((flags & MSG_DONTWAIT) != 0) return now();
  const KernelWait wait;
  return cancelable(call);
}

}  // namespace

Result<ssize_t> kernel_recvmsg(Handle h, msghdr& msg, int flags) {
  const ssize_t n = by_kernel(
      h, flags, [&] { return kernel::recvmsg(h.fd, &msg, flags); },
      [&] { return libc().recvmsg(h.fd, &msg, flags); });
  if (n < 0) return fail_errno("recvmsg");
  count_received(h, n);
  return n;
}

Result<ssize_t> kernel_recv(Handle h, const iovec& to, int flags) {
  const ssize_t n = by_kernel(
      h, flags, [&] { return kernel::recv(h.fd, to.iov_base, to.iov_len, flags); },
      [&] { return libc().recv(h.fd, to.iov_base, to.iov_len, flags); });
  if (n < 0) return fail_errno("recv");
  count_received(h, n);
  return n;
}

Result<ssize_t> kernel_sendmsg(Handle h, const msghdr& msg, int flags) {
  const ssize_t n = by_kernel(
      h, flags, [&] { return kernel::sendmsg(h.fd, &msg, flags); },
      [&] { return libc().sendmsg(h.fd, &msg, flags); });
  if (n < 0) return fail_errno("sendmsg");
  count_sent(h, n);
  return n;
}

Result<int> kernel_recvmmsg(Handle h, std::span<mmsghdr> all, int flags, timespec* timeout) {
  const auto count = static_cast<unsigned>(all.size());
  const ssize_t n = by_kernel(
      h, flags, [&] { return kernel::recvmmsg(h.fd, all.data(), count, flags, timeout); },
      [&] { return libc().recvmmsg(h.fd, all.data(), count, flags, timeout); });
  if (n < 0) return fail_errno("recvmmsg");
  for (const mmsghdr& m : all.first(static_cast<size_t>(n)))
    count_received(h, static_cast<ssize_t>(m.msg_len));
  return static_cast<int>(n);
}

Result<int> kernel_sendmmsg(Handle h, std::span<mmsghdr> all, int flags) {
  const auto count = static_cast<unsigned>(all.size());
  const ssize_t n = by_kernel(
      h, flags, [&] { return kernel::sendmmsg(h.fd, all.data(), count, flags); },
      [&] { return libc().sendmmsg(h.fd, all.data(), count, flags); });
  if (n < 0) return fail_errno("sendmmsg");
  for (const mmsghdr& m : all.first(static_cast<size_t>(n)))
    count_sent(h, static_cast<ssize_t>(m.msg_len));
  return static_cast<int>(n);
}

Result<ssize_t> kernel_send(Handle h, const iovec& from, int flags) {
  const ssize_t n = by_kernel(
      h, flags, [&] { return kernel::send(h.fd, from.iov_base, from.iov_len, flags); },
      [&] { return libc().send(h.fd, from.iov_base, from.iov_len, flags); });
  if (n < 0) return fail_errno("send");
  count_sent(h, n);
  return n;
}

}  // namespace vireo
