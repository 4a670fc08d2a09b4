#include "dev/shm/bell.h"

#include <cerrno>
#include <utility>

#include "core/high_fd.h"
#include "dev/shm/kernel_calls.h"

namespace vireo {
namespace {

bool watch(int epoll, int fd) {
  epoll_event e = {};
  e.events = EPOLLIN | EPOLLRDHUP;
  e.data.fd = fd;
  return kernel::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

/// The result of a non-blocking recv(2) means that the peer is gone.
bool is_end(ssize_t n) { return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR); }

}  // namespace

Result<ShmBell> ShmBell::create(UniqueFd socket, bool host) {
  ShmBell bell;
  bell.epoll_.reset(to_high_number(kernel::epoll_create1(EPOLL_CLOEXEC)));
  if (!bell.epoll_) return fail_errno("shm epoll");
  if (!watch(bell.epoll_.get(), socket.get())) return fail_errno("shm epoll");
  (host ? bell.listener_ : bell.peer_) = std::move(socket);
  return bell;
}

void ShmBell::accept_peer() noexcept {
  if (!listener_) return;
  UniqueFd peer(to_high_number(kernel::accept4(listener_.get(), SOCK_NONBLOCK | SOCK_CLOEXEC)));
  if (!peer) return;
  watch(epoll_.get(), peer.get());
  peer_ = std::move(peer);
  listener_.reset();  // closing it takes it out of the epoll set
}

void ShmBell::ring() noexcept {
  accept_peer();
  // A full socket wakes the peer already; a broken one is detected by peer_died().
  const char byte = 0;
  if (peer_) (void)kernel::send(peer_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool ShmBell::clear() noexcept {
  accept_peer();
  if (!peer_) return false;
  char bytes[64];
  ssize_t n = 0;
  do n = kernel::recv(peer_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  while (n > 0);
  return is_end(n);
}

bool ShmBell::peer_died() noexcept {
  accept_peer();
  if (!peer_) return false;
  // Unread wake-up bytes may precede the end of the stream.
  char bytes[64];
  const ssize_t n = kernel::recv(peer_.get(), bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (n <= 0) return is_end(n);
  return kernel::send(peer_.get(), bytes, 0, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EPIPE;
}

}  // namespace vireo
