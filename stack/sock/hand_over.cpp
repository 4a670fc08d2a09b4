// Moves a socket to the kernel, because another process gets it too (SCM_RIGHTS, a child of fork,
// the next program), or because libc's streams will use it. A connection continues in a kernel
// socket (repair.h), which replaces all descriptors of the File.
#include "stack/sock/hand_over.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>

#include <cstring>

#include "core/log.h"
#include "stack/sock/async_io.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/carriage.h"
#include "stack/sock/listener.h"
#include "stack/sock/repair.h"
#include "stack/sock/served_by.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/udp_socket.h"

namespace vireo {
namespace {

/// Whether the kernel still has this connection (sock_diag).
bool is_kernels(const FlowKey& k, IfIndex by) {
  const UniqueFd fd(static_cast<int>(
      ::syscall(SYS_socket, AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)));
  struct {
    nlmsghdr head;
    inet_diag_req_v2 ask;
  } m{};
  m.head = {sizeof m, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0};
  m.ask.sdiag_family = k.v6 ? AF_INET6 : AF_INET;
  m.ask.sdiag_protocol = IPPROTO_TCP;
  m.ask.idiag_states = ~0U;
  m.ask.id.idiag_if = by.value();  // for a socket bound to an interface
  m.ask.id.idiag_sport = be16(k.local.port).raw();
  m.ask.id.idiag_dport = be16(k.remote.port).raw();
  const auto name = [&](const IpAddr& a, __be32* to) {
    if (a.is_v4())
      to[0] = a.as_v4().raw();
    else
      std::memcpy(to, a.bytes().data(), 16);
  };
  name(k.local.addr, m.ask.id.idiag_src);
  name(k.remote.addr, m.ask.id.idiag_dst);
  m.ask.id.idiag_cookie[0] = m.ask.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  struct {
    nlmsghdr head;
    inet_diag_msg said;
    char rest[1024];
  } answer{};
  constexpr long kMinBytes = sizeof answer.head + sizeof answer.said;
  if (!fd || ::syscall(SYS_write, fd.get(), &m, sizeof m) < 0) return true;
  const long n = ::syscall(SYS_read, fd.get(), &answer, sizeof answer);
  if (n < static_cast<long>(sizeof answer.head)) return true;
  if (answer.head.nlmsg_type == NLMSG_ERROR) return false;
  // Without an exact match, it returns the listener that would accept the connection.
  return n < kMinBytes || answer.said.id.idiag_dport == m.ask.id.idiag_dport;
}

Result<void> hand_over_tcp(File& f) {
  Engine& e = *f.engine.load(std::memory_order_relaxed);
  const EngineGuard guard(e);
  if (f.flow == nullptr) return fail(ENOTCONN, "no connection");
  TcpFlow& flow = f.tcp_flow();
  e.poll(Clock::now());
  const auto c = tcp::hand_over(flow.tcb, Clock::now());
  if (!c) return std::unexpected(c.error());
  if (flow.taken_over) flow.port_holder.reset();  // it has this connection's name
  auto made = begin_repair(f, e, flow.key, *c);
  if (!made) return std::unexpected(made.error());
  const int fd = made->get();
  e.steering().forget_left(is_kernels);
  if (auto ok = e.tcp().hand_over(flow, Clock::now()); !ok) return ok;
  // No failure from here on. A call that found it carried waits for the engine's lock.
  f.flow = nullptr;
  e.steering().give_strays(Clock::now());
  replace_shadows(f, fd);
  end_repair(f, fd, *c);
  f.placeholder = false;
  f.tcp.link = Link::kConnected;
  f.tcp.port = PortOrigin::kProgram;
  // Pairs with the acquire of a call that goes to the kernel: the descriptors are replaced.
  f.mode.store(Mode::kKernel, std::memory_order_release);
  return {};
}

}  // namespace

Result<void> hand_over_connection(File& f, const Refusal& why) {
  if (auto ok = hand_over_tcp(f); !ok) return ok;
  record_kernel(f, why);
  return {};
}

namespace sock {

Result<void> hand_over(Handle h, const Refusal& refusal) {
  File& f = *h.file;
  const char* const why = refusal.where;
  {
    const LockGuard control(f.control);
    if (!h.is_alive()) return fail(EBADF, why);
    f.touch();
    const Mode mode = f.mode.load(std::memory_order_relaxed);
    if (f.is_udp()) {
      udp_socket::give_up(f, refusal, {refusal.why});
      return {};
    }
    if (!f.is_tcp()) return {};
    // A connection that this process opens later must be usable in the other process, too.
    if (mode == Mode::kUndecided) f.forced = {refusal.why};
    if (mode != Mode::kCarried && mode != Mode::kListening) return {};
    if (mode == Mode::kListening)
      listener::give_to_kernel(f, h.fd, refusal, {refusal.why});
    else if (auto ok = hand_over_connection(f, refusal); !ok)
      return ok;
  }
  f.ready.notify(kModeChanged | kReadyIn | kReadyOut);
  return {};
}

namespace {

/// hand_over(), or a log line about the connection.
void hand_over_or_say(int fd, const char* why, const char* what_happens) noexcept {
  const Handle h = fd_table().find(fd);
  if (!h) return;
  h->touch();
  h->holders.store(Holders::kUnknown, std::memory_order_relaxed);
  if (!h->stack->is_owner()) return;
  (void)use(h, why);
  const auto done = hand_over(h, {Carriage::kInherited, 0, why});
  static std::atomic<bool> is_said{false};  // a server may do it for many connections
  if (done || (is_said.exchange(true) && !log_enabled(LogLevel::kDebug))) return;
  log<LogLevel::kWarn>(
      "descriptor {}: a carried connection {} ({}: {}); a rule `use os` keeps such connections on "
      "the kernel",
      fd, what_happens, done.error().where, std::strerror(done.error().code));
}

}  // namespace

void give_away(int fd) noexcept {
  hand_over_or_say(fd, "SCM_RIGHTS", "is passed to another process, which cannot use it");
}

void give_to_program(int fd) noexcept {
  hand_over_or_say(fd, "posix_spawn", "is given to another program, which cannot use it");
}

void give_to_stream(int fd) noexcept {
  hand_over_or_say(fd, "stdio", "becomes a stream of libc, which cannot use it");
}

void give_to_next_program(Stack& stack) noexcept {
  stack.family().heirs.leave_all(stack);
  for (int fd = 0; fd < fd_table().end(); ++fd) {
    const Handle h = fd_table().find(fd);
    if (!h || h->stack != &stack) continue;
    const int flags = libc().fcntl(fd, F_GETFD);
    if (flags < 0) continue;
    const Mode mode = h->mode.load(std::memory_order_relaxed);
    // Closed by the exec; for a connection the kernel sends the rest.
    if ((flags & FD_CLOEXEC) != 0 && (mode != Mode::kCarried || !h->is_tcp())) continue;
    // A program knows of the first three; most others it inherits by negligence.
    if (fd > STDERR_FILENO && is_void_connection(h)) continue;
    hand_over_or_say(fd, "exec", "is left to the next program (exec), which cannot use it");
  }
}

namespace {

/// Whether the parent has not used a socket that may be meant for a child: an accepted connection
/// neither read nor written, or a listener without an accept call or a waiting thread.
bool is_untouched(Handle h) {
  if (!h->is_tcp()) return false;
  const Mode mode = h->mode.load(std::memory_order_acquire);
  Engine* const e = h->engine.load(std::memory_order_acquire);
  if ((mode != Mode::kListening && mode != Mode::kCarried) || e == nullptr) return false;
  const EngineGuard guard(*e);
  if (!h.is_alive() || h->flow == nullptr) return false;
  switch (h->mode.load(std::memory_order_relaxed)) {
    case Mode::kListening:
      return !h->tcp.has_accepted && !h->ready.is_watched() &&
             h->refs.load(std::memory_order_relaxed) == fd_table().count_names(*h.file);
    case Mode::kCarried:
      return h->placeholder && tcp::is_untouched(h->tcp_flow().tcb);
    default:
      return false;
  }
}

}  // namespace

void hand_over_all(Stack& stack) noexcept {
  for (int fd = 0; fd < fd_table().end(); ++fd) {
    const Handle h = fd_table().find(fd);
    if (h && h->stack == &stack && h->engine.load(std::memory_order_acquire) != nullptr)
      hand_over_or_say(fd, "daemon", "is left to the daemon, which cannot use it");
  }
}

void hand_over_untouched(Stack& stack, Untouched which) noexcept {
  for (int fd = 0; fd < fd_table().end(); ++fd) {
    const Handle h = fd_table().find(fd);
    if (!h || h->stack != &stack || !is_untouched(h)) continue;
    if (which == Untouched::kConnections &&
        h->mode.load(std::memory_order_relaxed) == Mode::kListening)
      continue;
    const bool connection = h->mode.load(std::memory_order_relaxed) == Mode::kCarried;
    const auto done = hand_over(h, {Carriage::kInherited, 0, "fork"});
    if (done && connection) stack.promotion().stop();
    if (!done)
      log<LogLevel::kDebug>("descriptor {}: stays the parent's alone ({}: {})", fd,
                            done.error().where, std::strerror(done.error().code));
  }
}

}  // namespace sock
}  // namespace vireo
