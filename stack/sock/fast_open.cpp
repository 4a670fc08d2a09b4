// TCP Fast Open: sendmsg(2) with MSG_FASTOPEN is a connect(2) whose SYN waits for the data, and the
// send of that data. Order of checks as net/ipv4/tcp.c tcp_sendmsg_fastopen(). Also a listener's
// keys.
#include "stack/sock/fast_open.h"

#include <netinet/tcp.h>

#include "stack/sock/blocking.h"
#include "stack/sock/options/values.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/tcp_socket.h"

namespace vireo::tcp_socket {
namespace {

// Bits of net.ipv4.tcp_fastopen (ip-sysctl).
constexpr int kTfoClient = 1;
constexpr int kTfoClientNoCookie = 4;

/// The peer of a carried socket, for a call without a usable address.
Result<Endpoint> begun_peer(Handle h) {
  File& f = *h.file;
  const LockGuard control(f.control);
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (!h.is_alive() || engine == nullptr) return fail(EBADF, "send");
  const EngineGuard guard(*engine);
  if (f.tcp.link == Link::kUnconnected || f.flow == nullptr) return fail(EINVAL, "send");
  return f.flow->key.remote;
}

}  // namespace

FastConnect fast_connect(const File& f, bool data_follows) noexcept {
  const KernelDefaults& d = f.stack->defaults();
  return {.data_follows = data_follows,
          .without_cookie = f.tcp.options->tcp.fastopen_no_cookie != 0 ||
                            (d.tcp_fastopen & kTfoClientNoCookie) != 0,
          .pause = d.tcp_fastopen_blackhole};
}

tcp::FastOpenKeys fast_open_keys(int fd) noexcept {
  std::array<std::byte, 2 * tcp::FastOpenKeys::kBytes> own;
  socklen_t n = sizeof own;
  if (libc().getsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, own.data(), &n) == 0 && n != 0)
    return tcp::FastOpenKeys::from(std::span(own).first(std::min<size_t>(n, sizeof own)));
  return tcp::FastOpenKeys::from(KernelDefaults::read_fastopen_key());
}

Result<ssize_t> send_fast_open(Handle h, const msghdr& msg, int flags) {
  File& f = *h.file;
  const Mode mode = f.mode.load(std::memory_order_acquire);
  if (mode != Mode::kUndecided && mode != Mode::kCarried) return kernel_sendmsg(h, msg, flags);
  const auto* const addr = static_cast<const sockaddr*>(msg.msg_name);
  const auto most = std::min<socklen_t>(msg.msg_namelen, sizeof(sockaddr_storage));
  if (addr != nullptr && address_error(addr, most) != 0) return fail(EFAULT, "send");
  const bool named = addr != nullptr && msg.msg_namelen >= sizeof(sa_family_t);
  std::optional<Endpoint> to;
  if (named && addr->sa_family == f.domain.load(std::memory_order_relaxed))
    to = Endpoint::from_sockaddr(addr, msg.msg_namelen);
  const bool enabled = (f.stack->defaults().tcp_fastopen & kTfoClient) != 0;
  if (mode == Mode::kUndecided) {
    // Calls that the kernel refuses anyway are passed to it, for the right errno.
    if (!enabled || !to || to->port == 0 || to->addr.is_multicast())
      return kernel_sendmsg(h, msg, flags);
  } else {
    if (!enabled || (named && addr->sa_family == AF_UNSPEC)) return fail(EOPNOTSUPP, "send");
    if (!to) {
      const auto peer = begun_peer(h);
      if (!peer) return std::unexpected(peer.error());
      to = *peer;
    }
  }
  const bool nonblock = (flags & MSG_DONTWAIT) != 0 || f.nonblock.load(std::memory_order_relaxed);
  if (auto ok = connect(h, *to, addr, msg.msg_namelen, {.for_data = true, .nonblock = nonblock});
      !ok)
    return std::unexpected(ok.error());
  if (f.mode.load(std::memory_order_acquire) == Mode::kKernel) return kernel_sendmsg(h, msg, flags);
  return send(h, {msg.msg_iov, msg.msg_iovlen}, flags & ~MSG_FASTOPEN);
}

}  // namespace vireo::tcp_socket
