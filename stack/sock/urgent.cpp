// Urgent data as the program sees it: recv(MSG_OOB), the mark at which reads stop, SIGURG. Results
// and errno are Linux's (net/ipv4/tcp.c tcp_recv_urg; tcp(7), recv(2), sockatmark(3), fcntl(2)).
#include "stack/sock/urgent.h"

#include <csignal>

#include <sys/syscall.h>
#include <unistd.h>

#include "stack/sock/async_io.h"
#include "stack/sock/calls.h"
#include "stack/sock/iov.h"
#include "stack/sock/options/options.h"
#include "stack/sock/tcp_socket.h"

namespace vireo::tcp_socket {

using tcp::Urgent;

Result<ssize_t> recv_urgent(File& f, std::span<const iovec> iov, int flags) noexcept {
  tcp::Tcb& t = f.tcp_flow().tcb;
  const Urgent u = tcp::urgent(t);
  if (f.tcp.options->socket.oobinline != 0 || u == Urgent::kNone || u == Urgent::kTaken)
    return fail(EINVAL, "recv");
  if (u == Urgent::kThere) {
    const std::byte b = tcp::take_urgent(t, (flags & MSG_PEEK) != 0);
    IovCursor to(iov);
    if (to.done()) return 0;
    if ((flags & MSG_TRUNC) == 0 && !copy_out(to, {&b, 1})) return fail(EFAULT, "recv");
    return 1;
  }
  if (tcp::state(t) == tcp::State::kClosed || (f.tcp.shut & kShutRead) != 0 || tcp::peer_closed(t))
    return 0;
  return fail(EAGAIN, "recv");  // never waits
}

MarkStop stop_at_mark(File& f, size_t done) noexcept {
  const tcp::Tcb& t = f.tcp_flow().tcb;
  const uint64_t before = tcp::bytes_to_mark(t);
  if (before != 0) return {.most = before};
  if (done != 0) return {.ends = true};
  if (f.tcp.options->socket.oobinline != 0) return {};
  return {.skip = 1};
}

void send_sigurg(const File& f) noexcept {
  const SignalOwner& to = f.tcp.options->owner;
  if (to.pid == 0) return;
  if (to.is_thread)
    ::syscall(SYS_tgkill, ::getpid(), to.pid, SIGURG);
  else
    ::kill(to.pid, SIGURG);  // a process group is negative, as in F_SETOWN
}

std::optional<Result<int>> owner_call(Handle h, int command, uintptr_t argument) noexcept {
  File& f = *h.file;
  auto* const ex = reinterpret_cast<f_owner_ex*>(argument);
  if (command != F_SETOWN && command != F_GETOWN && command != F_SETOWN_EX &&
      command != F_GETOWN_EX)
    return std::nullopt;
  if ((command == F_SETOWN_EX && !is_readable(ex)) || (command == F_GETOWN_EX && !is_writable(ex)))
    return fail(EFAULT, "fcntl");
  const LockGuard control(f.control);
  if (!h.is_alive()) return fail(EBADF, "fcntl");
  SocketOptions s = *f.tcp.options;
  if (command == F_GETOWN) return s.owner.is_thread ? 0 : static_cast<int>(s.owner.pid);
  if (command == F_GETOWN_EX) {
    *ex = sock::owner_in(s.owner);
    return 0;
  }
  // The kernel validates; if the socket beneath is not shared, it needs the value too.
  if (libc().fcntl(h.fd, command, argument) != 0) return fail_errno("fcntl");
  const bool plain = command == F_SETOWN;
  const pid_t id = plain ? static_cast<pid_t>(argument) : ex->pid;
  s.owner = {.is_thread = !plain && ex->type == F_OWNER_TID,
             .pid = !plain && ex->type == F_OWNER_PGRP ? -id : id};
  if (auto ok = replace_options(f, s); !ok) return std::unexpected(ok.error());
  sock::set_async_owner(f, s.owner);
  return 0;
}

}  // namespace vireo::tcp_socket
