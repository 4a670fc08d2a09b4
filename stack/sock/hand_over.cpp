// A socket of ours becomes the kernel's, for another process is to have it too: passed by
// SCM_RIGHTS (unix(7)), or inherited by the child of a fork. An established connection goes on in a
// kernel socket made by TCP_REPAIR (Linux net/ipv4/tcp.c; CAP_NET_ADMIN), which takes over all
// numbers of the File. Its peer sees nothing but perhaps a segment that was lost on the way.
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "core/log.h"
#include "stack/sock/async_io.h"
#include "stack/sock/sockets.h"
#include "stack/tcp/hand_over.h"

#ifndef SO_BUF_LOCK  // Linux 5.14
#define SO_BUF_LOCK 72
#define SOCK_SNDBUF_LOCK 1
#define SOCK_RCVBUF_LOCK 2
#endif

namespace vireo {
namespace {

Result<void> set(int fd, int level, int name, const void* value, size_t bytes) {
  if (libc().setsockopt(fd, level, name, value, static_cast<socklen_t>(bytes)) != 0)
    return fail_errno("TCP_REPAIR");
  return {};
}
Result<void> set_int(int fd, int name, int value) {
  return set(fd, IPPROTO_TCP, name, &value, sizeof value);
}

enum : uint32_t { kMss = 2, kWindowScale, kSackPermitted, kTimestamps = 8 };  // kinds of options
enum : int { kNoWindowProbe = -1, kOff, kOn };                                // of TCP_REPAIR
constexpr size_t kSpareRoom = 64 << 10;  // in a buffer, beside what is put there

Result<void> name_ends(int fd, int domain, const FlowKey& key) {
  sockaddr_storage sa{};
  socklen_t n = key.local.to_sockaddr(sa, domain);
  if (libc().bind(fd, reinterpret_cast<const sockaddr*>(&sa), n) != 0) return fail_errno("bind");
  n = key.remote.to_sockaddr(sa, domain);
  if (kernel::connect(fd, reinterpret_cast<const sockaddr*>(&sa), n) != 0)
    return fail_errno("connect");
  return {};
}

Result<void> put(int fd, std::span<const std::byte> data) {
  while (!data.empty()) {
    iovec piece{const_cast<std::byte*>(data.data()), std::min<size_t>(data.size(), 32768)};
    msghdr m{};
    m.msg_iov = &piece;
    m.msg_iovlen = 1;
    const ssize_t n = kernel::sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n <= 0) return fail_errno("send");
    data = data.subspan(static_cast<size_t>(n));
  }
  return {};
}

/// Room for `bytes` at once, with what the kernel counts beside them. Locks the size, which
/// settle_buffers() takes back.
void make_room(int fd, int ask, int force, size_t bytes) {
  int value = 0;
  socklen_t n = sizeof value;
  if (libc().getsockopt(fd, SOL_SOCKET, ask, &value, &n) == 0 &&
      static_cast<size_t>(value) / 2 >= bytes)
    return;
  value = static_cast<int>(bytes);  // it is doubled
  (void)set(fd, SOL_SOCKET, force, &value, sizeof value);
}

/// What is queued is in its place: the sizes are the program's, and where it named none, they tune
/// themselves again.
void settle_buffers(int fd, const SocketOptions& o) {
  const int free_ones =
      (o.sndbuf_set ? SOCK_SNDBUF_LOCK : 0) | (o.rcvbuf_set ? SOCK_RCVBUF_LOCK : 0);
  const auto again = [&](int name, bool is_set, int doubled) {
    const int value = doubled / 2;
    if (is_set) (void)set(fd, SOL_SOCKET, name, &value, sizeof value);
  };
  again(SO_SNDBUF, o.sndbuf_set, o.sndbuf);
  again(SO_RCVBUF, o.rcvbuf_set, o.rcvbuf);
  (void)set(fd, SOL_SOCKET, SO_BUF_LOCK, &free_ones, sizeof free_ones);
}

/// A socket of the kernel's with the connection in it, still in repair. No frame has left for it,
/// and it is closed without a word.
Result<UniqueFd> build(const File& f, Engine& e, const FlowKey& key, const tcp::HandOver& c)
    VIREO_REQUIRES(e.lock()) {
  const int domain = f.domain.load(std::memory_order_relaxed);
  const auto open = [&] { return libc().socket(domain, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP); };
  UniqueFd made(open());
  if (!made && errno == EMFILE && e.give_up_leases(0)) made.reset(open());
  const int fd = made.get();
  if (fd < 0) return fail_errno("socket");
  give_options(*f.tcp.options, domain, fd);
  give_timeouts(f, fd);
  // The peer may send all that its window allows.
  make_room(fd, SO_SNDBUF, SO_SNDBUFFORCE, c.to_send.size() + kSpareRoom);
  make_room(fd, SO_RCVBUF, SO_RCVBUFFORCE, c.unread.size() + c.rcv_wnd);
  if (f.nonblock.load(std::memory_order_relaxed)) (void)libc().fcntl(fd, F_SETFL, O_NONBLOCK);
  const auto unread = static_cast<uint32_t>(c.unread.size());
  const uint32_t seq_in = c.rcv_nxt.value() - unread;
  const uint32_t seq_out = c.snd_una.value();
  struct Step {
    int name, value;
  };
  for (const Step& s : {Step{TCP_REPAIR, kOn},
                        {TCP_REPAIR_QUEUE, TCP_RECV_QUEUE},
                        {TCP_QUEUE_SEQ, static_cast<int>(seq_in)},
                        {TCP_REPAIR_QUEUE, TCP_SEND_QUEUE},
                        {TCP_QUEUE_SEQ, static_cast<int>(seq_out)}})
    if (auto ok = set_int(fd, s.name, s.value); !ok) return std::unexpected(ok.error());
  if (auto ok = name_ends(fd, domain, key); !ok) return std::unexpected(ok.error());

  tcp_repair_opt agreed[4];
  size_t n = 0;
  agreed[n++] = {kMss, c.peer_mss};
  if (c.wscale)
    agreed[n++] = {kWindowScale, static_cast<uint32_t>(c.snd_wscale | c.rcv_wscale << 16)};
  if (c.sack) agreed[n++] = {kSackPermitted, 0};
  if (c.timestamps) agreed[n++] = {kTimestamps, 0};
  if (auto ok = set(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, agreed, n * sizeof agreed[0]); !ok)
    return std::unexpected(ok.error());
  if (c.timestamps)
    if (auto ok = set_int(fd, TCP_TIMESTAMP, static_cast<int>(c.timestamp)); !ok)
      return std::unexpected(ok.error());

  const std::span<const std::byte> out(c.to_send);
  auto ok = set_int(fd, TCP_REPAIR_QUEUE, TCP_RECV_QUEUE);
  if (ok) ok = put(fd, c.unread);
  if (ok) ok = set_int(fd, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE);
  if (ok) ok = put(fd, out.first(c.sent));
  const tcp_repair_window windows{c.snd_wl1.value(), c.snd_wnd, c.max_wnd, c.rcv_wnd,
                                  c.rcv_nxt.value()};
  if (ok) ok = set(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &windows, sizeof windows);
  if (!ok) return std::unexpected(ok.error());
  return made;
}

/// The numbers of the File are the kernel socket's from here on. A thread that closes one takes it
/// out of the table first: what is there is open.
void take_numbers(const File& f, int made) {
  const ControlGuard table(fd_table().lock());
  for (int fd = 0; fd < fd_table().end(); ++fd) {
    if (fd_table().find(fd).file != &f) continue;
    const int flags = libc().fcntl(fd, F_GETFD);
    const int cloexec = flags > 0 && (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0;
    // EBUSY: the kernel is about to give that number to open(2), which it cannot be here.
    while (libc().dup3(made, fd, cloexec) < 0 && (errno == EINTR || errno == EBUSY)) {
    }
  }
}

/// Has the kernel this connection still?
bool is_kernels(const FlowKey& k) {
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
  constexpr long kLeast = sizeof answer.head + sizeof answer.said;
  if (!fd || ::syscall(SYS_write, fd.get(), &m, sizeof m) < 0) return true;
  const long n = ::syscall(SYS_read, fd.get(), &answer, sizeof answer);
  if (n < static_cast<long>(sizeof answer.head)) return true;
  if (answer.head.nlmsg_type == NLMSG_ERROR) return false;
  // Where there is none it tells of the listener that the next one would go to.
  return n < kLeast || answer.said.id.idiag_dport == m.ask.id.idiag_dport;
}

Result<void> hand_over_tcp(File& f) {
  Engine& e = *f.engine.load(std::memory_order_relaxed);
  const EngineGuard guard(e);
  if (f.flow == nullptr) return fail(ENOTCONN, "no connection");
  TcpFlow& flow = f.tcp_flow();
  e.poll(Clock::now());
  const auto c = tcp::hand_over(flow.tcb, Clock::now());
  if (!c) return std::unexpected(c.error());
  auto made = build(f, e, flow.key, *c);
  if (!made) return std::unexpected(made.error());
  const int fd = made->get();
  e.forget_spared(is_kernels);
  if (auto ok = e.tcp_hand_over(flow, Clock::now()); !ok) return ok;
  // From here on there is no way back. Who found it carried waits for the engine's lock.
  f.flow = nullptr;
  take_numbers(f, fd);
  const SocketOptions& o = *f.tcp.options;
  // What has not left yet, leaves; and the peer is asked where it stands.
  const bool is_all_told = c->sent == c->to_send.size();
  (void)set_int(fd, TCP_REPAIR, is_all_told ? kOff : kNoWindowProbe);
  if (!is_all_told) (void)put(fd, std::span(c->to_send).subspan(c->sent));
  settle_buffers(fd, o);
  // Repair has taken it away, and without it nobody can listen at the port anew.
  if (o.reuse_addr != 0)
    (void)set(fd, SOL_SOCKET, SO_REUSEADDR, &o.reuse_addr, sizeof o.reuse_addr);
  if ((f.tcp.shut & kShutRead) != 0) (void)libc().shutdown(fd, SHUT_RD);
  if (sock::is_async(f)) {
    const int flags = libc().fcntl(fd, F_GETFL);
    (void)libc().fcntl(fd, F_SETFL, flags | O_ASYNC);
  }
  f.placeholder = false;
  f.tcp.link = Link::kConnected;
  f.tcp.port = PortOrigin::kProgram;
  // release pairs with the acquire of whoever goes to the kernel for it: its numbers are there.
  f.mode.store(Mode::kKernel, std::memory_order_release);
  return {};
}

void hand_over_listener(File& f, int fd) {
  // While it was ours too, nobody was to hang in the kernel's accept.
  const int flags = libc().fcntl(fd, F_GETFL);
  if (flags >= 0 && !f.nonblock.load(std::memory_order_relaxed))
    (void)libc().fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
  listener::stop(f);
  f.mode.store(Mode::kKernel, std::memory_order_release);
}

}  // namespace

namespace sock {

Result<void> hand_over(Handle h, const char* why) {
  File& f = *h.file;
  const Refusal refusal{Carriage::kInherited, 0, why};
  {
    const ControlGuard control(f.control);
    if (!h.is_alive()) return fail(EBADF, why);
    f.touch();
    const Mode mode = f.mode.load(std::memory_order_relaxed);
    if (f.is_udp()) {
      udp_socket::give_up(f, refusal);
      return {};
    }
    if (!f.is_tcp()) return {};
    // A new one that this process connects would be connected here alone.
    if (mode == Mode::kUndecided) f.tcp.forced = refusal.why;
    if (mode != Mode::kCarried && mode != Mode::kListening) return {};
    if (mode == Mode::kListening)
      hand_over_listener(f, h.fd);
    else if (auto ok = hand_over_tcp(f); !ok)
      return ok;
    record_kernel(f, refusal);
  }
  f.ready.notify(kModeChanged | kReadyIn | kReadyOut);
  return {};
}

void give_away(int fd) noexcept {
  const Handle h = fd_table().find(fd);
  if (!h) return;
  h->touch();
  if (!h->stack->is_owner()) return;
  const auto done = hand_over(h, "SCM_RIGHTS");
  static std::atomic<bool> is_said{false};  // a server may pass one after the other
  if (done || (is_said.exchange(true) && !log_enabled(LogLevel::kDebug))) return;
  log<LogLevel::kWarn>(
      "descriptor {}: a carried connection is passed to another process, which cannot use it "
      "({}: {}); a rule `use os` keeps such connections on the kernel",
      fd, done.error().where, std::strerror(done.error().code));
}

namespace {

/// The parent has done nothing yet with what a child may be meant for: an accepted connection that
/// is neither read nor written, a listener at which nobody has asked, nor waits.
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

void hand_over_untouched(Stack& stack) noexcept {
  for (int fd = 0; fd < fd_table().end(); ++fd) {
    const Handle h = fd_table().find(fd);
    if (!h || h->stack != &stack || !is_untouched(h)) continue;
    if (const auto done = hand_over(h, "fork"); !done)
      log<LogLevel::kDebug>("descriptor {}: stays the parent's alone ({})", fd, done.error().where);
  }
}

}  // namespace sock
}  // namespace vireo
