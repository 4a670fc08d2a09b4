// Receiving from a carried TCP connection. The hot path: no allocation, no system call, one engine
// lock. Order of checks as net/ipv4/tcp.c tcp_recvmsg_locked.
#include <sys/uio.h>

#include <cstring>

#include "stack/engine/fast_path/receive_awaited.h"
#include "stack/sock/blocking.h"
#include "stack/sock/iov.h"
#include "stack/sock/options/values.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/stamps.h"
#include "stack/sock/tcp_kernel.h"
#include "stack/sock/tcp_socket.h"
#include "stack/sock/urgent.h"

namespace vireo::tcp_socket {
namespace {

using tcp::State;

/// Copies queued data after `skip` bytes, without consuming it. MSG_TRUNC only counts. @return
/// bytes; `ends`: stopped at memory that is not writable.
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

/// Consumes queued data. MSG_TRUNC discards instead of copying. @return bytes, and `ends` as
/// peek(). Holder of the engine's lock.
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

/// The common case: all queued data is in one buffer and fits into a single piece. @return bytes
/// consumed; 0: nothing was done, use the general path.
size_t take_whole(PacketChain& q, std::span<const iovec> iov, size_t least) noexcept {
  if (q.buffers() != 1 || iov.size() != 1) return 0;
  const PacketBuf* p = q.front();
  const size_t n = p->length;
  if (n > iov[0].iov_len || n < least || !is_writable(iov[0].iov_base, n)) return 0;
  std::memcpy(iov[0].iov_base, p->data(), n);
  q.pop_front();
  return n;
}

/// Whether input may go directly to the program's buffer. Requires an empty queue.
bool may_read_directly(const File& f) noexcept {
  return f.tcp_flow().tcb.single_out && f.tcp.options->socket.rcvlowat <= 1;
}

/// The common case of a read: one piece takes all that is queued or comes with the next poll, on a
/// connection in normal state. @return bytes; 0: nothing was read, use the general path. `polled`:
/// a poll was done. Holder of the engine's lock.
size_t recv_plain(Engine& e, File& f, const iovec& v, bool& polled) noexcept
    VIREO_REQUIRES(e.lock()) {
  TcpFlow& flow = f.tcp_flow();
  tcp::Tcb& t = flow.tcb;
  const Instant now = Clock::now();
  PacketChain& queue = tcp::recv_queue(t);
  if (queue.empty()) {
    if (!t.predictable || (f.tcp.shut & kShutRead) != 0) return 0;  // perhaps no more will come
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

/// What recv returns if nothing is queued and no more data will come. nullopt: wait.
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

/// A call that the common case did not complete.
struct RecvCall {
  RecvCall(Handle handle, Engine& engine, std::span<const iovec> vector, int its_flags) noexcept
      : h(handle), e(engine), iov(vector), flags(its_flags), to(vector) {}

  const Handle h;
  Engine& e;
  const std::span<const iovec> iov;
  const int flags;
  File& f = *h.file;
  TcpFlow& flow = f.tcp_flow();
  const size_t want = iov_bytes(iov);
  const size_t least = (flags & MSG_WAITALL) != 0
                           ? std::max<size_t>(want, 1)
                           : std::clamp<size_t>(static_cast<size_t>(f.tcp.options->socket.rcvlowat),
                                                1, std::max<size_t>(want, 1));
  const bool peeks = (flags & MSG_PEEK) != 0;
  const bool is_plain = (flags & ~(MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL)) == 0;
  IovCursor to;
  size_t done = 0;
  std::optional<Deadline> deadline;
  FrameTimes* times = nullptr;  ///< not null: those of the last byte are asked for

  /// The bytes received, if any, else `otherwise`.
  Result<ssize_t> end(Result<ssize_t> otherwise) const {
    return done != 0 ? static_cast<ssize_t>(done) : otherwise;
  }
};

/// Notes the times of the last byte of `q` that the call will get, `most` at most after `skip`.
[[gnu::cold, gnu::noinline]] void note_times(const RecvCall& c, const PacketChain& q, uint32_t skip,
                                             size_t most) VIREO_NO_THREAD_ANALYSIS {
  const PacketBuf* last = nullptr;
  size_t left = skip + most;
  for (const PacketBuf* p = q.front(); p != nullptr && left != 0; p = p->next) {
    last = p;
    left -= std::min<size_t>(left, p->length);
  }
  if (last != nullptr && most != 0) *c.times = {c.e.ports().arrival_of(*last), last->hw_time};
}

/// Copies queued data to the call. nullopt: it needs more, which may still come.
std::optional<Result<ssize_t>> take_queued(RecvCall& c) noexcept VIREO_NO_THREAD_ANALYSIS {
  if (c.peeks) {
    c.to = IovCursor(c.iov);
    c.done = 0;
  }
  PacketChain& queue = tcp::recv_queue(c.flow.tcb);
  MarkStop mark;
  if (c.is_plain && c.done == 0 && c.times == nullptr &&
      tcp::urgent(c.flow.tcb) == tcp::Urgent::kNone) [[likely]] {
    if (const size_t n = take_whole(queue, c.iov, c.least); n != 0) {
      c.e.tcp().received(c.flow, static_cast<uint32_t>(n), Clock::now());
      return static_cast<ssize_t>(n);
    }
  }
  if (tcp::urgent(c.flow.tcb) != tcp::Urgent::kNone) [[unlikely]] {
    mark = stop_at_mark(c.f, c.done);
    if (mark.ends) return static_cast<ssize_t>(c.done);
    if (mark.skip != 0 && !queue.empty() && !c.peeks && c.want != 0) {
      queue.trim_front(1);
      c.e.tcp().received(c.flow, 1, Clock::now());
    }
  }
  const auto most = static_cast<size_t>(std::min<uint64_t>(c.want - c.done, mark.most));
  if (c.times != nullptr) [[unlikely]]
    note_times(c, queue, c.peeks ? mark.skip : 0, most);
  bool memory_ends = false;
  const size_t n = c.peeks ? peek(queue, c.to, mark.skip, most, c.flags, memory_ends)
                           : take(queue, c.to, most, c.flags, memory_ends);
  c.done += n;
  if (n != 0 && !c.peeks) c.e.tcp().received(c.flow, static_cast<uint32_t>(n), Clock::now());
  if (memory_ends) [[unlikely]]
    return c.end(fail(EFAULT, "recv"));
  if (c.done >= c.least || (c.want == 0 && !queue.empty())) return static_cast<ssize_t>(c.done);
  if (n != 0 && n == mark.most) return static_cast<ssize_t>(c.done);  // at the mark
  if (auto end = end_of_stream(c.f)) return c.end(*end);
  return std::nullopt;
}

/// Waits for more data than is queued. nullopt: there is some. If the connection was handed over to
/// the kernel meanwhile, the call finishes there. `guard` and `pin` are the call's.
std::optional<Result<ssize_t>> wait_for_more(RecvCall& c, const SignalMark& signals,
                                             EngineGuard& guard,
                                             FilePin& pin) VIREO_NO_THREAD_ANALYSIS {
  File& f = c.f;
  TcpFlow& flow = c.flow;
  pin.pin(f);
  if (!c.deadline)
    c.deadline = Deadline::after_ns(f.rcv_timeout_ns.load(std::memory_order_relaxed));
  const uint32_t queued = tcp::recv_queue(flow.tcb).bytes();
  const uint32_t had = c.peeks ? queued : 0;
  DirectRead direct{flow, c.iov.empty() ? iovec{} : c.iov[0]};
  WaitFor what{c.h, *c.deadline};
  if (c.is_plain && c.times == nullptr && c.done == 0 && c.iov.size() == 1 &&
      (c.flags & MSG_WAITALL) == 0 && queued == 0 && may_read_directly(f))
    what.direct = &direct;
  const auto woken = wait_until(c.e, what, signals, [&] {
    const tcp::Tcb& t = flow.tcb;
    return tcp::recv_queue(flow.tcb).bytes() > had || tcp::peer_closed(t) ||
           tcp::state(t) == State::kClosed || (f.tcp.shut & kShutRead) != 0 || f.flow != &flow;
  });
  if (direct.taken != 0) return static_cast<ssize_t>(direct.taken);
  if (f.flow != &flow) [[unlikely]] {
    if (!is_kernels(f)) return fail(ENOTCONN, "recv");  // another thread disconnected it
    guard.unlock();
    return recv_from_kernel(c.h, c.to, c.done, c.flags);
  }
  if (!woken) return c.end(std::unexpected(woken.error()));
  return std::nullopt;
}

Result<ssize_t> recv_report(Handle h, std::span<const iovec> iov, int flags) {
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(iov.data());
  m.msg_iovlen = iov.size();
  return send_reports::receive(h, m, flags);
}

/// The general recv(): called with the engine's lock held, releases it.
[[gnu::noinline]] Result<ssize_t> recv_any(Handle h, Engine& e, bool polled,
                                           std::span<const iovec> iov, int flags,
                                           FrameTimes* times = nullptr) VIREO_NO_THREAD_ANALYSIS {
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
  if ((flags & (MSG_OOB | MSG_ERRQUEUE)) != 0) [[unlikely]] {
    if ((flags & MSG_ERRQUEUE) == 0) return recv_urgent(f, iov, flags);
    guard.unlock();
    return recv_report(h, iov, flags);
  }
  RecvCall call(h, e, iov, flags);
  call.times = times;
  for (;;) {
    if (const auto end = take_queued(call)) return *end;
    if (!polled) {
      polled = true;
      if (e.poll_to_return(Clock::now())) continue;
    }
    if ((flags & MSG_DONTWAIT) != 0 || f.nonblock.load(std::memory_order_relaxed))
      return call.end(fail(EAGAIN, "recv"));
    if (const auto end = wait_for_more(call, signals, guard, pin)) return *end;
  }
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

Result<ssize_t> recv_timed(Handle h, std::span<const iovec> iov, int flags,
                           FrameTimes& times) VIREO_NO_THREAD_ANALYSIS {
  Engine* const e = h->engine.load(std::memory_order_acquire);
  if (e == nullptr) [[unlikely]]
    return fail(EBADF, "recv");  // closed by another thread
  e->acquire();
  return recv_any(h, *e, false, iov, flags, &times);
}

}  // namespace vireo::tcp_socket
