// Connect, one byte there and back, close; one at a time by blocking calls, or `count` at a time by
// epoll. The client closes first, so the TIME_WAIT entries are its own.
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "connect_tally.h"
#include "echo.h"

namespace plain {
namespace {

void once(const Options& o, uint32_t more_port) {
  const int fd = connected(o, true, more_port);
  char byte = 'c';
  write_all(fd, {&byte, 1});
  if (recv(fd, &byte, 1, 0) != 1) fail("the answer");
  close(fd);
}

void one_by_one(const Options& o) {
  ConnectTally tally(o.seconds);
  for (uint32_t i = 0; !tally.is_over() && g_stop == 0; ++i) {
    const uint64_t start = ticks();
    once(o, i % o.ports);
    tally.add(start);
  }
  tally.print();
}

/// `count` connections at a time, each in one of two states.
class Crowd {
 public:
  explicit Crowd(const Options& o)
      : o_(o), epoll_(must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")), members_(o.count) {}

  void run() {
    ConnectTally tally(o_.seconds);
    for (uint32_t i = 0; i < o_.count; ++i) open(i);
    std::array<epoll_event, 256> events;
    const int timeout = o_.way == Way::kSpin ? 0 : -1;
    while (!tally.is_over() && g_stop == 0) {
      const int n = wait_events(epoll_, events, timeout);
      for (const epoll_event& e : std::span(events).first(static_cast<size_t>(n)))
        step(static_cast<uint32_t>(e.data.u64), tally);
    }
    tally.print();
  }

 private:
  struct Member {
    int fd = -1;
    bool has_asked = false;
    uint64_t start = 0;
  };

  void open(uint32_t i) {
    Member& m = members_[i];
    m = {.fd = must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket"),
         .start = ticks()};
    set_no_delay(m.fd);
    const sockaddr_in to = with_port(o_.address, opened_++ % o_.ports);
    if (connect(m.fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 &&
        errno != EINPROGRESS)
      fail("connect");
    watch(epoll_, m.fd, EPOLLOUT, i);
  }

  void step(uint32_t i, ConnectTally& tally) {
    Member& m = members_[i];
    char byte = 'c';
    if (!m.has_asked) {
      write_all(m.fd, {&byte, 1});
      m.has_asked = true;
      watch(epoll_, m.fd, EPOLLIN, i, EPOLL_CTL_MOD);
      return;
    }
    const ssize_t n = recv(m.fd, &byte, 1, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n != 1) fail("the answer");
    close(m.fd);
    tally.add(m.start);
    open(i);
  }

  const Options& o_;
  int epoll_;
  uint32_t opened_ = 0;
  std::vector<Member> members_;
};

}  // namespace

void connects(const Options& o) {
  if (o.is_server) return serve_echo(o);
  allow_descriptors(o.count);
  once(o, 0);  // what a process pays for its first one is another case's (first.cpp)
  if (o.count == 1 && o.way == Way::kBlock)
    one_by_one(o);
  else
    Crowd(o).run();
}

}  // namespace plain
