// epoll(7) over the Stack's sockets.
#include <cerrno>

#include "tests/packetdrill/stack.h"

namespace vireo::packetdrill {

int Stack::epoll_create() {
  const std::lock_guard lock(mutex_);
  const int fd = new_fd();
  epolls_[fd];
  return fd;
}

int Stack::epoll_ctl(int epfd, int op, int fd, const epoll_event* event) {
  const std::lock_guard lock(mutex_);
  const auto set = epolls_.find(epfd);
  int error = 0;
  if (set == epolls_.end() || at(fd) == nullptr) {
    error = EBADF;
  } else if (op == EPOLL_CTL_DEL) {
    if (set->second.erase(fd) == 0) error = ENOENT;
  } else if (set->second.contains(fd) == (op == EPOLL_CTL_ADD)) {
    error = op == EPOLL_CTL_ADD ? EEXIST : ENOENT;
  } else {
    set->second[fd] = Watch{.event = *event};
  }
  errno = error != 0 ? error : errno;
  return error != 0 ? -1 : 0;
}

/// An edge is a bit that was not there, or an arrival since it was told of.
int Stack::collect_events(std::map<int, Watch>& watches, std::span<epoll_event> out) {
  size_t n = 0;
  for (auto& [fd, w] : watches) {
    if (n == out.size()) break;
    const auto bits =
        static_cast<short>(ready(fd) & static_cast<int>(w.event.events | EPOLLERR | EPOLLHUP));
    const uint64_t events = at(fd)->conn->events;
    const bool edge = (bits & ~w.seen) != 0 || events != w.events;
    const bool tell = bits != 0 && w.armed && ((w.event.events & EPOLLET) == 0 || edge);
    w.seen = bits;
    if (!tell) continue;
    w.events = events;
    if ((w.event.events & EPOLLONESHOT) != 0) w.armed = false;
    out[n].events = static_cast<uint32_t>(bits);
    out[n++].data = w.event.data;
  }
  return static_cast<int>(n);
}

int Stack::epoll_wait(int epfd, std::span<epoll_event> out, int timeout) {
  std::unique_lock lock(mutex_);
  const auto set = epolls_.find(epfd);
  if (set == epolls_.end()) {
    errno = EBADF;
    return -1;
  }
  const Instant end = now_ + Duration::ms(timeout);
  return static_cast<int>(wait_for(lock, timeout != 0, [&]() -> int64_t {
    const int n = collect_events(set->second, out);
    return n > 0 || timeout == 0 || (timeout > 0 && now_ >= end) ? n : -EAGAIN;
  }));
}

}  // namespace vireo::packetdrill
