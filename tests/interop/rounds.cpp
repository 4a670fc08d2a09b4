// Messages sent to and fro without end: every reply is compared, and the longest round trip is
// kept, so that a stall shows.
//
//   rounds server ADDRESS PORT                              echoes TCP and UDP until SIGTERM
//   rounds client tcp|udp ADDRESS PORT BYTES PAUSE_US [N]   until SIGTERM, the peer's end, or N
//   rounds rounds deaf ADDRESS PORT                                a UDP socket that is never read
//   rounds flood ADDRESS PORT BYTES PAUSE_US                datagrams to it, unanswered
//
// A client says "up" after the first reply. At SIGUSR1, and at the end, it prints a line of JSON of
// the time since the last one. The server prints "ended: WHY" for each connection.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <string_view>
#include <vector>

#include "../integrity/endpoint.h"

namespace {

using Clock = std::chrono::steady_clock;
using endpoint::fail;
using endpoint::must;
using Bytes = std::vector<unsigned char>;

volatile std::sig_atomic_t g_end = 0;
volatile std::sig_atomic_t g_report = 0;

double milliseconds_since(Clock::time_point then) {
  return std::chrono::duration<double, std::milli>(Clock::now() - then).count();
}

// ---- server

/// A connection whose peer reads slowly holds up nobody: what it has not taken stays here.
struct Peer {
  int fd = -1;
  Bytes waiting;
};

/// @return false: it ended, and `why` is said.
bool echo(Peer& peer, int epoll) {
  std::array<unsigned char, 16384> got;
  while (peer.waiting.empty()) {
    const ssize_t n = recv(peer.fd, got.data(), got.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (n <= 0) {
      std::printf("ended: %s\n", n == 0 ? "end" : std::strerror(errno));
      return false;
    }
    peer.waiting.assign(got.begin(), got.begin() + n);
    const ssize_t sent =
        send(peer.fd, got.data(), static_cast<size_t>(n), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) peer.waiting.erase(peer.waiting.begin(), peer.waiting.begin() + sent);
  }
  if (!peer.waiting.empty()) {
    const ssize_t sent =
        send(peer.fd, peer.waiting.data(), peer.waiting.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      std::printf("ended: %s\n", std::strerror(errno));
      return false;
    }
    if (sent > 0) peer.waiting.erase(peer.waiting.begin(), peer.waiting.begin() + sent);
  }
  epoll_event event{};
  event.events = peer.waiting.empty() ? EPOLLIN : EPOLLOUT;
  event.data.ptr = &peer;
  must(epoll_ctl(epoll, EPOLL_CTL_MOD, peer.fd, &event), "EPOLL_CTL_MOD");
  return true;
}

void echo_datagrams(int fd) {
  std::array<unsigned char, 65536> datagram;
  for (;;) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const ssize_t n = recvfrom(fd, datagram.data(), datagram.size(), MSG_DONTWAIT,
                               reinterpret_cast<sockaddr*>(&from), &size);
    if (n < 0) return;
    sendto(fd, datagram.data(), static_cast<size_t>(n), 0, reinterpret_cast<sockaddr*>(&from),
           size);
  }
}

int serve(const endpoint::Address& address) {
  const int udp = endpoint::bound(address, SOCK_DGRAM);
  const int listener = endpoint::bound(address, SOCK_STREAM);
  must(listen(listener, 64), "listen");
  const int epoll = must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  Peer of_listener{listener, {}}, of_udp{udp, {}};
  const auto add = [&](Peer& peer) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &peer;
    must(epoll_ctl(epoll, EPOLL_CTL_ADD, peer.fd, &event), "EPOLL_CTL_ADD");
  };
  add(of_listener);
  add(of_udp);
  while (g_end == 0) {
    epoll_event event;
    if (epoll_wait(epoll, &event, 1, -1) != 1) continue;
    auto* const peer = static_cast<Peer*>(event.data.ptr);
    if (peer == &of_udp) {
      echo_datagrams(udp);
    } else if (peer == &of_listener) {
      const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      add(*new Peer{fd, {}});
    } else if (!echo(*peer, epoll)) {
      close(peer->fd);
      delete peer;
    }
  }
  return 0;
}

// ---- client

struct Window {
  uint64_t rounds = 0, lost = 0, wrong = 0;
  double longest = 0;  ///< ms
  Clock::time_point since = Clock::now();

  void print(const char* end) {
    std::printf(
        "{\"rounds\": %llu, \"lost\": %llu, \"wrong\": %llu, \"longest\": %.1f, "
        "\"ms\": %.0f, \"end\": \"%s\"}\n",
        static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(lost),
        static_cast<unsigned long long>(wrong), longest, milliseconds_since(since), end);
    *this = Window();
  }
};

