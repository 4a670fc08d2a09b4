#include "core/fd_messages.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace vireo {
namespace {

/// A system call with the kernel's return value: the result, or -errno.
template <class... A>
long without_errno(long number, A... arguments) noexcept {
  const int saved = errno;
  const long r = ::syscall(number, arguments...);
  const long result = r < 0 ? -errno : r;
  errno = saved;
  return result;
}

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
  const long r = without_errno(SYS_sendmsg, socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
  return r < 0 ? r : 0;
}

Received receive_numbers(int socket, std::span<std::byte> bytes, std::span<int> fds,
                         int flags) noexcept {
  iovec data{bytes.data(), bytes.size()};
  ControlBytes control;
  msghdr m{};
  m.msg_iov = &data;
  m.msg_iovlen = 1;
  if (!fds.empty()) {
    m.msg_control = control.bytes;
    m.msg_controllen = CMSG_LEN(fds.size_bytes());  // not _SPACE, which may take one more
  }
  Received got;
  got.bytes = without_errno(SYS_recvmsg, socket, &m, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got.bytes < 0 || fds.empty()) return got;
  const cmsghdr* const c = CMSG_FIRSTHDR(&m);
  if (c != nullptr && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
    got.fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::memcpy(fds.data(), CMSG_DATA(c), got.fds * sizeof(int));
  }
  if ((m.msg_flags & MSG_CTRUNC) != 0) {
    for (const int fd : fds.first(got.fds)) without_errno(SYS_close, fd);
    return {-EMFILE, 0};
  }
  return got;
}

Received receive_message(int socket, std::span<std::byte> bytes, std::span<UniqueFd> fds,
                         int flags) noexcept {
  int numbers[kMaxSentFds];
  const Received got = receive_numbers(socket, bytes, std::span(numbers).first(fds.size()), flags);
  for (size_t i = 0; i < got.fds; ++i) fds[i].reset(numbers[i]);
  return got;
}

}  // namespace vireo
