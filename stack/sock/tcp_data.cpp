// Bytes to and from a carried TCP connection. The hot path: no allocation, no system call, one
// engine lock. Order of checks as net/ipv4/tcp.c tcp_recvmsg_locked and tcp_sendmsg_locked.
#include <sched.h>
#include <sys/uio.h>

#include <cstring>

#include "stack/engine/fast_path/receive_awaited.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/fast_open.h"
#include "stack/sock/iov.h"
#include "stack/sock/options/values.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/tcp_socket.h"
#include "stack/sock/urgent.h"
#include "stack/tcp/fast_path/nagle.h"

namespace vireo::tcp_socket {
namespace {

using tcp::State;

bool in_handshake(State s) { return s == State::kSynSent || s == State::kSynReceived; }

/// Copies what is queued behind `skip` bytes, which stay. MSG_TRUNC only counts. @return bytes, up
/// to where the program's memory `ends`.
size_t peek(const PacketChain& q, IovCursor& to, uint32_t skip, size_t limit, int flags,
            bool& ends) noexcept {
  size_t done = 0;
  for (const PacketBuf* p = q.front(); p != nullptr && done < limit; p = p->next) {
    const uint32_t over = std::min<uint32_t>(skip, p->length);
    skip -= over;
    const auto piece =
        p->bytes().subspan(over).first(std::min<size_t>(p->length - over, limit - done));
    if ((flags & MSG_TRUNC) == 0 && (ends = !copy_out(to, piece))) [[unlikely]]
      break;
    done += piece.size();
  }
  return done;
}

/// Takes what is queued. MSG_TRUNC discards instead of copying. @return bytes, as peek(). Holder of
/// the engine's lock.
size_t take(PacketChain& q, IovCursor& to, size_t limit, int flags, bool& ends) noexcept {
  size_t done = 0;
  while (done < limit && !q.empty()) {
    PacketBuf* p = q.front();
    if (p->next != nullptr) __builtin_prefetch(p->next->data());
    const size_t n = std::min<size_t>(p->length, limit - done);
    if ((flags & MSG_TRUNC) == 0 && (ends = !copy_out(to, p->bytes().first(n)))) [[unlikely]]
      break;
    done += n;
    if (n == p->length)
      q.pop_front();
    else
      q.trim_front(static_cast<uint32_t>(n));
  }
  return done;
}

/// What nearly every read is: all that is queued lies in one buffer, and there is room for it in
/// one piece. @return its bytes, taken; 0: nothing is done, go the full way.
size_t take_whole(PacketChain& q, std::span<const iovec> iov, size_t least) noexcept {
  if (q.buffers() != 1 || iov.size() != 1) return 0;
  const PacketBuf* p = q.front();
  const size_t n = p->length;
  if (n > iov[0].iov_len || n < least || !is_writable(iov[0].iov_base, n)) return 0;
  std::memcpy(iov[0].iov_base, p->data(), n);
  q.pop_front();
  return n;
}

/// The calls below without a flag that changes what they do.
constexpr int kPlainFlags = MSG_DONTWAIT | MSG_NOSIGNAL;

/// May what comes go to the program at once? Nothing is queued.
bool may_read_directly(const File& f) noexcept {
  return f.tcp_flow().tcb.single_out && f.tcp.options->socket.rcvlowat <= 1;
}

/// What nearly every read is: one piece, that takes all that is there, or that comes with the next
/// poll, on a connection on which nothing unusual goes on. @return bytes; 0: nothing was read, go
/// the full way. `polled`: what came was not for it. Holder of the engine's lock.
size_t recv_plain(Engine& e, File& f, const iovec& v, bool& polled) noexcept
    VIREO_REQUIRES(e.lock()) {
  TcpFlow& flow = f.tcp_flow();
  tcp::Tcb& t = flow.tcb;
  const Instant now = Clock::now();
  PacketChain& queue = tcp::recv_queue(t);
  if (queue.empty()) {
    if (!t.predictable || (f.tcp.shut & kShutRead) != 0) return 0;  // perhaps nothing more may come
    polled = true;
    if (may_read_directly(f)) [[likely]] {
      const Engine::PolledFor came = e.poll_for_here(flow, v, now);
      if (came.bytes != 0) [[likely]]
        return came.bytes;
      if (!came.is_worked) return 0;
    } else if (!e.poll_to_return(now)) {
      return 0;
    }
    if (queue.empty()) return 0;
  }
  if (queue.buffers() != 1 || tcp::urgent(t) != tcp::Urgent::kNone) return 0;
  const PacketBuf* p = queue.front();
  const size_t n = p->length;
  if (n > v.iov_len || n < static_cast<size_t>(f.tcp.options->socket.rcvlowat) ||
      !is_writable(v.iov_base, n)) [[unlikely]]
    return 0;
  copy_message(v.iov_base, p->data(), n);
  queue.pop_only();
  e.tcp().received(flow, static_cast<uint32_t>(n), now);
  return n;
}

/// Nothing is queued and nothing more may come: what recv returns then. nullopt: wait.
std::optional<Result<ssize_t>> end_of_stream(File& f) noexcept {
  tcp::Tcb& t = f.tcp_flow().tcb;
  if (f.tcp.undone) [[unlikely]] {
    const int error = take_error(f);
    return fail(error != 0 ? error : ENOTCONN, "recv");
  }
  if (tcp::peer_closed(t)) return 0;
  if (const int error = take_error(f); error != 0) return fail(error, "recv");
  if ((f.tcp.shut & kShutRead) != 0 || tcp::state(t) == State::kClosed) return 0;
  return std::nullopt;
}

bool is_kernels(const File& f) noexcept {
  return f.mode.load(std::memory_order_acquire) == Mode::kKernel;
}

/// A message of what is left of a call's vector. Good until the next.
class Rest {
 public:
  explicit Rest(const IovCursor& from) noexcept {
    m_.msg_iov = iov_;
    m_.msg_iovlen = from.rest(iov_);
  }
  msghdr& message() noexcept { return m_; }

