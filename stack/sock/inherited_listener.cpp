#include "stack/sock/inherited_listener.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "core/lock.h"
#include "stack/sock/carriage.h"
#include "stack/sock/files.h"
#include "stack/sock/libc.h"
#include "stack/sock/net_namespace.h"
#include "stack/sock/options/options.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"

namespace vireo::sock {
namespace {

/// Two threads may use the same number first.
constinit Lock g_adopting;

/// -1: `fd` is no socket.
int own_property(int fd, int name) noexcept {
  int value = -1;
  socklen_t n = sizeof value;
  return libc().getsockopt(fd, SOL_SOCKET, name, &value, &n) == 0 ? value : -1;
}

}  // namespace

bool is_listener(int fd) noexcept {
  const int saved = errno;
  const bool yes =
      own_property(fd, SO_PROTOCOL) == IPPROTO_TCP && own_property(fd, SO_ACCEPTCONN) == 1;
  errno = saved;
  return yes;
}

Handle adopt_listener(Stack& stack, int fd) noexcept {
  if (!stack.is_owner() || !fd_table().has_place(fd)) return {};
  const int saved = errno;
  const LockGuard guard(g_adopting);
  if (const Handle h = fd_table().find(fd)) return h;
  auto made = open_file(stack, FileKind::kTcp, own_property(fd, SO_DOMAIN), fd);
  if (!made) return {};
  File& f = **made;
  init_options(f);
  const int flags = libc().fcntl(fd, F_GETFL);
  f.nonblock.store(flags >= 0 && (flags & O_NONBLOCK) != 0, std::memory_order_relaxed);
  f.forced.why = Carriage::kInherited;
  if (net_namespace::has_anyone_left() && !net_namespace::is_of_home(fd))
    f.forced.why = Carriage::kNamespace;
  take_options(f, fd);
  f.mode.store(Mode::kKernel, std::memory_order_release);
  f.holders.store(Holders::kUnknown, std::memory_order_relaxed);
  f.stats->listening = 1;
  record_kernel(f, refusal_of(f.forced, "made by another program"));
  record_address(*f.stats, kernel_name(fd).value_or(Endpoint{}), {});
  (void)fd_table().install(fd, f);  // cannot fail: has_place()
  errno = saved;
  return fd_table().find(fd);
}

}  // namespace vireo::sock
