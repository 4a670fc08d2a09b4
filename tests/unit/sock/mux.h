// poll, select and epoll in the vocabulary of two_hosts.h: by the kernel or by Vireo, results as
// libc's or -errno, events as text, so that a test says what both must report.
#pragma once

#include <string>
#include <vector>

#include "stack/sock/multiplex.h"
#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {

/// "IN|OUT", "" for none.
std::string bits_text(uint32_t events);

class Mux {
 public:
  explicit Mux(Api& api) : api_(api) {}
  int create();
  int ctl(int epoll, int op, int fd, uint32_t events, uint64_t data);
  int add(int epoll, int fd, uint32_t events, uint64_t data) {
    return ctl(epoll, EPOLL_CTL_ADD, fd, events, data);
  }
  int mod(int epoll, int fd, uint32_t events, uint64_t data) {
    return ctl(epoll, EPOLL_CTL_MOD, fd, events, data);
  }
  int del(int epoll, int fd) { return ctl(epoll, EPOLL_CTL_DEL, fd, 0, 0); }
  /// @return how many, or -errno.
  int wait(int epoll, epoll_event* out, int most, int timeout_ms, const sigset_t* mask = nullptr);
  /// What is ready now: "1:IN 7:OUT", ordered by data; "!EBADF" for an error.
  std::string now(int epoll, int most = 64);
  /// Waits up to 5 s for something, then as now().
  std::string next(int epoll, int most = 64);
  int poll(std::vector<pollfd>& fds, int timeout_ms, const sigset_t* mask = nullptr);
  int select(int nfds, fd_set* in, fd_set* out, fd_set* pri, int timeout_ms);
  int close(int fd);

 private:
  Api& api_;
};

/// Sends from `from` (at `a`) and waits until all of it can be read at `to`.
void deliver(Api& a, int from, Api& b, int to, const std::string& text);

}  // namespace vireo::test