 private:
  iovec iov_[UIO_MAXIOV];
  msghdr m_{};
};

/// The connection was handed over to the kernel while the call waited (hand_over.cpp): the call
/// goes on there. The File is pinned, the engine's lock not held. `done`: bytes it has already.
[[gnu::cold, gnu::noinline]] Result<ssize_t> recv_from_kernel(Handle h, const IovCursor& to,
                                                              size_t done, int flags) {
  if (done != 0 && (flags & MSG_WAITALL) == 0) return static_cast<ssize_t>(done);
  if (fd_table().find(h.fd).file != h.file) return fail(EBADF, "recv");
  Rest rest(to);
  const auto n = kernel_recvmsg(h, rest.message(), flags);
  if (!n) return done != 0 ? Result<ssize_t>(static_cast<ssize_t>(done)) : n;
  return *n + static_cast<ssize_t>(done);
}
[[gnu::cold, gnu::noinline]] Result<ssize_t> send_to_kernel(Handle h, const IovCursor& from,
                                                            size_t done, int flags) {
  if (fd_table().find(h.fd).file != h.file) return fail(EBADF, "send");
  Rest rest(from);
  const auto n = kernel_sendmsg(h, rest.message(), flags);
  if (!n) return done != 0 ? Result<ssize_t>(static_cast<ssize_t>(done)) : n;
  return *n + static_cast<ssize_t>(done);
}

/// All of recv(), the engine's lock held, which it lets go.
[[gnu::noinline]] Result<ssize_t> recv_any(Handle h, Engine& e, bool polled,
                                           std::span<const iovec> iov,
                                           int flags) VIREO_NO_THREAD_ANALYSIS {
  const SignalMark signals;
  File& f = *h.file;
  FilePin pin;
  EngineGuard guard(e, std::adopt_lock);
  if (!h.is_alive() || f.flow == nullptr) [[unlikely]] {
    if (!h.is_alive()) return fail(EBADF, "recv");
    if (!is_kernels(f)) return fail(ENOTCONN, "recv");
    pin.pin(f);
    guard.unlock();
    return recv_from_kernel(h, IovCursor(iov), 0, flags);
  }
  if ((flags & (MSG_OOB | MSG_ERRQUEUE)) != 0) [[unlikely]]
    return (flags & MSG_OOB) != 0 ? recv_urgent(f, iov, flags) : fail(EAGAIN, "recv");

  TcpFlow& flow = f.tcp_flow();
  const size_t want = iov_bytes(iov);
  const size_t least = (flags & MSG_WAITALL) != 0
                           ? std::max<size_t>(want, 1)
                           : std::clamp<size_t>(static_cast<size_t>(f.tcp.options->socket.rcvlowat),
                                                1, std::max<size_t>(want, 1));
  const bool peeks = (flags & MSG_PEEK) != 0;
  const bool is_plain = (flags & ~(MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL)) == 0;
  IovCursor to(iov);
  size_t done = 0;
  std::optional<Deadline> deadline;
  for (;;) {
    if (peeks) {
      to = IovCursor(iov);
      done = 0;
    }
    PacketChain& queue = tcp::recv_queue(flow.tcb);
    MarkStop mark;
    if (is_plain && done == 0 && tcp::urgent(flow.tcb) == tcp::Urgent::kNone) [[likely]] {
      if (const size_t n = take_whole(queue, iov, least); n != 0) {
        e.tcp().received(flow, static_cast<uint32_t>(n), Clock::now());
        return static_cast<ssize_t>(n);
      }
    }
    if (tcp::urgent(flow.tcb) != tcp::Urgent::kNone) [[unlikely]] {
      mark = stop_at_mark(f, done);
      if (mark.ends) break;
      if (mark.skip != 0 && !queue.empty() && !peeks && want != 0) {
        queue.trim_front(1);
        e.tcp().received(flow, 1, Clock::now());
      }
    }
    const auto most = static_cast<size_t>(std::min<uint64_t>(want - done, mark.most));
    bool memory_ends = false;
    const size_t n = peeks ? peek(queue, to, mark.skip, most, flags, memory_ends)
                           : take(queue, to, most, flags, memory_ends);
    done += n;
    if (n != 0 && !peeks) e.tcp().received(flow, static_cast<uint32_t>(n), Clock::now());
    if (memory_ends) [[unlikely]] {
      if (done != 0) break;
      return fail(EFAULT, "recv");
    }
    if (done >= least || (want == 0 && !queue.empty())) break;
    if (n != 0 && n == mark.most) break;  // at the mark
    if (auto end = end_of_stream(f)) {
      if (done != 0) break;
      return *end;
    }
    if (!polled) {
      polled = true;
      if (e.poll_to_return(Clock::now())) continue;
    }
    if ((flags & MSG_DONTWAIT) != 0 || f.nonblock.load(std::memory_order_relaxed)) {
      if (done != 0) break;
      return fail(EAGAIN, "recv");
    }
    pin.pin(f);
    if (!deadline) deadline = Deadline::after_ns(f.rcv_timeout_ns.load(std::memory_order_relaxed));
    const uint32_t had = peeks ? tcp::recv_queue(flow.tcb).bytes() : 0;
    DirectRead direct{flow, iov.empty() ? iovec{} : iov[0]};
    WaitFor what{h, *deadline};
    if (is_plain && done == 0 && iov.size() == 1 && (flags & MSG_WAITALL) == 0 && queue.empty() &&
        may_read_directly(f))
      what.direct = &direct;
    const auto woken = wait_until(e, what, signals, [&] {
      const tcp::Tcb& t = flow.tcb;
      return tcp::recv_queue(flow.tcb).bytes() > had || tcp::peer_closed(t) ||
             tcp::state(t) == State::kClosed || (f.tcp.shut & kShutRead) != 0 || f.flow != &flow;
    });
    if (direct.taken != 0) return static_cast<ssize_t>(direct.taken);
    if (f.flow != &flow) [[unlikely]] {
      if (!is_kernels(f)) return fail(ENOTCONN, "recv");  // another thread disconnected it
      guard.unlock();
      return recv_from_kernel(h, to, done, flags);
    }
    if (!woken) {
      if (done != 0) break;
      return std::unexpected(woken.error());
    }
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

[[gnu::hot]] Result<ssize_t> recv(Handle h, std::span<const iovec> iov,
                                  int flags) VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) [[unlikely]]
    return fail(EBADF, "recv");  // closed by another thread
  Engine& e = *engine;
  bool polled = false;
  e.acquire();
  if (iov.size() == 1 && (flags & ~kPlainFlags) == 0 && h.is_alive() && f.flow != nullptr)
      [[likely]] {
    if (const size_t n = recv_plain(e, f, iov[0], polled); n != 0) [[likely]] {
      e.unlock();
      return static_cast<ssize_t>(n);
    }
  }
  return recv_any(h, e, polled, iov, flags);
}

namespace {

Result<ssize_t> broken(File& f, int flags) noexcept {
  const int error = take_error(f);
  if (error != 0 && error != EPIPE) return fail(error, "send");
  return fail(EPIPE, (flags & MSG_NOSIGNAL) != 0 ? "send" : kSigpipe);
}

}  // namespace

void push(Handle h) {
  File& f = *h.file;
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) return;
  Engine& e = *engine;
  const EngineGuard guard(e);
  if (!h.is_alive() || f.flow == nullptr || f.tcp.options->tcp.cork != 0) return;
  // Taking a cork off pushes (tcp(7)), whether it was on or not.
  tcp::set_cork(f.tcp_flow().tcb, false, Clock::now());
  e.tcp().progress(f.tcp_flow(), Clock::now());
}

namespace {

/// Is what Linux would copy at once there, of which it takes all or nothing? append() looks again,
/// and stops where the memory ends.
bool is_next_readable(IovCursor from) noexcept {
  size_t left = 32768;  // net/core/sock.c SKB_FRAG_PAGE_ORDER
  while (left != 0 && !from.done()) {
    const size_t n = std::min(from.piece().size(), left);
    if (!is_readable(from.piece().data(), n)) return false;
    from.advance(n);
    left -= n;
  }
  return true;
}

/// Appends and sends. @return bytes taken.
size_t send_some(Engine& e, TcpFlow& flow, std::span<const iovec> iov, int flags) noexcept
    VIREO_REQUIRES(e.lock()) {
  const Instant now = Clock::now();
  const bool more = (flags & MSG_MORE) != 0;
  if ((flags & MSG_OOB) == 0) [[likely]]
    return e.tcp().send(flow, iov, more, now);
  const size_t n = tcp::append(flow.tcb, iov, more, now);
  if (n == 0) return 0;
  tcp::mark_urgent(flow.tcb);
  e.tcp().progress(flow, now);
  return n;
}

/// All of send(), of which `done` bytes are queued, the engine's lock held, which it lets go.
[[gnu::noinline]] Result<ssize_t> send_any(Handle h, Engine& e, std::span<const iovec> iov,
                                           int flags, size_t done) VIREO_NO_THREAD_ANALYSIS {
  const SignalMark signals;
  File& f = *h.file;
  FilePin pin;
  EngineGuard guard(e, std::adopt_lock);
  if (!h.is_alive() || f.flow == nullptr) [[unlikely]] {
    if (!h.is_alive()) return fail(EBADF, "send");
    if (!is_kernels(f)) return broken(f, flags);
    pin.pin(f);
    guard.unlock();
    return send_to_kernel(h, IovCursor(iov), 0, flags);
  }

  TcpFlow& flow = f.tcp_flow();
  tcp::Tcb& t = flow.tcb;
  const bool nonblock = (flags & MSG_DONTWAIT) != 0 || f.nonblock.load(std::memory_order_relaxed);
  const size_t want = iov_bytes(iov);
  IovCursor from(iov);
  from.advance(done);
  bool polled = false;
  std::optional<Deadline> deadline;
  const auto elsewhere = [&]() VIREO_NO_THREAD_ANALYSIS -> Result<ssize_t> {
    if (!is_kernels(f)) return fail(EPIPE, "send");  // another thread disconnected it
    guard.unlock();
    return send_to_kernel(h, from, done, flags);
  };
  for (;;) {
    if (done != 0 && done == want) break;
    if ((tcp::can_send(t) || tcp::is_syn_deferred(t)) && !is_next_readable(from)) [[unlikely]] {
      if (done != 0) break;
      return fail(EFAULT, "send");
    }
    if (tcp::can_send(t)) [[likely]] {
      // The vector as it stands the first time, its rest after a part was taken.
      size_t n = 0;
      if (done == 0) {
        n = send_some(e, flow, iov, flags);
      } else {
        iovec rest[16];
        n = send_some(e, flow, {rest, from.rest(rest)}, flags);
      }
      done += n;
      from.advance(n);
      if (done == want) break;
      // A part of the vector, or TCP_NOTSENT_LOWAT and some of it has left meanwhile.
      if (n != 0 && tcp::send_room(t) != 0) continue;
      if (n == 0 && polled && !nonblock && tcp::send_room(t) != 0) [[unlikely]] {
        // No frame is to be had, and nobody says when one is.
        pin.pin(f);
        guard.unlock();
        ::sched_yield();
        guard.lock();
        if (f.flow != &flow) return elsewhere();
        const bool over = deadline && deadline->passed(Clock::now());
        if (over || signals.pending()) {
          if (done != 0) break;
          return fail(over ? EAGAIN : EINTR, "send");
        }
      }
    } else if (!in_handshake(tcp::state(t))) {
      if (done != 0) break;
      return broken(f, flags);
    } else if (tcp::is_syn_deferred(t)) {
      const size_t n = e.tcp().send_syn(flow, fast_connect(f, true), iov, Clock::now());
      const auto opened = finish_connect(h, e, signals, true, nonblock, pin);
      if (!opened) {
        // What went with the SYN is sent, unless it is known that the connection failed.
        const bool failed = f.flow != &flow || tcp::state(t) == State::kClosed;
        if (n != 0 && (!failed || opened.error().code == EINPROGRESS))
          return static_cast<ssize_t>(n);
        return std::unexpected(opened.error());
      }
      done += n;
      from.advance(n);
      if (done == want) break;
      continue;
    }
    if (!polled) {
      polled = true;
      if (e.poll(Clock::now())) continue;
    }
    if (nonblock) {
      if (done != 0) break;
      return fail(EAGAIN, "send");
    }
    pin.pin(f);
    if (!deadline) deadline = Deadline::after_ns(f.snd_timeout_ns.load(std::memory_order_relaxed));
    const auto woken = wait_until(e, {h, *deadline}, signals, [&] {
      if (in_handshake(tcp::state(t))) return f.flow != &flow;
      return !tcp::can_send(t) || tcp::send_room(t) != 0 || f.flow != &flow;
    });
    if (f.flow != &flow) return elsewhere();
    if (!woken) {
      if (done != 0) break;
      return std::unexpected(woken.error());
    }
    e.tcp().waited(flow);
  }
  if (f.stack->settings().rx_poll_on_tx_tcp) [[unlikely]]
    e.poll(Clock::now());
  return static_cast<ssize_t>(done);
}

}  // namespace

Result<ssize_t> send(Handle h, std::span<const iovec> iov, int flags) VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) [[unlikely]]
    return fail(EBADF, "send");  // closed by another thread
  Engine& e = *engine;
  size_t done = 0;
  e.take_lock();  // and no acquire(): the answer first
  if (iov.size() == 1 && (flags & ~kPlainFlags) == 0 && h.is_alive() && f.flow != nullptr &&
      !f.stack->settings().rx_poll_on_tx_tcp) [[likely]] {
    // Where a lone segment may leave or a held one grow, so may data: tcp::can_send().
    TcpFlow& flow = f.tcp_flow();
    if (tcp::unsent_bytes(flow.tcb) != 0 && e.tcp().append_nagled(flow, iov[0])) {
      e.unlock();
      sock::t_nagled = &f;
      return static_cast<ssize_t>(iov[0].iov_len);
    }
    const Instant now = Clock::now();
    bool is_sent = e.tcp().send_single(flow, iov[0], now);
    if (!is_sent) {
      e.finish_deferred();
      is_sent = flow.tcb.nodelay && e.tcp().send_nodelay(flow, iov[0], now);
      if (!is_sent && tcp::can_send(flow.tcb)) {
        done = e.tcp().queue(flow, iov, false, now);
        is_sent = done != 0 && done == iov[0].iov_len;
      }
    }
    if (is_sent) [[likely]] {
      e.unlock();
      return static_cast<ssize_t>(iov[0].iov_len);
    }
  } else {
    e.finish_deferred();
  }
  return send_any(h, e, iov, flags, done);
}

}  // namespace vireo::tcp_socket

namespace vireo {

[[gnu::hot]] bool sock::send_nagled(Handle h, const void* data, size_t n,
                                    int flags) noexcept VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  Engine* const e = f.engine.load(std::memory_order_acquire);
  t_nagled = nullptr;
  if (e == nullptr || (flags & ~tcp_socket::kPlainFlags) != 0) [[unlikely]]
    return false;
  e->take_lock();
  bool is_held = false;
  // Even the description that the thread remembers may be another by now.
  if (h.is_alive() && f.is_tcp() && f.is_carried() && f.flow != nullptr) [[likely]] {
    tcp::Tcb& t = f.tcp_flow().tcb;
    is_held = !t.autocork && tcp::fits_nagled(t, n) && is_readable(data, n);
    if (is_held) [[likely]] {
      tcp::append_nagled(t, data, n);
      t_nagled = &f;
      if (tcp::is_nearly_full(t, n)) [[unlikely]]
        e->tcp().expect_segment(f.tcp_flow());
    }
  }
  e->unlock();
  return is_held;
}

}  // namespace vireo
