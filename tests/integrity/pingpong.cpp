// Request and response of 14 bytes, for the families that the installed sockperf does not know:
// every reply is compared, and what is lost, doubled or late is counted.
//
//   pingpong server tcp|udp ADDRESS PORT             serves until SIGINT or SIGTERM
//   pingpong client tcp|udp ADDRESS PORT SECONDS     prints counts and the median round trip
#include <netinet/tcp.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <string_view>
#include <vector>

#include "endpoint.h"

namespace {

using endpoint::fail;
using endpoint::must;

constexpr size_t kMessageBytes = 14;
using Message = std::array<char, kMessageBytes>;

volatile std::sig_atomic_t g_end = 0;

/// Reads a whole message from a stream. @return false at its end, or on a signal to stop.
bool read_message(int fd, Message& message) {
  for (size_t have = 0; have < message.size();) {
    const ssize_t n = recv(fd, message.data() + have, message.size() - have, 0);
    if (n == 0) return false;
    if (n < 0) {
      if (errno == EINTR && g_end == 0) continue;
      if (errno == EINTR) return false;
      fail("recv");
    }
    have += static_cast<size_t>(n);
  }
  return true;
}

void set_no_delay(int fd) {
  const int on = 1;
  must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
}

void serve_tcp(const endpoint::Address& address) {
  const int listener = endpoint::bound(address, SOCK_STREAM);
  must(listen(listener, 8), "listen");
  while (g_end == 0) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0 && errno == EINTR) continue;
    must(fd, "accept");
    set_no_delay(fd);
    Message message;
    while (read_message(fd, message))
      must(static_cast<int>(send(fd, message.data(), message.size(), MSG_NOSIGNAL)), "send");
    close(fd);
  }
  close(listener);
}

void serve_udp(const endpoint::Address& address) {
  const int fd = endpoint::bound(address, SOCK_DGRAM);
  while (g_end == 0) {
    std::array<char, 2048> datagram;
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const ssize_t n = recvfrom(fd, datagram.data(), datagram.size(), 0,
                               reinterpret_cast<sockaddr*>(&from), &size);
    if (n < 0) continue;
    sendto(fd, datagram.data(), static_cast<size_t>(n), 0, reinterpret_cast<sockaddr*>(&from),
           size);
  }
  close(fd);
}

int ping(const endpoint::Address& address, bool tcp, double seconds) {
  using Clock = std::chrono::steady_clock;
  const int fd = endpoint::connected(address, tcp ? SOCK_STREAM : SOCK_DGRAM);
  if (tcp) {
    set_no_delay(fd);
  } else {
    const timeval patience{1, 0};
    must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), "SO_RCVTIMEO");
  }
  std::vector<double> micros;
  uint64_t lost = 0;
  uint64_t wrong = 0;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (uint64_t number = 1; Clock::now() < end; ++number) {
    Message request{};
    std::memcpy(request.data(), &number, sizeof number);
    std::memcpy(request.data() + sizeof number, "vireo!", kMessageBytes - sizeof number);
    const auto start = Clock::now();
    if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size()))
      fail("send");
    Message reply{};
    if (tcp) {
      if (!read_message(fd, reply)) fail("the server closed");
    } else if (recv(fd, reply.data(), reply.size(), MSG_TRUNC) !=
               static_cast<ssize_t>(reply.size())) {
      ++lost;
      continue;
    }
    micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    if (reply != request) ++wrong;
  }
  close(fd);
  std::sort(micros.begin(), micros.end());
  std::printf("messages = %zu; lost = %llu; wrong = %llu; median = %.3f us\n", micros.size(),
              static_cast<unsigned long long>(lost), static_cast<unsigned long long>(wrong),
              micros.empty() ? 0.0 : micros[micros.size() / 2]);
  return lost == 0 && wrong == 0 && !micros.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: pingpong server|client tcp|udp ADDRESS PORT [SECONDS]\n");
    return 2;
  }
  struct sigaction action{};  // no SA_RESTART: a blocked call must return
  action.sa_handler = [](int) { g_end = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  const bool tcp = std::string_view(argv[2]) == "tcp";
  const endpoint::Address address(argv[3], argv[4]);
  if (std::string_view(argv[1]) == "client")
    return ping(address, tcp, argc > 5 ? std::atof(argv[5]) : 1.0);
  tcp ? serve_tcp(address) : serve_udp(address);
  return 0;
}
