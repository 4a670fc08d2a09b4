#include "dev/xdp/group/messages.h"

#include <sys/socket.h>

#include <cstring>

#include "dev/xdp/uapi.h"

namespace vireo::xdp {
namespace {

struct alignas(cmsghdr) ControlBytes {
  std::byte bytes[CMSG_SPACE(kMaxSentFds * sizeof(int))] = {};
};

}  // namespace

long send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds) noexcept {
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  ControlBytes control;
  msghdr m{};
  m.msg_iov = &data;
  m.msg_iovlen = 1;
  if (!fds.empty()) {
    if (fds.size() > kMaxSentFds) return -EINVAL;
    m.msg_control = control.bytes;
    m.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  const long r = sys(SYS_sendmsg, socket, reinterpret_cast<long>(&m), MSG_DONTWAIT | MSG_NOSIGNAL);
  return r < 0 ? r : 0;
}

Received receive_message(int socket, std::span<std::byte> bytes, std::span<UniqueFd> fds,
                         int flags) noexcept {
  iovec data{bytes.data(), bytes.size()};
  ControlBytes control;
  msghdr m{};
  m.msg_iov = &data;
  m.msg_iovlen = 1;
  if (!fds.empty()) {
    m.msg_control = control.bytes;
    m.msg_controllen = CMSG_LEN(fds.size() * sizeof(int));  // not _SPACE, which may take one more
  }
  Received got;
  got.bytes =
      sys(SYS_recvmsg, socket, reinterpret_cast<long>(&m), flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got.bytes < 0 || fds.empty()) return got;
  const cmsghdr* const c = CMSG_FIRSTHDR(&m);
  if (c != nullptr && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
    int numbers[kMaxSentFds];
    const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::memcpy(numbers, CMSG_DATA(c), n * sizeof(int));
    for (; got.fds < n; ++got.fds) fds[got.fds].reset(numbers[got.fds]);
  }
  if ((m.msg_flags & MSG_CTRUNC) != 0) {
    for (UniqueFd& fd : fds) fd.reset();
    return {-EMFILE, 0};
  }
  return got;
}

void pause_for(Duration d) noexcept {
  const timespec pause{d.s(), (d - Duration::s(d.s())).ns()};
  sys(SYS_nanosleep, reinterpret_cast<long>(&pause));
}

}  // namespace vireo::xdp
