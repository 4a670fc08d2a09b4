// Two hosts in one process: two network namespaces joined by a veth pair, and a Stack in each over
// a wire of ours, so that the kernel's routes, neighbours and shadow sockets are real while data
// frames go our way. And one vocabulary of calls, spoken by the kernel's sockets and by ours,
// so that the same script must give the same results on both.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "stack/sock/calls.h"
#include "stack/sock/stack.h"

namespace vireo::test {

enum class Side : uint8_t { kKernel, kVireo };

/// What the Stack of host 1 or 2 is made of, its wire above all; called in the host's namespace.
/// The program chooses by what it links: shm_hosts.cpp has shared memory and a helper thread each.
Stack::Parts parts_of_host(int which);

/// Calls return what libc's would, or -errno.
class Host {
 public:
  explicit Host(int which);
  ~Host();

  /// Enters the namespace of this host for the calling thread.
  void enter() const;
  Stack& stack() { return *stack_; }
  in_addr address() const;
  in6_addr address6() const;

 private:
  std::string netns_;
  int ns_;  ///< not ours to lose in the child of a fork, as a UniqueFd's is
  std::unique_ptr<Stack> stack_;
};

/// The sockets of one host, by the kernel or by Vireo.
class Api {
 public:
  Api(Host& host, Side side) : host_(host), side_(side) {}

  int socket(int domain, int type);
  int bind(int fd, uint16_t port, bool any = true);
  int bind6(int fd, uint16_t port);
  int listen(int fd, int backlog = 16);
  int connect(int fd, const sockaddr* sa, socklen_t len);
  int accept(int fd, int flags = 0, sockaddr_storage* peer = nullptr);
  ssize_t send(int fd, const std::string& bytes, int flags = 0);
  ssize_t send(int fd, const void* data, size_t n, int flags);
  ssize_t recv(int fd, void* data, size_t n, int flags = 0);
  /// Up to n bytes as a string; "!ECONNRESET" and so on for an error.
  std::string recv(int fd, size_t n = 65536, int flags = 0);
  ssize_t sendto(int fd, const std::string& bytes, const sockaddr_storage& to, int flags = 0);
  ssize_t recvmsg(int fd, msghdr& msg, int flags);
  ssize_t sendmsg(int fd, const msghdr& msg, int flags);
  int shutdown(int fd, int how);
  int close(int fd);
  int dup(int fd);
  int setsockopt(int fd, int level, int name, int value);
  int setsockopt(int fd, int level, int name, const void* value, socklen_t len);
  int getsockopt(int fd, int level, int name);  ///< the value
  int getsockopt(int fd, int level, int name, void* value, socklen_t* len);
  sockaddr_storage getsockname(int fd);
  int getpeername(int fd, sockaddr_storage& out);
  int fcntl(int fd, int command, int argument = 0);
  int ioctl(int fd, unsigned long request);  ///< the int it gives
  ssize_t sendfile(int out, int in, off_t* offset, size_t count);
  /// poll(2) bits, without waiting (IN OUT ERR HUP RDHUP PRI).
  int ready(int fd);
  /// Polls until `bits` are all ready, at most 5 s.
  bool await(int fd, int bits);

  bool is_carried(int fd) const;
  bool is_listening_carried(int fd) const;
  Side side() const { return side_; }
  Host& host() { return host_; }

 private:
  Host& host_;
  Side side_;
};

sockaddr_storage address(const Host& h, uint16_t port);
sockaddr_storage address6(const Host& h, uint16_t port);
uint16_t port_of(const sockaddr_storage& sa);
inline socklen_t length(const sockaddr_storage& sa) {
  return sa.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}
inline const sockaddr* sockaddr_of(const sockaddr_storage& sa) {
  return reinterpret_cast<const sockaddr*>(&sa);
}

/// The two hosts, made once for the program; `a` is the client by custom.
struct Hosts {
  Host a{1}, b{2};
};
Hosts& hosts();
/// Before fork_prepare() of both stacks: waits until no closed connection is under way. The first
/// stack takes locks that a helper's turn of the second needs to end one; a program has one stack.
void settle_before_fork();

/// The same test on the kernel's sockets and on ours.
class BothSides : public testing::TestWithParam<Side> {
 protected:
  Api a{hosts().a, GetParam()};
  Api b{hosts().b, GetParam()};
  bool ours() const { return GetParam() == Side::kVireo; }
  /// A connection from a to b: {a's, b's}; the listener is closed.
  std::pair<int, int> connection(int domain = AF_INET);
};

}  // namespace vireo::test