/// @return null: the reply is there; else why there is none. "late": a datagram, in two seconds.
const char* receive_reply(int fd, bool tcp, Bytes& reply) {
  for (size_t have = 0; have < reply.size();) {
    const ssize_t n = recv(fd, reply.data() + have, reply.size() - have, 0);
    if (n == 0) return "end";
    if (n < 0 && errno == EINTR) {
      if (g_end != 0) return "stopped";
      continue;
    }
    if (n < 0) return errno == EAGAIN ? "late" : std::strerror(errno);
    if (!tcp) {
      // One that came late is not the reply to this one.
      if (static_cast<size_t>(n) != reply.size()) return "size";
      return nullptr;
    }
    have += static_cast<size_t>(n);
  }
  return nullptr;
}

int ping(const endpoint::Address& address, bool tcp, size_t bytes, unsigned pause_us,
         uint64_t most) {
  const int fd = endpoint::connected(address, tcp ? SOCK_STREAM : SOCK_DGRAM);
  const int on = 1;
  const timeval patience{2, 0};
  if (tcp)
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
  else
    must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), "SO_RCVTIMEO");
  Bytes request(std::max(bytes, sizeof(uint64_t))), reply(request.size());
  Window window;
  const char* end = "stopped";
  for (uint64_t number = 1; g_end == 0 && number <= most; ++number) {
    for (size_t i = 0; i < request.size(); ++i)
      request[i] = static_cast<unsigned char>(number * 31 + i * 7 + i / 256);
    std::memcpy(request.data(), &number, sizeof number);
    const auto start = Clock::now();
    for (size_t sent = 0; sent < request.size();) {
      const ssize_t n = send(fd, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR && g_end == 0) continue;
      if (n < 0) {
        end = std::strerror(errno);
        break;
      }
      sent += static_cast<size_t>(n);
    }
    const char* why = receive_reply(fd, tcp, reply);
    const auto is_of_earlier = [&] {  // already counted as lost
      uint64_t of = 0;
      std::memcpy(&of, reply.data(), sizeof of);
      return of < number;
    };
    while (!tcp && why == nullptr && is_of_earlier()) why = receive_reply(fd, tcp, reply);
    if (why != nullptr && std::string_view(why) == "late") {
      ++window.lost;
    } else if (why != nullptr) {
      end = why;
      break;
    } else if (reply != request) {
      ++window.wrong;
    }
    window.longest = std::max(window.longest, milliseconds_since(start));
    if (++window.rounds == 1 && number == 1) {
      std::puts("up");
    }
    if (g_report != 0) {
      g_report = 0;
      window.print("goes on");
    }
    if (pause_us != 0) usleep(pause_us);
  }
  window.print(end);
  return std::string_view(end) == "stopped" ? 0 : 1;
}

// ---- a socket that nobody reads

int be_deaf(const endpoint::Address& address) {
  endpoint::bound(address, SOCK_DGRAM);
  while (g_end == 0) pause();
  return 0;
}

int flood(const endpoint::Address& address, size_t bytes, unsigned pause_us) {
  const int fd = endpoint::connected(address, SOCK_DGRAM);
  const Bytes datagram(bytes, 'x');
  uint64_t sent = 0;
  for (; g_end == 0; ++sent) {
    if (send(fd, datagram.data(), datagram.size(), 0) < 0 && errno != EAGAIN && errno != ENOBUFS &&
        errno != EINTR)
      fail("send");
    if (pause_us != 0) usleep(pause_us);
  }
  std::printf("{\"sent\": %llu}\n", static_cast<unsigned long long>(sent));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  struct sigaction action{};  // no SA_RESTART: a blocked call must return
  action.sa_handler = [](int) { g_end = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = [](int) { g_report = 1; };
  sigaction(SIGUSR1, &action, nullptr);
  const std::string_view role = argc > 3 ? argv[1] : "";
  const auto number = [&](int at) {
    return static_cast<unsigned>(argc > at ? std::atoi(argv[at]) : 0);
  };
  if (role == "server") return serve({argv[2], argv[3]});
  if (role == "deaf") return be_deaf({argv[2], argv[3]});
  if (role == "flood") return flood({argv[2], argv[3]}, number(4), number(5));
  if (role == "client" && argc > 4)
    return ping({argv[3], argv[4]}, std::string_view(argv[2]) == "tcp", number(5), number(6),
                argc > 7 ? number(7) : UINT64_MAX);
  std::fprintf(stderr, "usage: rounds server|client|deaf|flood ..., see rounds.cpp\n");
  return 2;
}
