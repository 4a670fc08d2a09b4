// Receiving datagrams: Vireo's queue first; the kernel's once in VMA_RX_UDP_POLL_OS_RATIO polls,
// when a multiplexer saw it readable, and before sleeping. Semantics as net/ipv4/udp.c udp_recvmsg.
#include <netinet/in.h>

#include "stack/engine/fast_path/receive_awaited.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/inspection.h"
#include "stack/sock/iov.h"
#include "stack/sock/multiplex.h"
#include "stack/sock/options/values.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/udp_ancillary.h"
#include "stack/sock/udp_joined.h"
#include "stack/sock/udp_socket.h"
#include "stack/wire/parse.h"
#include "stack/wire/plain.h"

namespace vireo::udp_socket {
namespace {

/// Whether there is, or may be, ancillary data to return.
[[gnu::always_inline]] inline bool has_control(const File& f) noexcept {
  const DatagramControl c = f.udp->control;
  if (c == DatagramControl::kNever) [[likely]]
    return false;
  return c == DatagramControl::kAlways || f.stats->rx_drops.get() != 0;
}

/// Polls between two looks at the kernel's queue, where that gets the datagrams.
constexpr int kSharedRatio = 16;
/// The same where it may begin to get them meanwhile, if the setting is 0, never.
constexpr int kSharableRatio = 1000;

/// Flags that need no special path.
constexpr int kPlainFlags = MSG_DONTWAIT | MSG_NOSIGNAL;

/// @return false: EFAULT.
template <class By>
bool give_source(const File& f, const IpAddr& src, uint16_t port, By&& by, msghdr& msg) {
  const uint32_t scope = !src.is_v4() && src.is_link_local() ? by().value() : 0;
  return give_address({src, port, scope}, f.domain.load(std::memory_order_relaxed),
                      static_cast<sockaddr*>(msg.msg_name), &msg.msg_namelen) == 0;
}

/// Copies the first datagrams, of `total` bytes; if that fails they are lost. @return recvmsg's
/// result.
Result<ssize_t> hand_over(UdpFlow& u, msghdr& msg, unsigned datagrams, size_t total, int flags) {
  IovCursor to({msg.msg_iov, msg.msg_iovlen});
  size_t copied = 0;
  bool is_lost = false;  // as in the kernel, which dequeues a datagram before it copies it
  const auto copy = [&](const PacketBuf& p) {
    const auto n = is_lost ? std::nullopt : copy_out(to, p.bytes());
    copied += n.value_or(0);
    is_lost = !n;
  };
  if ((flags & MSG_PEEK) != 0) {
    for (const PacketBuf* p = u.queue.front();; p = p->next) {
      copy(*p);
      if (p->offset == 0) break;
    }
  } else {
    while (datagrams != 0) {
      PacketRef p = u.queue.pop_front();
      copy(*p);
      if (p->offset == 0) --datagrams;
      UdpFlows::received(u, *p);
    }
  }
  if (is_lost) return fail(EFAULT, "recv");
  if (copied < total) msg.msg_flags |= MSG_TRUNC;
  return static_cast<ssize_t>((flags & MSG_TRUNC) != 0 ? total : copied);
}

/// As give_source(), with the address read at fixed offsets before `payload`.
bool give_plain_source(const File& f, const std::byte* payload, msghdr& msg) {
  const int domain = f.domain.load(std::memory_order_relaxed);
  const uint32_t src = wire::plain_udp4_src(payload);
  const uint16_t port = wire::plain_udp4_src_port(payload);
  if (domain == AF_INET && msg.msg_namelen >= sizeof(sockaddr_in) &&
      is_writable(msg.msg_name, sizeof(sockaddr_in))) [[likely]] {
    const sockaddr_in sa{
        .sin_family = AF_INET, .sin_port = port, .sin_addr = {.s_addr = src}, .sin_zero = {}};
    std::memcpy(msg.msg_name, &sa, sizeof sa);
    msg.msg_namelen = sizeof sa;
    return true;
  }
  return give_address({IpAddr::v4(std::bit_cast<be32>(src)), std::byteswap(port), 0}, domain,
                      static_cast<sockaddr*>(msg.msg_name), &msg.msg_namelen) == 0;
}

/// Dequeues the first datagram, which is all in its first buffer, and copies `n` bytes of it to
/// `to`, which is writable. @return its length.
[[gnu::always_inline]] inline size_t take_whole(UdpFlow& u, void* to, size_t n) {
  const PacketRef p = u.queue.buffers() == 1 ? u.queue.pop_only() : u.queue.pop_front();
  copy_message(to, p->data(), n);
  UdpFlows::received(u, *p);
  return p->length;
}
/// How many of its bytes fit into `to`; 0: none, or `to` is not writable.
[[gnu::always_inline]] inline size_t writable_bytes(const PacketBuf& front, const iovec& to) {
  const size_t n = std::min<size_t>(front.length, to.iov_len);
  return n != 0 && is_writable(to.iov_base, n) ? n : 0;
}

/// The common case: the first datagram of the queue, if it came in one buffer over IPv4 and only
/// its bytes and source are requested. @return -1: nothing was done.
[[gnu::always_inline]] inline ssize_t deliver_plain(const File& f, msghdr& msg, int flags) {
  UdpFlow& u = f.udp_flow();
  const PacketBuf& front = *u.queue.front();
  if (front.offset != 0 || front.cookie != wire::kPlainUdp4Headers || msg.msg_iovlen != 1 ||
      (flags & MSG_PEEK) != 0 || has_control(f))
    return -1;
  const size_t n = writable_bytes(front, *msg.msg_iov);
  if (n == 0 || (msg.msg_name != nullptr && !give_plain_source(f, front.data(), msg))) [[unlikely]]
    return -1;
  const size_t length = take_whole(u, msg.msg_iov->iov_base, n);
  msg.msg_controllen = 0;
  msg.msg_flags = n < length ? MSG_TRUNC : 0;
  return static_cast<ssize_t>((flags & MSG_TRUNC) != 0 ? length : n);
}
/// The same if only its bytes are requested.
[[gnu::always_inline]] inline ssize_t deliver_bytes(const File& f, const iovec& to) {
  UdpFlow& u = f.udp_flow();
  const PacketBuf& front = *u.queue.front();
  const size_t n = writable_bytes(front, to);
  if (front.offset != 0 || n == 0) return -1;
  take_whole(u, to.iov_base, n);
  return static_cast<ssize_t>(n);
}

/// Returns the first datagram of the queue to the caller. Holder of the engine's lock.
Result<ssize_t> deliver(const File& f, Engine& e, msghdr& msg, int flags) VIREO_NO_THREAD_ANALYSIS {
  if (const ssize_t n = deliver_plain(f, msg, flags); n >= 0) [[likely]]
    return n;
  UdpFlow& u = f.udp_flow();
  msg.msg_flags = 0;
  Joined joined = first_alone(u);
  const bool control = has_control(f);
  if (control && f.udp->options.udp.gro != 0 && (flags & MSG_PEEK) == 0) [[unlikely]]
    joined = join_alike(u, msg);
  bool is_named = true;
  if (msg.msg_name != nullptr || control) {
    const PacketBuf& first = *u.queue.front();
    const unsigned head = header_bytes(first);
    const auto parsed =
        wire::parse_frame({first.data() - head, head + first.length}, UINT16_MAX);  // parsed before
    const auto by = [&] { return e.host().came_by(u, first, parsed); };
    if (msg.msg_name != nullptr && parsed)
      is_named = give_source(f, parsed.src(), parsed.src_port, by, msg);
    if (control)
      put_control(f, parsed, by, {e.ports().arrival_of(first), first.hw_time}, joined, msg);
  }
  if (!control) msg.msg_controllen = 0;
  const auto n = hand_over(u, msg, joined.datagrams, joined.bytes, flags);
  if (n && !is_named) return fail(EFAULT, "recv");
  return n;
}

/// Whether to check the kernel's queue although Vireo's may have a datagram.
[[gnu::always_inline]] inline bool is_kernels_turn(const File& f, Instant now) noexcept {
  UdpSocket& s = *f.udp;
  if (!f.kernel_hint.load(std::memory_order_relaxed) && --s.kernel_look != 0 && now < s.kernel_due)
      [[likely]]
    return false;
  const int ratio = f.stack->settings().rx_udp_poll_os_ratio;
  s.kernel_look = ratio > 0 ? static_cast<uint32_t>(ratio) : UINT32_MAX;
  s.kernel_due = now + Duration::ms(1);
  return true;
}

/// What a call has done so far.
enum class Progress : uint8_t {
  kNone,
  kKernelsTurn,  ///< check the kernel's queue first
  kPolled,       ///< polled without a datagram for this call
};

/// A call that found nothing queued. `of_bytes`: one piece, no flag that needs a special path, and
/// only bytes requested.
struct RecvCall {
  const Handle h;
  Engine& e;
  msghdr& msg;
  const int flags;
  const bool of_bytes;
  File& f = *h.file;
  const socklen_t name_room = msg.msg_namelen;
  const size_t control_room = msg.msg_controllen;
  bool has_waited = false;
  Deadline deadline = Deadline::never();  ///< set at the first wait

