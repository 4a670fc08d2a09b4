#include "stack/sock/net_namespace.h"

#include <sys/socket.h>

#include <cerrno>

#include "stack/sock/libc.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

namespace vireo::net_namespace {
namespace {

/// No namespace has it.
constexpr uint64_t kUnknown = ~uint64_t{0};

uint64_t cookie_of(int fd) noexcept {
  uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  return libc().getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &length) == 0 ? cookie : 0;
}

/// Of this thread. 0: not known.
uint64_t cookie_here() noexcept {
  const int saved = errno;
  const int fd = libc().socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const uint64_t cookie = fd >= 0 ? cookie_of(fd) : 0;
  if (fd >= 0) kernel::close(fd);
  errno = saved;
  return cookie;
}

bool is_home(uint64_t cookie) noexcept {
  return cookie != 0 && cookie == g_home.load(std::memory_order_relaxed);
}

}  // namespace

void before_move() noexcept {
  if (has_anyone_moved()) return;
  const uint64_t here = cookie_here();
  uint64_t nobody = 0;
  g_home.compare_exchange_strong(nobody, here != 0 ? here : kUnknown, std::memory_order_relaxed);
}

bool is_of_home(int fd) noexcept { return is_home(cookie_of(fd)); }
bool is_thread_home() noexcept { return is_home(cookie_here()); }

}  // namespace vireo::net_namespace
