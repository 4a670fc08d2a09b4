// Addresses and sockets for the test programs of this folder: plain calls, an error ends the
// program with its name.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace endpoint {

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

inline int must(int result, const char* what) {
  if (result < 0) fail(what);
  return result;
}

/// A numeric IPv4 or IPv6 address with a port.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  Address(const char* text, const char* port) {
    const auto number = htons(static_cast<uint16_t>(std::atoi(port)));
    auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
      v4->sin_family = AF_INET;
      v4->sin_port = number;
      size = sizeof *v4;
    } else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
      v6->sin6_family = AF_INET6;
      v6->sin6_port = number;
      size = sizeof *v6;
    } else {
      std::fprintf(stderr, "not a numeric address: %s\n", text);
      std::exit(2);
    }
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

inline int bound(const Address& address, int type) {
  const int fd = must(socket(address.storage.ss_family, type | SOCK_CLOEXEC, 0), "socket");
  const int on = 1;
  must(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "SO_REUSEADDR");
  must(bind(fd, address.get(), address.size), "bind");
  return fd;
}

inline int connected(const Address& address, int type) {
  const int fd = must(socket(address.storage.ss_family, type | SOCK_CLOEXEC, 0), "socket");
  must(connect(fd, address.get(), address.size), "connect");
  return fd;
}

}  // namespace endpoint
