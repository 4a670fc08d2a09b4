// Descriptors: closing, duplicating, flags. To the program, Vireo's own descriptors do not exist,
// and these calls leave them open.
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <iterator>

#include "core/high_fd.h"
#include "core/own_fds.h"
#include "stack/preload/call.h"
#include "stack/sock/unless_busy.h"

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

using namespace vireo;           // NOLINT: the C names below live in no namespace
using namespace vireo::preload;  // NOLINT

namespace {

/// `made` is a number that a call has made from a socket of Vireo's, or -1. Numbers 0 to 2 have a
/// stream in libc, which is about to use it: a connection is passed as standard input, output and
/// error to a program that knows nothing of sockets (inetd, bash).
int for_streams(int made) noexcept {
  if (made < 0 || made > STDERR_FILENO || !fd_table().find(made)) return made;
  Inside inside;
  sock::give_to_stream(made);
  return made;
}

/// In a child of vfork(2): the last numbers that are not what the parent has there.
struct Replaced {
  int numbers[16];
  unsigned count;
  bool has(int fd) const noexcept {
    return std::find(numbers, numbers + std::min<size_t>(count, std::size(numbers)), fd) !=
           numbers + std::min<size_t>(count, std::size(numbers));
  }
};
[[gnu::tls_model("initial-exec")]] thread_local constinit Replaced t_replaced{};

/// `fd` is not in the table. In a child of vfork(2) it may be a socket of the parent's, and is made
/// ready for another program. `to`: the number that it gets; -1: it keeps its own.
void for_next_program(int fd, int to) noexcept {
  if (!Owner::may_be_child() || fd < 0) [[likely]]
    return;
  Stack* const s = process_stack();
  if (s == nullptr || s->is_owner()) return;
  const int saved = errno;
  if (!t_replaced.has(fd)) s->family().heirs.vforked_gives(fd);
  if (to >= 0) t_replaced.numbers[t_replaced.count++ % std::size(t_replaced.numbers)] = to;
  errno = saved;
}

int do_fcntl(int fd, int command, uintptr_t argument) {
  const Handle h = fd_table().find(fd);
  if (!h) {
    if (command == F_SETFD && (argument & FD_CLOEXEC) == 0) for_next_program(fd, -1);
    return preload::libc().fcntl(fd, command, argument);
  }
  const int r = call(Restart::kNever, h, [&] { return sock::fcntl(h, command, argument); });
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? for_streams(r) : r;
}

int no_such_fd() {
  errno = EBADF;
  return -1;
}

/// Whether `fd` is Vireo's for good. Its thread has low numbers for moments: then it waits.
bool is_barred(int fd) noexcept {
  for (int tries = 0; tries < 10'000 && is_own_fd(fd); ++tries) {
    if (fd >= high_number()) return true;
    ::sched_yield();
  }
  return is_own_fd(fd);
}

/// Closes or marks [first, last] except Vireo's own descriptors.
int sparing_close_range(unsigned first, unsigned last, int flags) {
  uint64_t from = first;
  while (from <= last) {
    const uint64_t own = next_own_fd(static_cast<unsigned>(from));
    const uint64_t to = own == kMaxOwnFds ? last : std::min<uint64_t>(last, own - 1);
    if (from <= to &&
        real().close_range(static_cast<unsigned>(from), static_cast<unsigned>(to), flags) != 0)
      return -1;
    if (own == kMaxOwnFds) break;
    from = own + 1;
  }
  return 0;
}

}  // namespace

namespace vireo::preload {
void forget_replaced() noexcept { t_replaced.count = 0; }
}  // namespace vireo::preload

extern "C" {

VIREO_EXPORT int close(int fd) {
  const Handle h = fd_table().find(fd);
  if (h) return call(Restart::kNever, h, [&] { return sock::close(h); });
  if (is_own_fd(fd)) [[unlikely]]
    return no_such_fd();
  return preload::libc().close(fd);
}

/// For a stream that fdopen(3) made from a socket of Vireo's: libc closes the descriptor
/// internally.
VIREO_EXPORT int fclose(FILE* stream) {
  const int fd = stream != nullptr ? fileno_unlocked(stream) : -1;
  if (fd_table().find(fd)) {
    Inside inside;
    sock::forget(fd);
  }
  return real().fclose(stream);
}

VIREO_EXPORT FILE* fdopen(int fd, const char* mode) noexcept {
  if (fd_table().find(fd)) {
    Inside inside;
    sock::give_to_stream(fd);
  }
  return real().fdopen(fd, mode);
}

VIREO_EXPORT int close_range(unsigned first, unsigned last, int flags) noexcept {
  if (real().close_range == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  // Calls that the kernel rejects fail before anything is closed.
  constexpr unsigned kKnown = CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC;
  if (first > last || (static_cast<unsigned>(flags) & ~kKnown) != 0)
    return real().close_range(first, last, flags);
  if ((static_cast<unsigned>(flags) & CLOSE_RANGE_CLOEXEC) == 0) {
    const auto end = static_cast<unsigned>(fd_table().end());
    for (unsigned fd = first; fd < end && fd <= last; ++fd) {
      Inside inside;
      sock::leave(static_cast<int>(fd));
      sock::forget(static_cast<int>(fd));
    }
  }
  return sparing_close_range(first, last, flags);
}

VIREO_EXPORT void closefrom(int first) noexcept {
  (void)close_range(static_cast<unsigned>(std::max(first, 0)), ~0U, 0);
}

VIREO_EXPORT int dup(int fd) noexcept {
  const Handle h = fd_table().find(fd);
  if (!h) return preload::libc().dup(fd);
  return for_streams(call(Restart::kNever, h, [&] { return sock::dup(h); }));
}

VIREO_EXPORT int dup2(int from, int to) noexcept {
  if (is_barred(to)) [[unlikely]]
    return no_such_fd();
  if (!fd_table().find(from) && !fd_table().find(to)) {
    for_next_program(from, to);
    return unless_busy([&] { return preload::libc().dup2(from, to); });
  }
  return for_streams(call(Restart::kNever, {}, [&] { return sock::dup_to(from, to, 0, false); }));
}

VIREO_EXPORT int dup3(int from, int to, int flags) noexcept {
  if (is_barred(to)) [[unlikely]]
    return no_such_fd();
  if (!fd_table().find(from) && !fd_table().find(to)) {
    for_next_program(from, to);
    return unless_busy([&] { return preload::libc().dup3(from, to, flags); });
  }
  return for_streams(
      call(Restart::kNever, {}, [&] { return sock::dup_to(from, to, flags, true); }));
}

VIREO_EXPORT int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const uintptr_t argument = va_arg(arguments, uintptr_t);
  va_end(arguments);
  return do_fcntl(fd, command, argument);
}

VIREO_EXPORT int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const uintptr_t argument = va_arg(arguments, uintptr_t);
  va_end(arguments);
  return do_fcntl(fd, command, argument);
}

VIREO_EXPORT int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  const Handle h = fd_table().find(fd);
  if (!h) {
    if (request == FIONCLEX) for_next_program(fd, -1);
    return preload::libc().ioctl(fd, request, argument);
  }
  return call(Restart::kNever, h, [&] { return sock::ioctl(h, request, argument); });
}

VIREO_EXPORT int sockatmark(int fd) noexcept {
  int is_at_mark = 0;
  return ioctl(fd, SIOCATMARK, &is_at_mark) < 0 ? -1 : is_at_mark;
}

}  // extern "C"
