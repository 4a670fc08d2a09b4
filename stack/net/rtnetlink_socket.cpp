#include "stack/net/rtnetlink_socket.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cstring>

#include "core/assert.h"
#include "core/high_fd.h"

namespace vireo::net {
namespace {

bool set_option(int fd, int level, int name, int value) {
  return ::syscall(SYS_setsockopt, fd, level, name, &value, sizeof value) == 0;
}

Result<void> bind_random_port(int fd) {
  for (int attempt = 0; attempt < 16; ++attempt) {
    sockaddr_nl self{};
    self.nl_family = AF_NETLINK;
    if (::syscall(SYS_getrandom, &self.nl_pid, sizeof self.nl_pid, GRND_NONBLOCK) !=
        sizeof self.nl_pid)
      self.nl_pid = 0;  // the kernel chooses
    else
      self.nl_pid |= 0x80000000U;
    if (::syscall(SYS_bind, fd, &self, sizeof self) == 0) return {};
    if (errno != EADDRINUSE) break;
  }
  return fail_errno("bind rtnetlink");
}

}  // namespace

Result<RtnetlinkSocket> RtnetlinkSocket::open(uint32_t receive_buffer_bytes, int protocol) {
  RtnetlinkSocket s;
  s.fd_.reset(to_high_number(static_cast<int>(
      ::syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol))));
  if (!s.fd_) return fail_errno("socket rtnetlink");
  const int fd = s.fd();
  if (receive_buffer_bytes != 0) {
    const int bytes = static_cast<int>(receive_buffer_bytes);
    if (!set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, bytes))
      set_option(fd, SOL_SOCKET, SO_RCVBUF, bytes);
  }
  set_option(fd, SOL_NETLINK, NETLINK_CAP_ACK, 1);         // errors without the request's echo
  set_option(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1);  // filters in dump requests apply
  if (auto r = bind_random_port(fd); !r) return std::unexpected(r.error());
  sockaddr_nl self{};
  socklen_t len = sizeof self;
  if (::syscall(SYS_getsockname, fd, &self, &len) != 0) return fail_errno("getsockname rtnetlink");
  s.port_ = self.nl_pid;
  return s;
}

Result<void> RtnetlinkSocket::join(uint32_t group) {
  if (!set_option(fd(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, static_cast<int>(group)))
    return fail_errno("join rtnetlink group");
  return {};
}

Result<void> RtnetlinkSocket::send(std::span<const std::byte> message) {
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  for (;;) {
    if (::syscall(SYS_sendto, fd(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                  &kernel, sizeof kernel) >= 0)
      return {};
    if (errno != EINTR) return fail_errno("send rtnetlink");
  }
}

Result<std::span<std::byte>> RtnetlinkSocket::receive(std::span<std::byte> buffer) {
  for (;;) {
    sockaddr_nl from{};
    iovec iov{buffer.data(), buffer.size()};
    msghdr m{};
    m.msg_name = &from;
    m.msg_namelen = sizeof from;
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    const long n = ::syscall(SYS_recvmsg, fd(), &m, MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail_errno("receive rtnetlink");
    }
    if (from.nl_pid != 0) continue;
    if ((m.msg_flags & MSG_TRUNC) != 0) return fail(ENOBUFS, "rtnetlink message too long");
    return buffer.first(static_cast<size_t>(n));
  }
}

void Request::append(const void* data, size_t len) {
  nlmsghdr* h = this_header();
  const size_t at = NLMSG_ALIGN(h->nlmsg_len);
  VIREO_ASSERT(at + len <= sizeof buffer_);
  std::memcpy(buffer_ + at, data, len);
  h->nlmsg_len = static_cast<uint32_t>(at + len);
}

void Request::attribute(uint16_t type, const void* data, size_t len) {
  const nlattr a{.nla_len = static_cast<uint16_t>(NLA_HDRLEN + len), .nla_type = type};
  append(&a, sizeof a);
  append(data, len);
}

void Request::attribute(uint16_t type, const IpAddr& addr) {
  const auto& b = addr.bytes();
  if (addr.is_v4())
    attribute(type, b.data() + 12, 4);
  else
    attribute(type, b.data(), 16);
}

std::span<const std::byte> Request::bytes() const {
  nlmsghdr h;
  std::memcpy(&h, buffer_, sizeof h);
  return {buffer_, h.nlmsg_len};
}

}  // namespace vireo::net
