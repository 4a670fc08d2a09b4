#include "sockets.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace plain {

volatile std::sig_atomic_t g_stop = 0;

void fail(const char* what) {
  std::fprintf(stderr, "plain: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

sockaddr_in with_port(sockaddr_in address, uint32_t more) {
  address.sin_port = htons(static_cast<uint16_t>(ntohs(address.sin_port) + more));
  return address;
}

void set_nonblocking(int fd) {
  must(fcntl(fd, F_SETFL, must(fcntl(fd, F_GETFL), "F_GETFL") | O_NONBLOCK), "O_NONBLOCK");
}

void set_no_delay(int fd) {
  const int on = 1;
  must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
}

int serving(const Options& o, uint32_t more_port, int backlog) {
  const int fd =
      must(socket(AF_INET, (o.tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0), "socket");
  const int on = 1;
  must(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "SO_REUSEADDR");
  const sockaddr_in address = with_port(o.address, more_port);
  must(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
  if (o.tcp) must(listen(fd, backlog), "listen");
  return fd;
}

int connected(const Options& o, bool no_delay, uint32_t more_port) {
  const int fd =
      must(socket(AF_INET, (o.tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0), "socket");
  const sockaddr_in address = with_port(o.address, more_port);
  must(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), "connect");
  if (o.tcp && no_delay) set_no_delay(fd);
  return fd;
}

void allow_descriptors(uint32_t count) {
  rlimit limit{};
  must(getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
  const rlim_t wanted = count + 1000;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  if (limit.rlim_max < wanted) limit.rlim_max = wanted;
  must(setrlimit(RLIMIT_NOFILE, &limit), "RLIMIT_NOFILE");
}

Reader::Reader(Way way, int fd, int timeout_ms) : way_(way), fd_(fd), timeout_ms_(timeout_ms) {
  if (way == Way::kBlock) {
    if (timeout_ms < 0) return;
    const timeval time{timeout_ms / 1000, timeout_ms % 1000 * 1000};
    must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time), "SO_RCVTIMEO");
    return;
  }
  set_nonblocking(fd);
  if (way == Way::kSpin && timeout_ms >= 0) patience_ = TickRate().of_seconds(timeout_ms / 1e3);
  if (way == Way::kSelect && fd >= FD_SETSIZE) {
    errno = EBADF;
    fail("select");
  }
  if (way != Way::kEpoll) return;
  epoll_ = must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  watch(epoll_, fd, EPOLLIN, 0);
}

Reader::~Reader() {
  if (epoll_ >= 0) close(epoll_);
}

bool Reader::await() const {
  int ready = 1;
  if (way_ == Way::kPoll) {
    pollfd p{fd_, POLLIN, 0};
    ready = poll(&p, 1, timeout_ms_);
  } else if (way_ == Way::kSelect) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd_, &set);
    timeval time{timeout_ms_ / 1000, timeout_ms_ % 1000 * 1000};
    ready = select(fd_ + 1, &set, nullptr, nullptr, timeout_ms_ < 0 ? nullptr : &time);
  } else if (way_ == Way::kEpoll) {
    epoll_event event;
    ready = epoll_wait(epoll_, &event, 1, timeout_ms_);
  }
  if (ready < 0 && errno != EINTR) fail("waiting");
  return ready != 0;
}

size_t Reader::some(std::span<char> to) {
  late_ = false;
  const uint64_t start = patience_ != 0 ? ticks() : 0;
  for (;;) {
    if (way_ > Way::kSpin && !await()) {
      late_ = true;
      return 0;
    }
    const ssize_t n = recv(fd_, to.data(), to.size(), 0);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EAGAIN && errno != EINTR) {
      if (errno == ECONNRESET) return 0;
      fail("recv");
    }
    if (g_stop != 0) return 0;
    late_ = way_ == Way::kBlock ? errno == EAGAIN : patience_ != 0 && ticks() - start > patience_;
    if (late_) return 0;
  }
}

void write_all(int fd, std::span<const char> from) {
  while (!from.empty()) {
    const ssize_t n = send(fd, from.data(), from.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      from = from.subspan(static_cast<size_t>(n));
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) fail("send");
    if (g_stop != 0) return;
  }
}

int wait_events(int epoll, std::span<epoll_event> events, int timeout_ms) {
  for (;;) {
    const int n = epoll_wait(epoll, events.data(), static_cast<int>(events.size()), timeout_ms);
    if (n >= 0) return n;
    if (errno != EINTR) fail("epoll_wait");
    if (g_stop != 0) return 0;
  }
}

void watch(int epoll, int fd, uint32_t events, uint64_t tag, int operation) {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  must(epoll_ctl(epoll, operation, fd, &event), "epoll_ctl");
}

}  // namespace plain
