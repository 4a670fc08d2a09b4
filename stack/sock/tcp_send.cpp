// Sending to a carried TCP connection. The hot path: no allocation, no system call, one engine
// lock. Order of checks as net/ipv4/tcp.c tcp_sendmsg_locked.
#include <sched.h>
#include <sys/uio.h>

#include <cstring>

#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/fast_open.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/iov.h"
#include "stack/sock/options/values.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/stack.h"
#include "stack/sock/tcp_kernel.h"
#include "stack/sock/tcp_socket.h"
#include "stack/tcp/fast_path/nagle.h"

namespace vireo::tcp_socket {
namespace {

using tcp::State;

bool in_handshake(State s) { return s == State::kSynSent || s == State::kSynReceived; }

Result<ssize_t> broken(File& f, int flags) noexcept {
  const int error = take_error(f);
  if (error != 0 && error != EPIPE) return fail(error, "send");
  return fail(EPIPE, (flags & MSG_NOSIGNAL) != 0 ? "send" : kSigpipe);
}

/// Whether the next chunk is readable that Linux would copy at once, all or nothing. append()
/// checks again, and stops where the memory ends.
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

/// A call whose data could not all be queued at once.
struct SendCall {
  SendCall(Handle handle, Engine& engine, std::span<const iovec> vector, int its_flags,
           size_t queued) noexcept
      : h(handle), e(engine), iov(vector), flags(its_flags), from(vector), done(queued) {
    from.advance(queued);
  }

  const Handle h;
  Engine& e;
  const std::span<const iovec> iov;
  const int flags;
  File& f = *h.file;
  TcpFlow& flow = f.tcp_flow();
  const bool nonblock = (flags & MSG_DONTWAIT) != 0 || f.nonblock.load(std::memory_order_relaxed);
  const size_t want = iov_bytes(iov);
  IovCursor from;
  size_t done;
  bool polled = false;
  std::optional<Deadline> deadline;
  const SignalMark signals;

