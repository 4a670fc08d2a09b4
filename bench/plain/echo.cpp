// Many open connections, all watched by one epoll on each side; one byte at a time goes there and
// back, on a connection chosen at random. The server side serves the cases `connects` and `first`
// too.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <random>
#include <vector>

#include "echo.h"
#include "histogram.h"

namespace plain {
namespace {

constexpr uint64_t kListener = uint64_t{1} << 32;  ///< flag in an event's tag; below it: the fd

/// @return connections accepted.
uint64_t accept_all(int epoll, int listener) {
  uint64_t accepted = 0;
  for (;; ++accepted) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) fail("accept4");
      return accepted;
    }
    set_no_delay(fd);
    watch(epoll, fd, EPOLLIN, static_cast<uint64_t>(fd));
  }
}

/// @return false: the connection has ended.
bool echo_once(int fd) {
  std::array<char, 4096> buffer;
  const ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  write_all(fd, std::span(buffer).first(static_cast<size_t>(n)));
  return true;
}

void ask(const Options& o) {
  allow_descriptors(o.count);
  const TickRate rate;
  const int epoll = must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  std::vector<int> fds;
  const uint64_t opening = monotonic_ns();
  for (uint32_t i = 0; i < o.count; ++i) {
    const int fd = connected(o, true, i % o.ports);
    set_nonblocking(fd);
    watch(epoll, fd, EPOLLIN, i);
    fds.push_back(fd);
  }
  // Each has carried something before the measurement begins.
  std::array<epoll_event, 64> events;
  char byte = 'e';
  for (uint32_t i = 0; i < o.count; ++i) {
    write_all(fds[i], {&byte, 1});
    wait_events(epoll, events, -1);
    if (recv(fds[i], &byte, 1, 0) != 1) fail("the first echo");
  }
  const double opened = static_cast<double>(monotonic_ns() - opening) / 1e9;

  std::mt19937_64 random(o.seed);
  Histogram took;
  const uint64_t begin = ticks();
  const uint64_t warm = begin + rate.of_seconds(o.seconds / 10);
  const uint64_t end = begin + rate.of_seconds(o.seconds);
  const int timeout = o.way == Way::kSpin ? 0 : -1;
  uint64_t now = begin;
  while (now < end && g_stop == 0) {
    const auto chosen = static_cast<uint32_t>(random() % o.count);
    const uint64_t start = ticks();
    write_all(fds[chosen], {&byte, 1});
    int n = 0;
    while (n == 0 && g_stop == 0) n = wait_events(epoll, events, timeout);
    if (n != 1 || events[0].data.u64 != chosen) fail("an event of another connection");
    if (recv(fds[chosen], &byte, 1, 0) != 1) fail("recv");
    now = ticks();
    if (start >= warm) took.add(now - start);
  }
  std::printf("{\"connections\":%u,\"open_seconds\":%.6f,\"messages\":%llu,", o.count, opened,
              static_cast<unsigned long long>(took.total()));
  took.print("round_trip", rate.ns_per_tick());
  std::printf("}\n");
  for (const int fd : fds) close(fd);
}

}  // namespace

void serve_echo(const Options& o) {
  allow_descriptors(o.count);
  const int epoll = must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  for (uint32_t i = 0; i < o.ports; ++i) {
    const int listener = serving(o, i);
    set_nonblocking(listener);
    watch(epoll, listener, EPOLLIN, kListener | static_cast<uint64_t>(listener));
  }
  const int timeout = o.way == Way::kSpin ? 0 : -1;
  std::array<epoll_event, 256> events;
  uint64_t accepted = 0;
  while (g_stop == 0) {
    const int n = wait_events(epoll, events, timeout);
    for (const epoll_event& e : std::span(events).first(static_cast<size_t>(n))) {
      const auto fd = static_cast<int>(e.data.u64 & (kListener - 1));
      if ((e.data.u64 & kListener) != 0)
        accepted += accept_all(epoll, fd);
      else if (!echo_once(fd))
        close(fd);
    }
  }
  std::printf("{\"accepted\":%llu}\n", static_cast<unsigned long long>(accepted));
}

void echo(const Options& o) { o.is_server ? serve_echo(o) : ask(o); }

}  // namespace plain
