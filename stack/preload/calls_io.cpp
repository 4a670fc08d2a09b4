// Data: the read and write families on Vireo's sockets, with their fortified variants.
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "stack/preload/call.h"
#include "stack/preload/process_stack.h"
#include "stack/sock/dummy_send.h"

using namespace vireo;           // NOLINT: the C names below live in no namespace
using namespace vireo::preload;  // NOLINT

namespace {

ssize_t do_recv(Handle h, void* buf, size_t n, int flags) {
  const iovec v{buf, n};
  return call(Restart::kReceiving, h, [&] { return sock::recv(h, {&v, 1}, flags); });
}

/// This path writes no errno and does not wait.
[[gnu::noinline]] bool do_send_nagled(Handle h, const void* buf, size_t n, int flags) {
  go_in();
  const bool is_held = sock::send_nagled(h, buf, n, flags);
  go_out();
  return is_held;
}

ssize_t do_send(Handle h, const void* buf, size_t n, int flags) {
  if (sock::may_append_nagled_here(h) && do_send_nagled(h, buf, n, flags))
    return static_cast<ssize_t>(n);
  const iovec v{const_cast<void*>(buf), n};
  return call(Restart::kSending, h, [&] { return sock::send(h, {&v, 1}, flags); });
}

ssize_t do_recvfrom(Handle h, void* buf, size_t n, int flags, sockaddr* addr, socklen_t* len) {
  const iovec v{buf, n};
  return call(Restart::kReceiving, h, [&] { return sock::recvfrom(h, {&v, 1}, flags, addr, len); });
}

/// For readv(2) and writev(2): sets errno for a vector that the kernel would reject.
bool is_bad(const iovec* v, int count) {
  const int error = count < 0 || count > UIO_MAXIOV
                        ? EINVAL
                        : sock::vector_error({v, static_cast<size_t>(count)});
  if (error == 0) return false;
  errno = error;
  return true;
}
/// Sets EFAULT for a message header, or the first of several, that is not accessible.
template <class T>
bool is_nowhere(const T* message) {
  if (is_readable(message)) [[likely]]
    return false;
  errno = EFAULT;
  return true;
}
template <class T>
bool is_nowhere(T* message) {
  if (is_writable(message)) [[likely]]
    return false;
  errno = EFAULT;
  return true;
}

/// Whether a send is to warm a path that the descriptor does not have, with EINVAL: the kernel
/// would send it.
bool is_dummy(int flags) {
  if ((flags & kDummySend) == 0 || process_stack() == nullptr) [[likely]]
    return false;
  errno = EINVAL;
  return true;
}

size_t total(const iovec* v, int count) {
  size_t n = 0;
  for (int i = 0; i < count; ++i) n += v[i].iov_len;
  return n;
}

/// preadv2(2) and pwritev2(2) of a socket. @return flags for recv and send; nullopt: errno is set.
std::optional<int> flags_of(off64_t offset, int flags, const iovec* v, int count) {
  if (offset != -1) {
    errno = ESPIPE;
    return {};
  }
  if ((flags & ~(RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT)) != 0) {
    errno = EOPNOTSUPP;
    return {};
  }
  if (is_bad(v, count)) return {};
  return (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0;
}

/// For a message on a socket of the kernel's, which may pass Vireo's descriptors to another process
/// (unix(7) SCM_RIGHTS).
[[gnu::cold]] void give_away(const msghdr& m) noexcept {
  if (m.msg_control == nullptr || m.msg_controllen == 0 ||
      !is_readable(m.msg_control, m.msg_controllen))
    return;
  const int saved = errno;
  Inside inside;
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(const_cast<msghdr*>(&m), c)) {
    if (c->cmsg_len < CMSG_LEN(0)) break;
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, reinterpret_cast<const char*>(c) + at, sizeof fd);
      sock::give_away(fd);
    }
  }
  errno = saved;
}

