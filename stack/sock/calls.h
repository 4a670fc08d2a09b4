// The socket calls, one function each, as preload's extern "C" names forward them. Each takes a
// Handle from fd_table().find(); a descriptor without one is the kernel's. Results carry Linux's
// errno in Err::code; errno itself is not written.
//
//   Handle h = fd_table().find(fd);
//   if (!h) return libc().recv(fd, ...);
//   auto n = sock::recv(h, iov, flags);
//   if (!n) { if (raises_sigpipe(n.error())) raise(SIGPIPE); errno = n.error().code; return -1; }
//
// EINTR is always returned: preload repeats the call if the handler has SA_RESTART, unless
// has_timeout() (signal(7)).
// Thread: any. Locks: takes control and engine locks itself.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "core/result.h"
#include "core/user_memory.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/stack.h"

namespace vireo {

/// Err::where of an EPIPE for which the program must get SIGPIPE (not with MSG_NOSIGNAL, nor if the
/// kernel has raised it already).
inline constexpr const char kSigpipe[] = "SIGPIPE";
inline bool raises_sigpipe(const Err& e) { return e.code == EPIPE && e.where == kSigpipe; }

namespace sock {

// ---- descriptors
/// socket(2). Makes a kernel socket, with a File attached if it is TCP or UDP over IPv4 or IPv6.
Result<int> socket(Stack& stack, int domain, int type, int protocol);
/// close(2) of a descriptor that has a File. The number is free on return; closing the last
/// descriptor waits as SO_LINGER asks.
Result<void> close(Handle h);
/// Before a kernel call that closes the open number: children that have its connection keep it.
void leave(int fd);
/// The number was or will be replaced or closed by a kernel call (dup2 onto it, close_range):
/// detaches it from its File without closing the kernel's descriptor.
void forget(int fd);
/// The kernel made `to` a dup of `from`: attaches `to` to the same File. The caller has called
/// forget() on `to`. Errors: EMFILE if the table has no place for it and the kernel could not serve
/// it.
Result<void> adopt_dup(int from, int to);
/// dup(2), dup2(2)/dup3(2), fcntl(F_DUPFD, F_DUPFD_CLOEXEC).
Result<int> dup(Handle h);
Result<int> dup_to(int from, int to, int flags, bool is_dup3);
Result<int> dup_from(Handle h, int least, bool cloexec);

// ---- connections
Result<void> bind(Handle h, const sockaddr* addr, socklen_t len);
Result<void> listen(Handle h, int backlog);
Result<void> connect(Handle h, const sockaddr* addr, socklen_t len);
/// accept4(2); `flags`: SOCK_NONBLOCK, SOCK_CLOEXEC.
Result<int> accept(Handle h, sockaddr* addr, socklen_t* len, int flags);
Result<void> shutdown(Handle h, int how);
Result<void> getsockname(Handle h, sockaddr* addr, socklen_t* len);
Result<void> getpeername(Handle h, sockaddr* addr, socklen_t* len);

// ---- data. The caller handles read(2) and readv(2) of zero bytes, which return 0 at once.
/// Checks a vector as the kernel does before it uses it (lib/iov_iter.c). @return errno, or 0.
inline int vector_error(std::span<const iovec> v) noexcept {
  if (!v.empty() && !is_readable(v.data(), v.size_bytes())) return EFAULT;
  for (const iovec& one : v)
    if (static_cast<ssize_t>(one.iov_len) < 0) return EINVAL;
  return 0;
}
/// For a header whose vector is not the usual one.
int unusual_error(const msghdr& m) noexcept;
/// Checks a message as the kernel does before it moves data (net/socket.c). @return errno, or 0.
inline int message_error(const msghdr& m) noexcept {
  if (m.msg_iovlen == 1 && is_readable(m.msg_iov) &&
      (static_cast<ssize_t>(m.msg_iov->iov_len) | static_cast<int>(m.msg_namelen)) >= 0) [[likely]]
    return 0;
  return unusual_error(m);
}
Result<ssize_t> recv(Handle h, std::span<const iovec> iov, int flags);
Result<ssize_t> recvfrom(Handle h, std::span<const iovec> iov, int flags, sockaddr* addr,
                         socklen_t* len);
Result<ssize_t> recvmsg(Handle h, msghdr& msg, int flags);
/// `timeout`: what is left of it is written there.
Result<int> recvmmsg(Handle h, mmsghdr* vec, unsigned count, int flags, timespec* timeout);
/// Fast path of send() for small segments that Nagle's algorithm coalesces: appends to unsent data.
/// Call it if may_append_nagled_here(): the thread's latest send() was such a one on this socket.
/// @return false: nothing was done, call send().
bool send_nagled(Handle h, const void* data, size_t n, int flags) noexcept;
/// The socket whose data the thread's latest send() held back (Nagle); a hint.
[[gnu::tls_model("initial-exec")]] inline thread_local constinit const File* t_nagled = nullptr;
inline bool may_append_nagled_here(Handle h) noexcept { return t_nagled == h.file; }
Result<ssize_t> send(Handle h, std::span<const iovec> iov, int flags);
Result<ssize_t> sendto(Handle h, std::span<const iovec> iov, int flags, const sockaddr* addr,
                       socklen_t len);
Result<ssize_t> sendmsg(Handle h, const msghdr& msg, int flags);
Result<int> sendmmsg(Handle h, mmsghdr* vec, unsigned count, int flags);
/// sendfile(2) with a socket of Vireo's as `out`.
Result<ssize_t> sendfile(Handle out, int in_fd, off_t* offset, size_t count);
/// splice(2) of a carried socket, without offsets (splice.cpp). `pipe`: is_pipe().
Result<ssize_t> splice_to_pipe(Handle in, int pipe, size_t n, unsigned flags);
Result<ssize_t> splice_from_pipe(int pipe, Handle out, size_t n, unsigned flags);
bool is_pipe(int fd);

// ---- sockets that another process gets, too (hand_over.cpp)
/// Moves the socket to the kernel in its present state: a carried connection continues there. `why`
/// is kept for vireo-stat. Errors: EOPNOTSUPP and others; the socket then stays as it is.
Result<void> hand_over(Handle h, const Refusal& why);
/// The program passes `fd` by SCM_RIGHTS: hand_over(), or a log line if that fails.
void give_away(int fd) noexcept;
enum class Untouched : uint8_t {
  kAll,
  kConnections,  ///< no listeners: a program that runs a command may have clients waiting there
};
/// Before a fork: hands over accepted connections and listeners that the program has not used yet,
/// as these are usually meant for the child.
void hand_over_untouched(Stack& stack, Untouched which = Untouched::kAll) noexcept;
/// Before the process ends in a way that Vireo does not see, while a child goes on (daemon(3)):
/// everything becomes the kernel's.
void hand_over_all(Stack& stack) noexcept;
/// The program names `fd` as a descriptor of a program that it is about to start.
void give_to_program(int fd) noexcept;
/// The program makes a stream of `fd` (fdopen(3)), or gives it a number that has a stream already:
/// libc's reads and writes on it go to the kernel.
void give_to_stream(int fd) noexcept;
/// Before an exec: descriptors without FD_CLOEXEC go to the new program, and the kernel closes the
/// other connections as it closes its own.
void give_to_next_program(Stack& stack) noexcept;

// ---- options
Result<void> setsockopt(Handle h, int level, int name, const void* value, socklen_t len);
Result<void> getsockopt(Handle h, int level, int name, void* value, socklen_t* len);
/// fcntl(2): F_GETFL, F_SETFL, F_DUPFD*; the kernel serves the rest.
Result<int> fcntl(Handle h, int command, uintptr_t argument);
/// ioctl(2): FIONREAD, SIOCOUTQ, SIOCOUTQNSD, FIONBIO, SIOCATMARK; the kernel serves the rest.
Result<int> ioctl(Handle h, unsigned long request, void* argument);

/// A send or receive timeout is set: an interrupted call is not restarted (signal(7)).
bool has_timeout(Handle h, bool sending);

// ---- for multiplexers (epoll.cpp, poll_select.cpp)
/// Polls an engine once, unless another thread does. Lock not held. @return false: found no work.
bool poll_engine(Engine& e) noexcept;
/// As poll_engine(), for a call that then returns to the program (Engine::poll_to_return()).
bool poll_engine_to_return(Engine& e, Instant now) noexcept;
/// readiness() of a File, with the lock taken; 0 for a dead handle (as EPOLLNVAL).
ReadyBits ready_now(Handle h) noexcept;

}  // namespace sock
}  // namespace vireo