  /// Restores the lengths that the program passed.
  void give_room() const noexcept {
    msg.msg_namelen = name_room;
    msg.msg_controllen = control_room;
  }
};

/// The kernel delivers, as other sockets of the host have the port, too.
bool is_shared(const File& f) noexcept {
  const SharedPort shared = f.stats->shared.load(std::memory_order_relaxed);
  return shared == SharedPort::kKernel || shared == SharedPort::kBoth;
}

/// Receives from the kernel's queue. nullopt: it is empty.
std::optional<Result<ssize_t>> look_at_kernel(RecvCall& c, EngineGuard& guard,
                                              FilePin& pin) VIREO_NO_THREAD_ANALYSIS {
  pin.pin(c.f);
  guard.unlock();
  c.give_room();
  auto n = kernel_recvmsg(c.h, c.msg, c.flags | MSG_DONTWAIT);
  // Where the kernel delivers all, the next call asks it first, until its queue is empty.
  if (n && is_shared(c.f)) c.f.kernel_hint.store(true, std::memory_order_relaxed);
  if (n || n.error().code != EAGAIN) return n;
  c.give_room();
  c.f.kernel_hint.store(false, std::memory_order_relaxed);
  guard.lock();
  return std::nullopt;
}

/// Waits for a datagram. nullopt: check again; `is_kernels`: the kernel's queue, too.
std::optional<Result<ssize_t>> wait_for_datagram(RecvCall& c, const SignalMark& signals,
                                                 FilePin& pin,
                                                 bool& is_kernels) VIREO_NO_THREAD_ANALYSIS {
  File& f = c.f;
  pin.pin(f);
  if (!std::exchange(c.has_waited, true))
    c.deadline = Deadline::after_ns(f.rcv_timeout_ns.load(std::memory_order_relaxed));
  DirectRead direct{f.udp_flow(), c.of_bytes ? *c.msg.msg_iov : iovec{}};
  WaitFor what{c.h, c.deadline, POLLIN, f.stack->settings().rx_udp_poll_os_ratio};
  if (is_shared(f) && (what.kernel_ratio == 0 || what.kernel_ratio > kSharedRatio))
    what.kernel_ratio = kSharedRatio;
  else if (what.kernel_ratio == 0 && f.udp_flow().cookie != 0)
    what.kernel_ratio = kSharableRatio;
  if (c.of_bytes) what.direct = &direct;
  const auto woken = wait_until(c.e, what, signals, [&] {
    if (f.flow == nullptr || (f.udp->shut & kShutRead) != 0) return true;
    const UdpFlow& u = f.udp_flow();
    if (u.soft_error != inspection::kInspected) [[likely]]
      return !u.queue.empty() || u.soft_error != 0;
    return inspection::has_news(f);
  });
  if (direct.taken != 0) return static_cast<ssize_t>(direct.taken);
  if (!woken) return std::unexpected(woken.error());
  is_kernels = *woken == Woken::kKernel;
  return std::nullopt;
}

/// Of a socket with a receive callback: first that is shown what has come. nullopt: nothing is
/// left.
[[gnu::cold]] std::optional<Result<ssize_t>> recv_inspected(RecvCall& c, EngineGuard& guard,
                                                            FilePin& pin) VIREO_NO_THREAD_ANALYSIS {
  File& f = c.f;
  pin.pin(f);
  inspection::show(c.h, c.e, guard);
  if (!c.h.is_alive() || f.flow == nullptr || inspection::receivable(f).empty())
    return std::nullopt;
  if (!inspection::has_inspector(f)) return deliver(f, c.e, c.msg, c.flags);
  inspection::begin_receive(f);
  auto n = deliver(f, c.e, c.msg, c.flags);
  inspection::end_receive(f, (c.flags & MSG_PEEK) == 0);
  return n;
}

/// The general recv() of a carried socket: called with the engine's lock held, releases it.
[[gnu::noinline]] Result<ssize_t> recv_any(Handle h, Engine& e, Progress before, msghdr& msg,
                                           int flags,
                                           bool of_bytes = false) VIREO_NO_THREAD_ANALYSIS {
  const SignalMark signals;
  FilePin pin;
  EngineGuard guard(e, std::adopt_lock);
  RecvCall call{h, e, msg, flags, of_bytes};
  File& f = call.f;
  bool look = before == Progress::kKernelsTurn;
  bool polled = before == Progress::kPolled;
  const bool nonblock = (flags & MSG_DONTWAIT) != 0 || f.nonblock.load(std::memory_order_relaxed);
  for (;;) {
    if (!h.is_alive()) return fail(EBADF, "recv");
    if (f.flow == nullptr) {
      guard.unlock();
      return kernel_recvmsg(h, msg, flags);
    }
    // What came here before the kernel began to deliver goes first.
    if (std::exchange(look, false) && (!is_shared(f) || f.udp_flow().queue.empty())) {
      if (auto got = look_at_kernel(call, guard, pin)) return *got;
      continue;
    }
    const UdpFlow& u = f.udp_flow();
    if (u.queue.empty() && !std::exchange(polled, false)) e.poll_to_return(Clock::now());
    if (u.soft_error != 0) [[unlikely]] {
      const int error = u.soft_error == inspection::kInspected ? 0 : take_error(f);
      if (error != 0) return fail(error, "recv");
      if (inspection::has_inspector(f)) {
        if (auto got = recv_inspected(call, guard, pin)) return *got;
        if (f.flow == nullptr || !h.is_alive()) continue;
      }
    } else if (!u.queue.empty()) {
      return deliver(f, e, msg, flags);
    }
    if (nonblock) return fail(EAGAIN, "recv");
    if ((f.udp->shut & kShutRead) != 0) return 0;
    if (auto end = wait_for_datagram(call, signals, pin, look)) return *end;
  }
}

/// Whether the socket has a flow, whose queue is to be checked next. Holder of the engine's lock.
[[gnu::always_inline]] inline bool is_flows_turn(Handle h, Instant now, Progress& so_far) noexcept {
  if (!h.is_alive()) [[unlikely]]
    return false;
  if (is_kernels_turn(*h.file, now)) [[unlikely]] {
    so_far = Progress::kKernelsTurn;
    return false;
  }
  return h->flow != nullptr;
}

// A separate function, so that calls without a message header do not pay for one.
msghdr headed(std::span<const iovec> iov) {
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(iov.data());
  m.msg_iovlen = iov.size();
  return m;
}
[[gnu::noinline]] Result<ssize_t> recv_any_bytes(Handle h, Engine& e, Progress so_far,
                                                 const iovec& to,
                                                 int flags) VIREO_NO_THREAD_ANALYSIS {
  msghdr m = headed({&to, 1});
  return recv_any(h, e, so_far, m, flags, true);
}
/// Returns a queued datagram, else calls recv_any().
[[gnu::noinline]] Result<ssize_t> recv_queued(Handle h, Engine& e, Progress so_far, const iovec& to,
                                              int flags) VIREO_NO_THREAD_ANALYSIS {
  const File& f = *h.file;
  if (so_far != Progress::kKernelsTurn && h.is_alive() && f.flow != nullptr) [[likely]] {
    const UdpFlow& u = f.udp_flow();
    // Also where nothing is returned: socket(7) SIOCGSTAMP.
    const bool is_plain = f.udp->control != DatagramControl::kAlways;
    if (!u.queue.empty() && u.soft_error == 0 && is_plain) [[likely]] {
      if (const ssize_t n = deliver_bytes(f, to); n >= 0) [[likely]] {
        e.unlock();
        return n;
      }
    }
  }
  return recv_any_bytes(h, e, so_far, to, flags);
}
/// A receive on an unbound socket waits for another thread's bind(), connect() or send(). It must
/// not sleep in the kernel: there it would miss datagrams steered to Vireo after that. nullopt: the
/// mode is decided.
[[gnu::noinline]] std::optional<Result<ssize_t>> recv_undecided(Handle h, msghdr& msg, int flags) {
  constexpr Duration kPatience = Duration::ms(100);  // a close by another thread wakes nobody
  const SignalMark signals;
  const auto deadline = Deadline::after_ns(h->rcv_timeout_ns.load(std::memory_order_relaxed));
  for (;;) {
    if (!h.is_alive()) return fail(EBADF, "recv");
    if (h->mode.load(std::memory_order_acquire) != Mode::kUndecided) return std::nullopt;
    const Instant now = Clock::now();
    if (signals.pending()) return fail(EINTR, "recv");
    if (deadline.passed(now)) return fail(EAGAIN, "recv");
    const timespec left{0, (std::min(deadline.at(), now + kPatience) - now).ns()};
    pollfd p{h.fd, POLLIN | POLLRDHUP, 0};
    const auto n = sock::poll({&p, 1}, &left, nullptr);
    if (!n) return std::unexpected(n.error());
    if (*n == 0 || h->mode.load(std::memory_order_acquire) != Mode::kUndecided) continue;
    // Shut down, or an error: either returns at once.
    const bool is_shut = (p.revents & POLLRDHUP) != 0;
    msghdr m = msg;
    const auto got = kernel_recvmsg(h, m, is_shut ? flags : flags | MSG_DONTWAIT);
    if (!got && got.error().code == EAGAIN) continue;
    msg = m;
    return got;
  }
}
[[gnu::noinline]] Result<ssize_t> recv_headed(Handle h, std::span<const iovec> iov, int flags) {
  msghdr m = headed(iov);
  return recv(h, m, flags);
}

}  // namespace

[[gnu::hot]] Result<ssize_t> recv(Handle h, msghdr& msg, int flags) VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  if (f.mode.load(std::memory_order_acquire) == Mode::kUndecided &&
      !f.nonblock.load(std::memory_order_relaxed) && (flags & (MSG_DONTWAIT | MSG_ERRQUEUE)) == 0)
      [[unlikely]]
    if (const auto n = recv_undecided(h, msg, flags)) return *n;
  if (!f.is_carried()) return kernel_recvmsg(h, msg, flags);
  if ((flags & MSG_ERRQUEUE) != 0) return send_reports::receive(h, msg, flags);

