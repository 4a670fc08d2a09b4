// accept checks Vireo's queue first, then the kernel's (loopback, interfaces that are not carried)
// if the shadow is readable. The kernel's listener is made non-blocking, because another thread may
// take the connection that this one was woken for, and this one must not block in accept(2).
#include "stack/sock/listener.h"

#include <netinet/tcp.h>

#include <cstring>

#include "core/log.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/cancel.h"
#include "stack/sock/carriage.h"
#include "stack/sock/fast_open.h"
#include "stack/sock/files.h"
#include "stack/sock/options/options.h"
#include "stack/sock/packet_filter.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/tcp_socket.h"

namespace vireo::listener {
namespace {

void set_kernel_nonblock(int fd) {
  const int flags = libc().fcntl(fd, F_GETFL);
  if (flags >= 0 && (flags & O_NONBLOCK) == 0) (void)libc().fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

uint32_t clamp_backlog(const Stack& stack, int backlog) {
  const auto most = static_cast<uint32_t>(stack.defaults().somaxconn);
  return std::min(static_cast<uint32_t>(backlog), most);
}

/// listen(2) binds an unbound socket; the port must be known before the kernel listens.
void give_name(int fd, int domain) {
  const auto name = kernel_name(fd);
  if (!name || name->port != 0) return;
  sockaddr_storage any;
  const Endpoint nowhere{domain == AF_INET ? IpAddr::any_v4() : IpAddr(), 0, 0};
  const socklen_t len = nowhere.to_sockaddr(any, domain);
  (void)libc().bind(fd, reinterpret_cast<const sockaddr*>(&any), len);
}

/// Control lock held. Call before the kernel listens: a handshake that the kernel began could not
/// continue once the segments go to Vireo. @return the local address.
Carried<Endpoint> carry(File& f, int fd, uint32_t backlog, bool joins = false) {
  give_name(fd, f.domain.load(std::memory_order_relaxed));
  const auto name = kernel_name(fd);
  if (!name) return std::unexpected(Refusal{Carriage::kDevice, name.error().code, "getsockname"});
  auto may = may_carry(*f.stack, Role::kTcpServer, joins ? Forced() : f.forced, *name, {});
  if (!may) return std::unexpected(may.error());
  Engine* const own = f.engine.load(std::memory_order_relaxed);
  const auto engine =
      own != nullptr ? Carried<Engine*>(own)
                     : f.stack->engine_for(
                           {.local = *name, .shares_port = f.tcp.options->socket.reuse_port != 0});
  if (!engine) return std::unexpected(engine.error());
  Engine& e = **engine;
  look_at_filter(*f.stack);
  const uint32_t rules = rules_generation(*f.stack);
  const Passage passage{.local = *name,
                        .v6only = f.tcp.options->ipv6.v6only != 0,
                        .interface = bound_interface(*f.tcp.options),
                        .begins_there = true};
  auto pass = may_pass(*f.stack, passage);
  if (!pass) return std::unexpected(pass.error());
  ListenOptions options = listen_options(f, fd);
  options.joins = joins;
  const EngineGuard guard(e);
  pass = may_still_pass(*f.stack, passage, rules);
  if (!pass) return std::unexpected(pass.error());
  auto l = e.listeners().listen(*name, f.tcp.options->ipv6.v6only != 0, backlog,
                                f.tcp.options.config(), &f, *f.stats, options);
  if (!l) return std::unexpected(l.error());
  f.flow = *l;
  send_reports::follow(f, &e);
  f.engine.store(&e, std::memory_order_release);
  f.mode.store(Mode::kListening, std::memory_order_release);
  return *name;
}

/// Seconds as a number of SYN-ACK timeouts: 1 s, 2 s, ... up to 120 s each (Linux secs_to_retrans).
uint8_t timeouts_in(int seconds) {
  if (seconds <= 0) return 0;
  uint8_t n = 1;
  for (int wait = 1, sum = 1; sum < seconds && n < 31; ++n, sum += wait)
    wait = std::min(wait * 2, 120);
  return n;
}

// Bits of net.ipv4.tcp_fastopen (ip-sysctl).
constexpr int kTfoServer = 2;
constexpr int kTfoServerNoCookie = 0x200;
constexpr int kTfoEveryListener = 0x400;

/// TCP_FASTOPEN's queue length if the sysctl allows it; somaxconn if it enables all listeners
/// (Linux fastopen_queue_tune).
uint32_t fast_opens(const KernelDefaults& d, const SocketOptions& o) {
  if ((d.tcp_fastopen & kTfoServer) == 0) return 0;
  const int asked = o.tcp.fastopen == 0 && (d.tcp_fastopen & kTfoEveryListener) != 0
                        ? d.somaxconn
                        : o.tcp.fastopen;
  return static_cast<uint32_t>(std::clamp(asked, 0, d.somaxconn));
}

}  // namespace

ListenOptions listen_options(const File& f, int fd) {
  const SocketOptions& o = *f.tcp.options;
  const KernelDefaults& d = f.stack->defaults();
  const bool v6 = f.domain.load(std::memory_order_relaxed) == AF_INET6;
  const uint32_t fast = fast_opens(d, o);
  IpSettings ip = ip_settings(o, v6);
  ip.priority = 0;  // not inherited by accept(2)
  return {.reuse_addr = o.socket.reuse_addr != 0,
          .reuse_port = o.socket.reuse_port != 0,
          .defer_accept = timeouts_in(o.tcp.defer_accept),
          .syncookies = static_cast<uint8_t>(d.tcp_syncookies),
          .abort_on_overflow = d.tcp_abort_on_overflow,
          .fast_open = fast,
          .fast_open_without_cookie =
              o.tcp.fastopen_no_cookie != 0 || (d.tcp_fastopen & kTfoServerNoCookie) != 0,
          .fast_open_keys = fast == 0 ? tcp::FastOpenKeys() : tcp_socket::fast_open_keys(fd),
          .ip = ip,
          .device = IfIndex(static_cast<uint32_t>(o.socket.bound_ifindex))};
}

namespace {

/// Reads the keys again: the kernel draws its first key when the first listener enables Fast Open,
/// which may have been this listen(2).
void give_keys(File& f, int fd) {
  Engine& e = *f.engine.load(std::memory_order_relaxed);
  {
    const EngineGuard guard(e);
    if (f.listener().options.fast_open == 0) return;
  }
  const tcp::FastOpenKeys keys =
      tcp_socket::fast_open_keys(fd);  // system calls: not under the lock
  const EngineGuard guard(e);
  f.listener().options.fast_open_keys = keys;
}

}  // namespace

Result<void> listen(Handle h, int backlog) {
  File& f = *h.file;
  {
    const LockGuard control(f.control);
    if (!h.is_alive()) return fail(EBADF, "listen");
    tcp_socket::renew(h);
    const Mode mode = f.mode.load(std::memory_order_relaxed);
    if (mode == Mode::kCarried || mode == Mode::kVoid) return fail(EINVAL, "listen");
    const uint32_t most = clamp_backlog(*f.stack, backlog);
    if (mode == Mode::kListening || mode == Mode::kKernel) {
      if (libc().listen(h.fd, backlog) != 0) return fail_errno("listen");
      if (mode == Mode::kKernel) return {};
      const EngineGuard guard(*f.engine.load(std::memory_order_relaxed));
      f.listener().backlog = most;
      return {};
    }
    f.touch();
    const auto carried = carry(f, h.fd, most);
    if (libc().listen(h.fd, backlog) != 0) {
      const Err why = fail_errno("listen").error();
      if (carried) stop(f);
      return std::unexpected(why);
    }
    f.stats->listening = 1;
    if (carried) {
      set_kernel_nonblock(h.fd);
      give_keys(f, h.fd);
      record_carried(f, *carried, {});
      f.stack->watch_over_tcp();
    } else {
      f.mode.store(Mode::kKernel, std::memory_order_release);
      if (!f.forced.to_kernel()) f.forced = {carried.error().why};
      record_kernel(f, carried.error());
      record_address(*f.stats, kernel_name(h.fd).value_or(Endpoint{}), {});
    }
  }
  f.ready.notify(kModeChanged);
  return {};
}

bool join(Handle h) noexcept {
  File& f = *h.file;
  {
    const LockGuard control(f.control);
    if (!h.is_alive() || f.mode.load(std::memory_order_relaxed) != Mode::kKernel ||
        f.forced.why != Carriage::kInherited || !f.nonblock.load(std::memory_order_relaxed))
      return false;
    tcp_info kernels{};  // of a listener: its queue's length and limit
    socklen_t n = sizeof kernels;
    if (libc().getsockopt(h.fd, IPPROTO_TCP, TCP_INFO, &kernels, &n) != 0 ||
        kernels.tcpi_state != TCP_LISTEN)
      return false;
    const auto carried = carry(f, h.fd, kernels.tcpi_sacked, true);
    if (!carried) {
      log<LogLevel::kDebug>("descriptor {}: the workers' listener stays the kernel's ({}: {})",
                            h.fd, carried.error().where, std::strerror(carried.error().err));
      return false;
    }
    record_carried(f, *carried, {});
    f.stack->watch_over_tcp();
    f.stack->family().worker.joined(*f.engine.load(std::memory_order_relaxed));
  }
  f.ready.notify(kModeChanged | kReadyIn);
  return true;
}

void on_accept(Listener& l) { static_cast<File*>(l.owner)->ready.notify(kReadyIn); }

void stop(File& f, Mode then) {
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) return;
  Engine& e = *engine;
  const EngineGuard guard(e);
  if (f.flow == nullptr) return;
  const Instant now = Clock::now();
  if (then == Mode::kKernel)
    e.listeners().give_to_kernel(f.listener(), now);
  else
    e.listeners().close(f.listener(), now);
  f.flow = nullptr;
  f.mode.store(then, std::memory_order_release);
}

void restore_blocking(const File& f, int fd) {
  const int flags = libc().fcntl(fd, F_GETFL);
  if (flags >= 0 && !f.nonblock.load(std::memory_order_relaxed))
    (void)libc().fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

void give_to_kernel(File& f, int fd, const Refusal& why, Forced forced) {
  restore_blocking(f, fd);
  stop(f, Mode::kKernel);
  f.forced = forced;
  f.mode.store(Mode::kKernel, std::memory_order_release);
  record_kernel(f, why);
}

namespace {

/// The options accept(2) passes on: not SO_PRIORITY, nor the owner. Control or engine lock held.
SharedOptions inherited(const File& listener) {
  const SocketOptions& its = *listener.tcp.options;
  if (its.socket.priority == 0 && its.owner.pid == 0) return listener.tcp.options;
  SocketOptions o = its;
  o.socket.priority = 0;
  o.owner = {};
  return SharedOptions::share(*listener.stack, o).value_or(listener.tcp.options);
}

/// A new File as accept(2) returns it. Control or engine lock of the listener held.
void begin_accepted(File& f, const File& listener, int flags) {
  f.tcp.options = inherited(listener);
  f.tcp.wants_control.store(wants_stream_control(*f.tcp.options), std::memory_order_relaxed);
  f.tcp.sends_apart = listener.tcp.sends_apart;
  f.tcp.link = Link::kConnected;
  f.nonblock.store((flags & SOCK_NONBLOCK) != 0, std::memory_order_relaxed);
  f.rcv_timeout_ns.store(listener.rcv_timeout_ns.load(std::memory_order_relaxed),
                         std::memory_order_relaxed);
  f.snd_timeout_ns.store(listener.snd_timeout_ns.load(std::memory_order_relaxed),
                         std::memory_order_relaxed);
}

/// Why the connection came from the kernel's queue. Control lock of the listener held.
Refusal why_kernels(const File& listener, bool is_loopback) {
  if (is_loopback) return {Carriage::kLoopback, 0, "accept"};
  // In the child of a fork the listener is still the parent's. One that joined the kernel's still
  // has the reason why it is the kernel's.
  const Forced forced = listener.forced;
  if (listener.mode.load(std::memory_order_relaxed) == Mode::kListening && !forced.to_kernel())
    return {Carriage::kInterface, 0, "accept"};  // by an interface that is not carried
  return refusal_of(!forced.to_kernel() ? Forced{Carriage::kInherited} : forced, "its listener");
}

/// Whether the engine that is to carry is there, and it pays. `local`: an address that it will
/// carry.
bool may_join(Handle h, const Result<Endpoint>& local) {
  Stack& stack = *h->stack;
  if (stack.settings().promote == PromoteChoice::kAtAccept) return true;
  if (stack.promotion().lacks_processors(stack, Clock::now())) return false;
  switch (local ? stack.promotion().make_engine(stack, *local) : Promotion::Making::kFailed) {
    case Promotion::Making::kNotBegun:
    case Promotion::Making::kBegun:
      return false;
    case Promotion::Making::kDone:
      return stack.family().worker.may_join();
    case Promotion::Making::kFailed:
      stack.family().worker.join_no_more();
  }
  return false;
}

/// Makes a File for a connection that the kernel accepted, with the reason why it is not carried.
Result<int> adopt_kernel(Handle h, int fd, int flags) {
  File& listener = *h.file;
  auto made = open_file(*listener.stack, FileKind::kTcp,
                        listener.domain.load(std::memory_order_relaxed), fd);
  if (!made) return fd;  // the kernel serves it without a File
  File& f = **made;
  f.mode.store(Mode::kKernel, std::memory_order_relaxed);
  const auto peer = kernel_peer(fd);
  const auto local = kernel_name(fd);
  const bool loopback = peer && local && (peer->addr.is_loopback() || peer->addr == local->addr);
  Refusal why;
  {
    const LockGuard control(listener.control);
    begin_accepted(f, listener, flags);
    why = why_kernels(listener, loopback);
  }
  // A connection without a place in the table could not be carried.
  if (why.why == Carriage::kInherited && peer && local && fd_table().has_place(fd))
    if (auto ok = f.stack->promotion().take_over(f, fd, *local, *peer); !ok) why = ok.error();
  if (f.is_carried()) {
    record_carried(f, *local, *peer);
    f.stack->watch_over_tcp();
  } else {
    record_kernel(f, why);
    if (peer && local) record_address(*f.stats, *local, *peer);
    if (why.why == Carriage::kInherited) f.stack->promotion().watch(f);
  }
  Worker& worker = f.stack->family().worker;
  const bool joins = (f.is_carried() || why.why == Carriage::kInherited) && worker.accepted(f) &&
                     !f.stack->promotion().is_stopped();
  sock::forget(fd);
  if (!fd_table().install(fd, f)) {
    if (f.tcp.is_workers) worker.closed();
    free_sockets(f);
    fd_table().free(f);
  }
  if (joins && may_join(h, local) && !join(h)) worker.join_no_more();
  return fd;
}

/// accept4() makes a socket before it checks for a connection.
bool may_kernel_accept(int fd) {
  pollfd p{fd, POLLIN, 0};
  return kernel::poll_now(&p, 1) != 0;
}

/// In the child of a fork: the parent still serves this listener and has set O_NONBLOCK on it,
/// which the program did not ask for.
bool is_nonblock_for_us(Handle h) {
  return !h->nonblock.load(std::memory_order_relaxed) &&
         (libc().fcntl(h.fd, F_GETFL) & O_NONBLOCK) != 0;
}

/// Waits as the kernel's accept would have. Errors: EAGAIN at the timeout; EINTR.
Result<void> await_kernel(Handle h) {
  const int64_t limit = h->rcv_timeout_ns.load(std::memory_order_relaxed);
  const timespec t{limit / 1'000'000'000, limit % 1'000'000'000};
  pollfd p{h.fd, POLLIN, 0};
  const KernelWait wait;
  const int n = cancelable([&] { return libc().ppoll(&p, 1, limit > 0 ? &t : nullptr, nullptr); });
  if (n < 0) return fail_errno("accept");
  if (n == 0) return fail(EAGAIN, "accept");
  return {};
}

Result<int> kernel_accept(Handle h, sockaddr* addr, socklen_t* len, int flags) {
  h->stack->promotion().prepare(h);
  for (;;) {
    int fd = -1;
    {
      const KernelWait wait;
      fd = cancelable([&] { return libc().accept4(h.fd, addr, len, flags); });
    }
    if (fd >= 0) return adopt_kernel(h, fd, flags);
    const auto failed = fail_errno("accept");
    if (failed.error().code != EAGAIN || !is_nonblock_for_us(h)) return failed;
    if (auto ok = await_kernel(h); !ok) return std::unexpected(ok.error());
  }
}

/// Takes the first connection of Vireo's queue. The engine's lock is held, also over one system
/// call, so that a connection stays in the queue if no descriptor is free, as in Linux.
Result<int> take_ready(File& f, Engine& e, int flags, Endpoint& peer) {
  Stack& stack = *f.stack;
  const int domain = f.domain.load(std::memory_order_relaxed);
  auto fd = stack.placeholders().take_number(domain, (flags & SOCK_CLOEXEC) != 0);
  if (!fd && fd.error().code == EMFILE && e.tcp().give_up_leases(0))
    fd = stack.placeholders().take_number(domain, (flags & SOCK_CLOEXEC) != 0);
  if (!fd) return fd;
  // Without a slot in the table the connection would be lost: it stays in the queue.
  const bool has_place = fd_table().has_place(*fd);
  auto made = has_place ? open_file(stack, FileKind::kTcp, domain, *fd)
                        : Result<File*>(fail(EMFILE, "accept"));
  if (!made) {
    kernel::close(*fd);
    return fail(has_place ? ENFILE : EMFILE, "accept");
  }
  File& c = **made;
  TcpFlow& flow = *e.listeners().accept(f.listener());
  peer = flow.key.remote;
  begin_accepted(c, f, flags);
  stack.promotion().watch(c);  // it may be handed over to a child
  c.placeholder = true;
  c.flow = &flow;
  c.engine.store(&e, std::memory_order_release);
  c.mode.store(Mode::kCarried, std::memory_order_release);
  flow.owner = &c;
  flow.stats = c.stats;
  send_reports::follow_new(c, e);
  c.stats->tcp_state = static_cast<uint8_t>(tcp::state(flow.tcb));
  record_carried(c, flow.key.local, flow.key.remote);
  (void)fd_table().install(*fd, c);  // cannot fail: has_place()
  return fd;
}

/// A connection whose address cannot be returned is closed (net/socket.c do_accept).
Result<int> lose(int fd, int why) {
  (void)sock::close(fd_table().find(fd));
  return fail(why, "accept");
}

}  // namespace

Result<int> accept(Handle h, sockaddr* addr, socklen_t* len, int flags) {
  File& f = *h.file;
  if (f.mode.load(std::memory_order_acquire) != Mode::kListening) {
    if (f.mode.load(std::memory_order_acquire) == Mode::kVoid) return fail(EINVAL, "accept");
    if (f.is_carried()) return fail(EINVAL, "accept");
    return kernel_accept(h, addr, len, flags);
  }
  if ((flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != 0) return fail(EINVAL, "accept");
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) [[unlikely]]
    return fail(EBADF, "accept");  // closed by another thread
  Engine& e = *engine;
  const SignalMark signals;
  FilePin pin;
  EngineGuard guard(e);
  f.tcp.has_accepted = true;
  std::optional<Deadline> deadline;
  for (;;) {
    if (!h.is_alive()) return fail(EBADF, "accept");
    if (const Mode mode = f.mode.load(std::memory_order_relaxed); mode != Mode::kListening) {
      if (mode != Mode::kKernel) return fail(EINVAL, "accept");
      pin.pin(f);  // it was handed over
      guard.unlock();
      return kernel_accept(h, addr, len, flags);
    }
    Listener& l = f.listener();
    if (l.ready.empty()) e.poll_to_return(Clock::now());
    if (!l.ready.empty()) {
      Endpoint peer;
      const auto fd = take_ready(f, e, flags, peer);
      if (!fd) return fd;
      const int domain = f.domain.load(std::memory_order_relaxed);
      if (const int error = give_address(peer, domain, addr, len); error != 0) [[unlikely]] {
        guard.unlock();
        return lose(*fd, error);
      }
      return fd;
    }
    if (f.nonblock.load(std::memory_order_relaxed)) {
      pin.pin(f);
      guard.unlock();
      if (!may_kernel_accept(h.fd)) {
        look_for_cancel();
        return fail(EAGAIN, "accept");
      }
      return kernel_accept(h, addr, len, flags);  // non-blocking too
    }
    pin.pin(f);
    if (!deadline) deadline = Deadline::after_ns(f.rcv_timeout_ns.load(std::memory_order_relaxed));
    // Another thread may have closed the number or replaced it (dup2): as in Linux, the call
    // continues to wait on the listener that it found.
    const auto has_name = [&] { return fd_table().find(h.fd).file == h.file; };
    const WaitFor what{h, *deadline, static_cast<short>(has_name() ? POLLIN : 0),
                       f.stack->settings().rx_udp_poll_os_ratio};
    const auto woken = wait_until(e, what, signals, [&] {
      return f.mode.load(std::memory_order_relaxed) != Mode::kListening ||
             !f.listener().ready.empty();
    });
    if (!woken) return std::unexpected(woken.error());
    if (*woken == Woken::kKernel) {
      if (!has_name()) continue;
      guard.unlock();
      auto fd = kernel_accept(h, addr, len, flags);
      if (fd || fd.error().code != EAGAIN) return fd;
      guard.lock();  // another thread took it
    }
  }
}

}  // namespace vireo::listener
