// Records that threads have left the home namespace.
#include "stack/sock/net_namespace.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "stack/sock/owner.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

namespace vireo::net_namespace {
namespace {

/// No namespace has this cookie.
constexpr Cookie kUnknown = ~Cookie{0};

Cookie cookie_of(int fd) noexcept {
  const int saved = errno;
  Cookie cookie = 0;
  socklen_t length = sizeof cookie;
  if (::syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &length) != 0) cookie = 0;
  errno = saved;
  return cookie;
}

bool is_home(Cookie cookie) noexcept {
  return cookie != 0 && cookie == g_home.load(std::memory_order_relaxed);
}

}  // namespace

Cookie here() noexcept {
  const int saved = errno;
  const auto fd = static_cast<int>(::syscall(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Cookie cookie = fd >= 0 ? cookie_of(fd) : 0;
  if (fd >= 0) ::syscall(SYS_close, fd);
  errno = saved;
  return cookie;
}

void left(Cookie from) noexcept {
  if (Owner::may_be_child()) return;  // another process, which shares this memory
  Cookie nobody = 0;
  g_home.compare_exchange_strong(nobody, from != 0 ? from : kUnknown, std::memory_order_relaxed);
}

bool is_of_home(int fd) noexcept { return is_home(cookie_of(fd)); }
bool is_thread_home() noexcept { return !has_anyone_left() || is_home(here()); }

}  // namespace vireo::net_namespace
