// Transfers the rest of a vector by the kernel's recvmsg(2) and sendmsg(2).
#include "stack/sock/tcp_kernel.h"

#include <sys/uio.h>

#include "stack/sock/fd_table.h"
#include "stack/sock/shadow.h"

namespace vireo::tcp_socket {
namespace {

/// A message header for the rest of a call's vector. Valid while this object lives.
class Rest {
 public:
  explicit Rest(const IovCursor& from) noexcept {
    m_.msg_iov = iov_;
    m_.msg_iovlen = from.rest(iov_);
  }
  msghdr& message() noexcept { return m_; }

 private:
  iovec iov_[UIO_MAXIOV];
  msghdr m_{};
};

}  // namespace

[[gnu::cold]] Result<ssize_t> recv_from_kernel(Handle h, const IovCursor& to, size_t done,
                                               int flags) {
  if (done != 0 && (flags & MSG_WAITALL) == 0) return static_cast<ssize_t>(done);
  if (fd_table().find(h.fd).file != h.file) return fail(EBADF, "recv");
  Rest rest(to);
  const auto n = kernel_recvmsg(h, rest.message(), flags);
  if (!n) return done != 0 ? Result<ssize_t>(static_cast<ssize_t>(done)) : n;
  return *n + static_cast<ssize_t>(done);
}
[[gnu::cold]] Result<ssize_t> send_to_kernel(Handle h, const IovCursor& from, size_t done,
                                             int flags) {
  if (fd_table().find(h.fd).file != h.file) return fail(EBADF, "send");
  Rest rest(from);
  const auto n = kernel_sendmsg(h, rest.message(), flags);
  if (!n) return done != 0 ? Result<ssize_t>(static_cast<ssize_t>(done)) : n;
  return *n + static_cast<ssize_t>(done);
}

}  // namespace vireo::tcp_socket