/// As glibc's __*_chk functions, called when the compiler knows the size of the buffer.
void check(size_t n, size_t buffer) {
  if (n > buffer) std::abort();
}

}  // namespace

extern "C" {

// ---- receive

VIREO_EXPORT ssize_t read(int fd, void* buf, size_t n) {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().read(fd, buf, n);
  if (n == 0) return 0;
  return do_recv(h, buf, n, 0);
}

VIREO_EXPORT ssize_t __read_chk(int fd, void* buf, size_t n, size_t buffer) {
  check(n, buffer);
  return read(fd, buf, n);
}

VIREO_EXPORT ssize_t readv(int fd, const iovec* v, int count) {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().readv(fd, v, count);
  if (is_bad(v, count)) return -1;
  if (total(v, count) == 0) return 0;
  return call(Restart::kReceiving, h,
              [&] { return sock::recv(h, {v, static_cast<size_t>(count)}, 0); });
}

VIREO_EXPORT ssize_t preadv2(int fd, const iovec* v, int count, off_t offset, int flags) {
  const Handle h = find_socket(fd);
  if (!h) return real().preadv2(fd, v, count, offset, flags);
  const auto how = flags_of(offset, flags, v, count);
  if (!how) return -1;
  if (total(v, count) == 0) return 0;
  return call(Restart::kReceiving, h,
              [&] { return sock::recv(h, {v, static_cast<size_t>(count)}, *how); });
}
VIREO_EXPORT ssize_t preadv64v2(int fd, const iovec* v, int count, off64_t offset, int flags) {
  return preadv2(fd, v, count, offset, flags);
}

VIREO_EXPORT ssize_t recv(int fd, void* buf, size_t n, int flags) {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().recv(fd, buf, n, flags);
  return do_recv(h, buf, n, flags);
}

VIREO_EXPORT ssize_t __recv_chk(int fd, void* buf, size_t n, size_t buffer, int flags) {
  check(n, buffer);
  return recv(fd, buf, n, flags);
}

VIREO_EXPORT ssize_t recvfrom(int fd, void* buf, size_t n, int flags, sockaddr* addr,
                              socklen_t* len) {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().recvfrom(fd, buf, n, flags, addr, len);
  return do_recvfrom(h, buf, n, flags, addr, len);
}

VIREO_EXPORT ssize_t __recvfrom_chk(int fd, void* buf, size_t n, size_t buffer, int flags,
                                    sockaddr* addr, socklen_t* len) {
  check(n, buffer);
  return recvfrom(fd, buf, n, flags, addr, len);
}

VIREO_EXPORT ssize_t recvmsg(int fd, msghdr* msg, int flags) {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().recvmsg(fd, msg, flags);
  if (is_nowhere(msg)) return -1;
  return call(Restart::kReceiving, h, [&] { return sock::recvmsg(h, *msg, flags); });
}

VIREO_EXPORT int recvmmsg(int fd, mmsghdr* vec, unsigned count, int flags, timespec* timeout) {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().recvmmsg(fd, vec, count, flags, timeout);
  if (count != 0 && is_nowhere(vec)) return -1;
  return call(Restart::kReceiving, h,
              [&] { return sock::recvmmsg(h, vec, count, flags, timeout); });
}

// ---- send

VIREO_EXPORT ssize_t write(int fd, const void* buf, size_t n) {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().write(fd, buf, n);
  return do_send(h, buf, n, 0);
}

VIREO_EXPORT ssize_t writev(int fd, const iovec* v, int count) {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().writev(fd, v, count);
  if (is_bad(v, count)) return -1;
  return call(Restart::kSending, h,
              [&] { return sock::send(h, {v, static_cast<size_t>(count)}, 0); });
}

VIREO_EXPORT ssize_t pwritev2(int fd, const iovec* v, int count, off_t offset, int flags) {
  const Handle h = find_socket(fd);
  if (!h) return real().pwritev2(fd, v, count, offset, flags);
  const auto how = flags_of(offset, flags, v, count);
  if (!how) return -1;
  return call(Restart::kSending, h,
              [&] { return sock::send(h, {v, static_cast<size_t>(count)}, *how); });
}
VIREO_EXPORT ssize_t pwritev64v2(int fd, const iovec* v, int count, off64_t offset, int flags) {
  return pwritev2(fd, v, count, offset, flags);
}

VIREO_EXPORT ssize_t send(int fd, const void* buf, size_t n, int flags) {
  const Handle h = find_socket(fd);
  if (!h) return is_dummy(flags) ? -1 : preload::libc().send(fd, buf, n, flags);
  return do_send(h, buf, n, flags);
}

VIREO_EXPORT ssize_t sendto(int fd, const void* buf, size_t n, int flags, const sockaddr* addr,
                            socklen_t len) {
  const Handle h = find_socket(fd);
  if (!h) return is_dummy(flags) ? -1 : preload::libc().sendto(fd, buf, n, flags, addr, len);
  const iovec v{const_cast<void*>(buf), n};
  return call(Restart::kSending, h, [&] { return sock::sendto(h, {&v, 1}, flags, addr, len); });
}

VIREO_EXPORT ssize_t sendmsg(int fd, const msghdr* msg, int flags) {
  const Handle h = find_socket(fd);
  if (!h) {
    if (process_stack() != nullptr && is_readable(msg) && msg->msg_controllen != 0) [[unlikely]]
      give_away(*msg);
    return is_dummy(flags) ? -1 : preload::libc().sendmsg(fd, msg, flags);
  }
  if (is_nowhere(msg)) return -1;
  return call(Restart::kSending, h, [&] { return sock::sendmsg(h, *msg, flags); });
}

VIREO_EXPORT int sendmmsg(int fd, mmsghdr* vec, unsigned count, int flags) {
  const Handle h = find_socket(fd);
  if (!h) {
    for (unsigned i = 0; process_stack() != nullptr && i < count && is_readable(&vec[i]); ++i)
      if (vec[i].msg_hdr.msg_controllen != 0) give_away(vec[i].msg_hdr);
    return is_dummy(flags) ? -1 : preload::libc().sendmmsg(fd, vec, count, flags);
  }
  if (count != 0 && is_nowhere(vec)) return -1;
  return call(Restart::kSending, h, [&] { return sock::sendmmsg(h, vec, count, flags); });
}

/// Calls that the kernel rejects for any socket are passed to it, with the socket beneath.
VIREO_EXPORT ssize_t splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t n,
                            unsigned flags) {
  constexpr unsigned kKnown = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT;
  const bool may_be_ours =
      in_offset == nullptr && out_offset == nullptr && n != 0 && (flags & ~kKnown) == 0;
  if (may_be_ours) {
    const Handle from = find_socket(in);
    if (from && !from->is_kernels() && sock::is_pipe(out))
      return call(Restart::kReceiving, from,
                  [&] { return sock::splice_to_pipe(from, out, n, flags); });
    const Handle to = find_socket(out);
    if (to && !to->is_kernels() && sock::is_pipe(in))
      return call(Restart::kSending, to, [&] { return sock::splice_from_pipe(in, to, n, flags); });
  }
  return real().splice(in, in_offset, out, out_offset, n, flags);
}

VIREO_EXPORT ssize_t sendfile(int out, int in, off_t* offset, size_t count) noexcept {
  const Handle h = find_socket(out);
  if (!h) {
    const Handle from = find_socket(in);
    if (!from || from->is_kernels() || !sock::is_pipe(out))
      return preload::libc().sendfile(out, in, offset, count);
    return splice(in, offset, out, nullptr, count, 0);
  }
  return call(Restart::kSending, h, [&] { return sock::sendfile(h, in, offset, count); });
}

VIREO_EXPORT ssize_t sendfile64(int out, int in, off64_t* offset, size_t count) noexcept {
  static_assert(sizeof(off_t) == sizeof(off64_t));
  return sendfile(out, in, offset, count);
}

}  // extern "C"