  void took(size_t n) noexcept {
    done += n;
    from.advance(n);
  }
  bool is_complete() const noexcept { return done == want; }
  /// Returns the bytes queued so far.
  Result<ssize_t> end() const VIREO_NO_THREAD_ANALYSIS {
    if (f.stack->settings().rx_poll_on_tx_tcp) [[unlikely]]
      e.poll(Clock::now());
    return static_cast<ssize_t>(done);
  }
};

/// The flow has changed during the wait: the connection is the kernel's, or another thread has
/// disconnected the socket.
[[gnu::cold, gnu::noinline]] Result<ssize_t> send_elsewhere(SendCall& c, EngineGuard& guard)
    VIREO_NO_THREAD_ANALYSIS {
  if (!is_kernels(c.f)) return fail(EPIPE, "send");
  guard.unlock();
  return send_to_kernel(c.h, c.from, c.done, c.flags);
}

/// Queues as much as there is room for: first the whole vector, after a part its rest. @return
/// bytes.
size_t queue_some(SendCall& c) noexcept VIREO_NO_THREAD_ANALYSIS {
  size_t n = 0;
  if (c.done == 0) {
    n = send_some(c.e, c.flow, c.iov, c.flags);
  } else {
    iovec rest[16];
    n = send_some(c.e, c.flow, {rest, c.from.rest(rest)}, c.flags);
  }
  c.took(n);
  return n;
}

/// Sends the SYN with the first bytes. nullopt: connected, continue.
std::optional<Result<ssize_t>> send_with_syn(SendCall& c, FilePin& pin) VIREO_NO_THREAD_ANALYSIS {
  const size_t n = c.e.tcp().send_syn(c.flow, fast_connect(c.f, true), c.iov, Clock::now());
  const auto opened = finish_connect(c.h, c.e, c.signals, true, c.nonblock, pin);
  if (!opened) {
    // The data on the SYN counts as sent, unless the connection is known to have failed.
    const bool failed = c.f.flow != &c.flow || tcp::state(c.flow.tcb) == State::kClosed;
    if (n != 0 && (!failed || opened.error().code == EINPROGRESS)) return static_cast<ssize_t>(n);
    return std::unexpected(opened.error());
  }
  c.took(n);
  if (c.is_complete()) return c.end();
  return std::nullopt;
}

/// There is room, but no frame is free, and no event will tell when one is. nullopt: try again.
[[gnu::cold, gnu::noinline]] std::optional<Result<ssize_t>> yield_for_frame(
    SendCall& c, EngineGuard& guard, FilePin& pin) VIREO_NO_THREAD_ANALYSIS {
  pin.pin(c.f);
  guard.unlock();
  ::sched_yield();
  guard.lock();
  if (c.f.flow != &c.flow) return send_elsewhere(c, guard);
  const bool over = c.deadline && c.deadline->passed(Clock::now());
  if (!over && !c.signals.pending()) return std::nullopt;
  if (c.done != 0) return c.end();
  return fail(over ? EAGAIN : EINTR, "send");
}

/// Waits. nullopt: there is room, or the connection has ended.
std::optional<Result<ssize_t>> wait_for_room(SendCall& c, EngineGuard& guard,
                                             FilePin& pin) VIREO_NO_THREAD_ANALYSIS {
  File& f = c.f;
  TcpFlow& flow = c.flow;
  const tcp::Tcb& t = flow.tcb;
  pin.pin(f);
  if (!c.deadline)
    c.deadline = Deadline::after_ns(f.snd_timeout_ns.load(std::memory_order_relaxed));
  const auto woken = wait_until(c.e, {c.h, *c.deadline}, c.signals, [&] {
    if (in_handshake(tcp::state(t))) return f.flow != &flow;
    return !tcp::can_send(t) || tcp::send_room(t) != 0 || f.flow != &flow;
  });
  if (f.flow != &flow) return send_elsewhere(c, guard);
  if (!woken) {
    if (c.done != 0) return c.end();
    return std::unexpected(woken.error());
  }
  c.e.doorbells().waited(flow);
  return std::nullopt;
}

/// Sends until all is queued, or as long as the call may wait.
[[gnu::always_inline]] inline Result<ssize_t> send_all(SendCall& call, EngineGuard& guard,
                                                       FilePin& pin) VIREO_NO_THREAD_ANALYSIS {
  File& f = call.f;
  const tcp::Tcb& t = call.flow.tcb;
  for (;;) {
    if (call.done != 0 && call.is_complete()) return call.end();
    if ((tcp::can_send(t) || tcp::is_syn_deferred(t)) && !is_next_readable(call.from)) [[unlikely]]
      return call.done != 0 ? call.end() : fail(EFAULT, "send");
    if (tcp::can_send(t)) [[likely]] {
      const size_t n = queue_some(call);
      if (call.is_complete()) return call.end();
      // After a part of the vector, or if sending has made room below TCP_NOTSENT_LOWAT.
      if (n != 0 && tcp::send_room(t) != 0) continue;
      if (n == 0 && call.polled && !call.nonblock && tcp::send_room(t) != 0) [[unlikely]]
        if (const auto end = yield_for_frame(call, guard, pin)) return *end;
    } else if (!in_handshake(tcp::state(t))) {
      return call.done != 0 ? call.end() : broken(f, call.flags);
    } else if (tcp::is_syn_deferred(t)) {
      if (const auto end = send_with_syn(call, pin)) return *end;
      continue;
    }
    if (!call.polled) {
      call.polled = true;
      if (call.e.poll(Clock::now())) continue;
    }
    if (call.nonblock) return call.done != 0 ? call.end() : fail(EAGAIN, "send");
    if (const auto end = wait_for_room(call, guard, pin)) return *end;
  }
}

/// The same with what the program wants to know of it.
[[gnu::cold, gnu::noinline]] Result<ssize_t> send_reported(SendCall& call, const SendAsks& asks,
                                                           EngineGuard& guard,
                                                           FilePin& pin) VIREO_NO_THREAD_ANALYSIS {
  send_reports::begin_stream(call.f, asks, call.want);
  auto n = send_all(call, guard, pin);
  if (call.f.flow == &call.flow) send_reports::end_stream(call.f, asks, call.want, call.done);
  return n;
}

/// The general send(), after `done` bytes were queued. Releases the engine's lock, held on entry.
/// `control`: what ancillary data asks for; null: there is none.
[[gnu::noinline]] Result<ssize_t> send_any(
    Handle h, Engine& e, std::span<const iovec> iov, int flags, size_t done,
    const SendAsks* control = nullptr) VIREO_NO_THREAD_ANALYSIS {
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
  SendCall call(h, e, iov, flags, done);
  if (f.tcp.sends_apart && fd_table().reports_of(f) != nullptr) [[unlikely]]
    return send_reported(
        call, control != nullptr ? *control : send_reports::asks_of(*f.tcp.options, flags), guard,
        pin);
  return send_all(call, guard, pin);
}

}  // namespace

void push(Handle h) {
  File& f = *h.file;
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) return;
  Engine& e = *engine;
  const EngineGuard guard(e);
  if (!h.is_alive() || f.flow == nullptr || f.tcp.options->tcp.cork != 0) return;
  // Clearing the cork pushes (tcp(7)), whether it was set or not.
  tcp::set_cork(f.tcp_flow().tcb, false, Clock::now());
  e.tcp().progress(f.tcp_flow(), Clock::now());
}

Result<ssize_t> send(Handle h, std::span<const iovec> iov, int flags) VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) [[unlikely]]
    return fail(EBADF, "send");  // closed by another thread
  Engine& e = *engine;
  size_t done = 0;
  e.take_lock();  // not acquire(), whose deferred work can wait until the reply is sent
  if (iov.size() == 1 && (flags & ~kPlainFlags) == 0 && h.is_alive() && f.flow != nullptr &&
      !f.tcp.sends_apart) [[likely]] {
    // The states that permit a lone segment, or growth of a held one, permit data: tcp::can_send().
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

Result<ssize_t> send_with_control(Handle h, const msghdr& msg, int flags) VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  Engine* const e = f.engine.load(std::memory_order_acquire);
  if (e == nullptr) [[unlikely]]
    return fail(EBADF, "send");  // closed by another thread
  e->acquire();
  SocketOptions o;
  if (h.is_alive()) o = *f.tcp.options;
  const auto asks = send_reports::asks_of_stream(o, msg, flags);
  if (!asks) {
    e->unlock();
    return std::unexpected(asks.error());
  }
  if (asks->stamps != 0 && h.is_alive() && send_reports::of(f) != nullptr) f.tcp.sends_apart = true;
  return send_any(h, *e, {msg.msg_iov, msg.msg_iovlen}, flags, 0, &*asks);
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
  // The description that the thread remembers may have been closed and reused.
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
