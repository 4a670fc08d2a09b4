// splice(2) between a pipe and a carried socket. The kernel moves pages between its own objects; a
// carried socket is none, so the bytes are copied. The caller sees no difference (fs/splice.c,
// net/ipv4/tcp.c tcp_splice_read): the pipe's side waits unless told not to, the socket's side
// follows its own O_NONBLOCK, and data that was not moved stays where it was.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>

#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/cancel.h"
#include "stack/sock/multiplex.h"
#include "stack/sock/stack.h"

namespace vireo::sock {
namespace {

constexpr size_t kAtOnce = 16384;

/// Waits until the pipe has one of `events` or its other end is closed. @return its events; 0: it
/// would block and may not. Errors: EINTR.
Result<short> await_pipe(int pipe, short events, bool nonblock) {
  pollfd p{pipe, events, 0};
  int n = 0;
  if (nonblock) {
    n = kernel::poll_now(&p, 1);
  } else {
    const KernelWait wait;
    n = cancelable([&] { return libc().ppoll(&p, 1, nullptr, nullptr); });
  }
  if (n < 0) return fail_errno("splice");
  return p.revents;
}

/// Writes what the pipe has room for. @return bytes; -1 and errno: EAGAIN, EPIPE (with SIGPIPE).
ssize_t write_now(int pipe, const std::byte* data, size_t n) {
  const iovec v{const_cast<std::byte*>(data), n};
  const long whole = ::syscall(SYS_pwritev2, pipe, &v, 1, -1L, -1L, RWF_NOWAIT);
  if (whole >= 0 || errno != EOPNOTSUPP) return whole;
  // Before Linux 6.4: a pipe that poll(2) reports writable has room for a page.
  constexpr size_t kPage = 4096;
  size_t done = 0;
  while (done < n) {
    pollfd p{pipe, POLLOUT, 0};
    if (kernel::poll_now(&p, 1) <= 0) break;
    const long w = ::syscall(SYS_write, pipe, data + done, std::min(n - done, kPage));
    if (w < 0) return done != 0 ? static_cast<ssize_t>(done) : -1;
    done += static_cast<size_t>(w);
  }
  if (done == 0) errno = EAGAIN;
  return done != 0 ? static_cast<ssize_t>(done) : -1;
}

Result<ssize_t> one_piece(Handle h, void* at, size_t n, int flags) {
  const iovec v{at, n};
  return recv(h, {&v, 1}, flags);
}

/// Socket to pipe: the available data, as far as the pipe has room.
Result<ssize_t> fill_pipe(Handle in, int pipe, size_t n, bool nonblock) {
  std::byte buffer[kAtOnce];
  size_t done = 0;
  while (done < n) {
    if (done == 0) {
      const auto room = await_pipe(pipe, POLLOUT, nonblock);
      if (!room) return std::unexpected(room.error());
      if ((*room & POLLERR) != 0) return fail(EPIPE, kSigpipe);
      if ((*room & POLLOUT) == 0) return fail(EAGAIN, "splice");
    }
    const auto there = one_piece(in, buffer, std::min(n - done, sizeof buffer),
                                 MSG_PEEK | (done != 0 ? MSG_DONTWAIT : 0));
    if (!there && done == 0) return there;
    if (!there) break;
    const ssize_t put = *there == 0 ? 0 : write_now(pipe, buffer, static_cast<size_t>(*there));
    if (put < 0 && done == 0 && errno == EAGAIN && !nonblock) continue;  // another writer filled it
    if (put < 0 && done == 0) return fail_errno("splice");
    if (put < 0) break;
    // A datagram is consumed whole, including what did not fit.
    const bool is_stream = in->is_tcp();
    if (put != 0 || !is_stream)
      (void)one_piece(in, nullptr, is_stream ? static_cast<size_t>(put) : 0,
                      MSG_TRUNC | MSG_DONTWAIT);
    done += static_cast<size_t>(put);
    if (put < *there || put == 0 || !is_stream) break;
  }
  return static_cast<ssize_t>(done);
}

/// How many bytes a send would take at once; 0: none, or sending is not possible.
size_t room_of(Handle h) {
  // If the kernel has the connection by now (hand_over.cpp), it does the waiting.
  if (!h->is_tcp() || h->mode.load(std::memory_order_acquire) == Mode::kKernel) return kAtOnce;
  Engine* const e = h->engine.load(std::memory_order_acquire);
  if (e == nullptr) return 0;
  const EngineGuard guard(*e);
  if (!h.is_alive() || !h->is_carried() || h->flow == nullptr) return 0;
  const tcp::Tcb& t = h->tcp_flow().tcb;
  if (tcp::can_send(t) && tcp::send_room(t) == 0) e->poll(Clock::now());
  return tcp::can_send(t) ? tcp::send_room(t) : 0;
}

/// Waits until a send would take data or fail. Errors: EAGAIN, EINTR, and those of the send.
Result<size_t> await_room(Handle h) {
  for (;;) {
    if (const size_t room = room_of(h); room != 0) return room;
    const iovec nothing{};
    if (const auto may = send(h, {&nothing, 1}, 0); !may) return std::unexpected(may.error());
    if (h->nonblock.load(std::memory_order_relaxed)) return fail(EAGAIN, "splice");
    pollfd p{h.fd, POLLOUT, 0};
    const int64_t ns = h->snd_timeout_ns.load(std::memory_order_relaxed);
    const timespec limit{ns / 1'000'000'000, ns % 1'000'000'000};
    const auto ready = poll({&p, 1}, ns == 0 ? nullptr : &limit, nullptr);
    if (!ready) return std::unexpected(ready.error());
    if (*ready == 0) return fail(EAGAIN, "splice");
  }
}

/// Pipe to socket: reads from the pipe only what the socket has room for.
Result<ssize_t> drain_pipe(int pipe, Handle out, size_t n, bool nonblock) {
  std::byte buffer[kAtOnce];
  size_t done = 0;
  while (done < n) {
    int there = 0;
    if (libc().ioctl(pipe, FIONREAD, &there) != 0) return fail_errno("splice");
    if (there == 0) {
      if (done != 0) break;
      const auto data = await_pipe(pipe, POLLIN, nonblock);
      if (!data) return std::unexpected(data.error());
      if ((*data & POLLIN) != 0) continue;
      if ((*data & POLLHUP) != 0) return 0;
      return fail(EAGAIN, "splice");
    }
    const auto room = await_room(out);
    if (!room && done == 0) return std::unexpected(room.error());
    if (!room) break;
    const size_t want = std::min({n - done, static_cast<size_t>(there), *room, sizeof buffer});
    const long got = ::syscall(SYS_read, pipe, buffer, want);
    if (got < 0 && done == 0) return fail_errno("splice");
    if (got <= 0) break;
    // This data is now only in `buffer`: only the connection's end may stop the loop.
    for (size_t sent = 0; sent < static_cast<size_t>(got);) {
      const iovec rest{buffer + sent, static_cast<size_t>(got) - sent};
      const auto some = send(out, {&rest, 1}, MSG_NOSIGNAL);
      if (some) {
        sent += static_cast<size_t>(*some);
      } else if (some.error().code == EAGAIN || some.error().code == EINTR) {
        ::sched_yield();
      } else {
        return done != 0 ? Result<ssize_t>(static_cast<ssize_t>(done)) : some;
      }
    }
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

bool is_pipe(int fd) {
  struct stat s;
  return ::fstat(fd, &s) == 0 && S_ISFIFO(s.st_mode);
}

Result<ssize_t> splice_to_pipe(Handle in, int pipe, size_t n, unsigned flags) {
  const int mode = libc().fcntl(pipe, F_GETFL);
  if ((mode & O_ACCMODE) == O_RDONLY) return fail(EBADF, "splice");
  return fill_pipe(in, pipe, n, (flags & SPLICE_F_NONBLOCK) != 0 || (mode & O_NONBLOCK) != 0);
}

Result<ssize_t> splice_from_pipe(int pipe, Handle out, size_t n, unsigned flags) {
  const int mode = libc().fcntl(pipe, F_GETFL);
  if ((mode & O_ACCMODE) == O_WRONLY) return fail(EBADF, "splice");
  return drain_pipe(pipe, out, n, (flags & SPLICE_F_NONBLOCK) != 0 || (mode & O_NONBLOCK) != 0);
}

}  // namespace vireo::sock