  Engine* const e = f.engine.load(std::memory_order_acquire);
  if (e == nullptr) [[unlikely]]
    return fail(EBADF, "recv");  // closed by another thread
  e->acquire();
  auto so_far = Progress::kNone;
  const Instant now = Clock::now();
  if (is_flows_turn(h, now, so_far)) [[likely]] {
    const UdpFlow& u = f.udp_flow();
    if (u.queue.empty()) {
      e->poll(now);
      so_far = Progress::kPolled;
    }
    if (!u.queue.empty() && u.soft_error == 0) {
      if (const ssize_t n = deliver_plain(f, msg, flags); n >= 0) [[likely]] {
        e->unlock();
        return n;
      }
    }
  }
  return recv_any(h, *e, so_far, msg, flags);
}

[[gnu::hot]] Result<int> recv_many(Handle h, std::span<mmsghdr> all, int flags, Instant end,
                                   bool& is_all) VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  Engine* const e = f.engine.load(std::memory_order_acquire);
  if (e == nullptr) [[unlikely]]
    return fail(EBADF, "recvmmsg");  // closed by another thread
  const auto error_of = [](mmsghdr& m) {
    return !is_writable(&m) ? EFAULT : sock::message_error(m.msg_hdr);
  };
  if (const int error = error_of(all[0]); error != 0) [[unlikely]]
    return fail(error, "recvmmsg");
  e->acquire();
  auto so_far = Progress::kNone;
  const Instant now = Clock::now();
  int done = 0;
  if (is_flows_turn(h, now, so_far)) [[likely]] {
    UdpFlow& u = f.udp_flow();
    for (mmsghdr& m : all) {
      if (u.queue.empty() && so_far != Progress::kPolled) {
        e->poll(now);
        so_far = Progress::kPolled;
      }
      is_all = u.queue.empty();
      if (is_all || u.soft_error != 0) break;
      if (done != 0 && (error_of(m) != 0 || (end != Instant::never() && Clock::now() >= end)))
        break;
      const auto n = deliver(f, *e, m.msg_hdr, flags);
      if (!n) [[unlikely]] {
        if (done != 0) {
          u.soft_error = n.error().code;
          break;
        }
        e->unlock();
        return std::unexpected(n.error());
      }
      m.msg_len = static_cast<unsigned>(*n);
      ++done;
    }
  }
  if (done != 0) [[likely]] {
    e->unlock();
    return done;
  }
  is_all = false;
  const auto n = recv_any(h, *e, so_far, all[0].msg_hdr, flags);
  if (!n) return std::unexpected(n.error());
  all[0].msg_len = static_cast<unsigned>(*n);
  return 1;
}

[[gnu::hot]] Result<ssize_t> recv(Handle h, std::span<const iovec> iov,
                                  int flags) VIREO_NO_THREAD_ANALYSIS {
  Engine* const e = h->engine.load(std::memory_order_acquire);
  if (e == nullptr || (flags & ~kPlainFlags) != 0 || iov.size() != 1) [[unlikely]]
    return recv_headed(h, iov, flags);
  const iovec& to = iov[0];
  e->acquire();
  auto so_far = Progress::kNone;
  const Instant now = Clock::now();
  if (is_flows_turn(h, now, so_far)) [[likely]] {
    UdpFlow& u = h->udp_flow();
    if (u.queue.empty() && u.soft_error == 0) [[likely]] {
      if (const uint32_t n = e->poll_for_here(u, to, now).bytes; n != 0) [[likely]] {
        e->unlock();
        return n;
      }
      so_far = Progress::kPolled;
    }
  }
  return recv_queued(h, *e, so_far, to, flags);
}

}  // namespace vireo::udp_socket
