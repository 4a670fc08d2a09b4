// Creating, addressing and shutting down sockets, and their options.
#include <sys/socket.h>

#include "stack/extra/extra_options.h"
#include "stack/extra/socket_rings.h"
#include "stack/preload/call.h"
#include "stack/preload/extra_api.h"
#include "stack/preload/process_stack.h"
#include "stack/sock/inherited_listener.h"

using namespace vireo;           // NOLINT: the C names below live in no namespace
using namespace vireo::preload;  // NOLINT

namespace {

bool may_be_carried(int domain, int type) {
  const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
  return (domain == AF_INET || domain == AF_INET6) && (kind == SOCK_STREAM || kind == SOCK_DGRAM);
}

}  // namespace

extern "C" {

VIREO_EXPORT int socket(int domain, int type, int protocol) noexcept {
  Stack* s = may_be_carried(domain, type) ? get_stack() : nullptr;
  if (s == nullptr) return preload::libc().socket(domain, type, protocol);
  const int fd =
      call(Restart::kNever, {}, [&] { return sock::socket(*s, domain, type, protocol); });
  if (fd >= 0 && s->settings().socketxtreme) [[unlikely]]
    extra::note_socket(fd);
  return fd;
}

VIREO_EXPORT int bind(int fd, const sockaddr* addr, socklen_t len) noexcept {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().bind(fd, addr, len);
  return call(Restart::kNever, h, [&] { return sock::bind(h, addr, len); });
}

VIREO_EXPORT int listen(int fd, int backlog) noexcept {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().listen(fd, backlog);
  return call(Restart::kNever, h, [&] { return sock::listen(h, backlog); });
}

VIREO_EXPORT int connect(int fd, const sockaddr* addr, socklen_t len) {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().connect(fd, addr, len);
  return call(Restart::kSending, h, [&] { return sock::connect(h, addr, len); });
}

namespace {
/// One that came from another program gets its File now.
Handle find_listener(int fd) noexcept {
  const Handle h = fd_table().find(fd);
  if (h) return h->kind.load(std::memory_order_relaxed) == FileKind::kEpoll ? Handle{} : h;
  if (!sock::is_listener(fd)) return {};
  Stack* const stack = is_inside() ? nullptr : get_stack();
  if (stack == nullptr) return {};
  const Inside inside;
  return sock::adopt_listener(*stack, fd);
}
}  // namespace

VIREO_EXPORT int accept4(int fd, sockaddr* addr, socklen_t* len, int flags) {
  const Handle h = find_listener(fd);
  if (!h) return preload::libc().accept4(fd, addr, len, flags);
  return call(Restart::kReceiving, h, [&] { return sock::accept(h, addr, len, flags); });
}

VIREO_EXPORT int accept(int fd, sockaddr* addr, socklen_t* len) {
  const Handle h = find_listener(fd);
  if (!h) return preload::libc().accept(fd, addr, len);
  return call(Restart::kReceiving, h, [&] { return sock::accept(h, addr, len, 0); });
}

VIREO_EXPORT int shutdown(int fd, int how) noexcept {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().shutdown(fd, how);
  return call(Restart::kNever, h, [&] { return sock::shutdown(h, how); });
}

VIREO_EXPORT int getsockname(int fd, sockaddr* addr, socklen_t* len) noexcept {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().getsockname(fd, addr, len);
  return call(Restart::kNever, h, [&] { return sock::getsockname(h, addr, len); });
}

VIREO_EXPORT int getpeername(int fd, sockaddr* addr, socklen_t* len) noexcept {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().getpeername(fd, addr, len);
  return call(Restart::kNever, h, [&] { return sock::getpeername(h, addr, len); });
}

VIREO_EXPORT int setsockopt(int fd, int level, int name, const void* value,
                            socklen_t len) noexcept {
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().setsockopt(fd, level, name, value, len);
  if (extra::is_option(level, name, len)) [[unlikely]]
    return call(Restart::kNever, h, [&] { return extra::set_option(h, name, value, len); });
  return call(Restart::kNever, h, [&] { return sock::setsockopt(h, level, name, value, len); });
}

VIREO_EXPORT int getsockopt(int fd, int level, int name, void* value, socklen_t* len) noexcept {
  if (level == SOL_SOCKET && name == SO_VMA_GET_API) [[unlikely]]
    if (give_extra_api(value, len)) return 0;
  const Handle h = find_socket(fd);
  if (!h) return preload::libc().getsockopt(fd, level, name, value, len);
  if (level == SOL_SOCKET && is_readable(len) && extra::is_option(level, name, *len)) [[unlikely]]
    return call(Restart::kNever, h, [&] { return extra::get_option(h, name, value, len); });
  return call(Restart::kNever, h, [&] { return sock::getsockopt(h, level, name, value, len); });
}

}  // extern "C"
