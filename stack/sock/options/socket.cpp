// Rows of socket(7).
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>

#include "core/fd.h"
#include "stack/sock/blocking.h"
#include "stack/sock/options/call.h"
#include "stack/sock/options/options.h"
#include "stack/sock/options/rows.h"
#include "stack/sock/stack.h"
#include "stack/sock/stamps.h"
#include "stack/sock/tcp_socket.h"
#include "stack/sock/udp_socket.h"

// Newer than the headers of Debian 12.
#define SO_RCVPRIORITY 82
#define SO_PASSRIGHTS 83
#define SO_INQ 84
#define SO_PASSPIDFD 76
#define SO_PEERPIDFD 77
#define SO_DEVMEM_DONTNEED 80

namespace vireo {

void apply_ip(LiveConnection& c) {
  c.flow.ip = ip_settings(c.o, c.flow.key.v6);
  c.flow.egress.generation = 0;
  if (c.flow.ip.mtu_discover == IP_PMTUDISC_DONT && !c.flow.key.v6) tcp::stop_mtu_probing(c.tcb());
}

void apply_device(LiveConnection& c) {
  if (!c.flow.key.remote.addr.is_link_local())
    c.flow.key.remote.scope = bound_interface(c.o).value();
  apply_ip(c);
}

namespace {

template <int SocketLevelOptions::* kMember>
int& kept(SocketOptions& o) {
  return o.socket.*kMember;
}

void apply_reuse(LiveConnection& c) {
  c.flow.reuse_addr = c.o.socket.reuse_addr != 0;
  c.flow.reuse_port = c.o.socket.reuse_port != 0;
}

void apply_oobinline(LiveConnection& c) { tcp::set_oob_inline(c.tcb(), c.o.socket.oobinline != 0); }

/// As in Linux: the buffer must hold that much, and the data may be queued already.
void apply_rcvlowat(LiveConnection& c) {
  tcp::Tcb& t = c.tcb();
  if (!c.o.socket.rcvbuf_set)
    tcp::set_rcv_buf(t, std::max(t.rcv_buf, uint32_t(c.o.socket.rcvlowat)));
  c.f.ready.notify(kReadyIn);
}

// ---- errors, names

std::optional<Result<void>> tell_error(const GetCall& c, Engine& e) {
  File& f = c.file();
  const EngineGuard guard(e);
  if (f.flow == nullptr) return std::nullopt;
  e.poll_to_return(Clock::now());
  const int error = f.is_tcp() ? tcp_socket::take_error(f) : udp_socket::take_error(f);
  if (error == 0 && f.is_udp()) return std::nullopt;  // the kernel may have an error
  return c.give(error);
}

/// As getpeername(2), except for a buffer that is too small.
std::optional<Result<void>> tell_peer(const GetCall& c, Engine& e) {
  File& f = c.file();
  if (!f.is_tcp()) return std::nullopt;
  Endpoint peer;
  {
    const EngineGuard guard(e);
    const tcp::State s = f.flow == nullptr ? tcp::State::kClosed : tcp::state(f.tcp_flow().tcb);
    if (s == tcp::State::kClosed || s == tcp::State::kTimeWait) return fail(ENOTCONN, "getsockopt");
    peer = f.flow->key.remote;
  }
  sockaddr_storage sa{};
  const socklen_t n = peer.to_sockaddr(sa, f.domain.load(std::memory_order_relaxed));
  if (!is_readable(c.len)) return fail(EFAULT, "getsockopt");
  if (static_cast<int>(*c.len) < 0 || *c.len > n) return fail(EINVAL, "getsockopt");
  if (*c.len != 0 && !is_writable(c.value, *c.len)) return fail(EFAULT, "getsockopt");
  std::memcpy(c.value, &sa, *c.len);
  return Result<void>();
}

// ---- buffers

void keep_rcvbuf(const SetCall& c, SocketOptions& o) {
  o.socket.rcvbuf_set = c.read_back(SO_RCVBUF, o.socket.rcvbuf) || o.socket.rcvbuf_set;
}
void keep_sndbuf(const SetCall& c, SocketOptions& o) {
  o.socket.sndbuf_set = c.read_back(SO_SNDBUF, o.socket.sndbuf) || o.socket.sndbuf_set;
}
void apply_rcvbuf(LiveConnection& c) { tcp::set_rcv_buf(c.tcb(), c.config.rcv_buf); }
void apply_sndbuf(LiveConnection& c) { tcp::set_snd_buf(c.tcb(), c.config.snd_buf); }
// If never set: the default, as the placeholder's value is that of others.
std::optional<Result<void>> read_rcvbuf(const GetCall& c) {
  if (c.file().tcp.options->socket.rcvbuf_set) return std::nullopt;
  return c.give(c.file().stack->defaults().tcp_rmem.initial);
}
std::optional<Result<void>> read_sndbuf(const GetCall& c) {
  if (c.file().tcp.options->socket.sndbuf_set) return std::nullopt;
  return c.give(c.file().stack->defaults().tcp_wmem.initial);
}
// The kernel doubles it again.
void give_rcvbuf(const File& f, int fd) {
  if (f.tcp.options->socket.rcvbuf != 0)
    give_to(fd, SOL_SOCKET, SO_RCVBUF, f.tcp.options->socket.rcvbuf / 2);
}
void give_sndbuf(const File& f, int fd) {
  if (f.tcp.options->socket.sndbuf != 0)
    give_to(fd, SOL_SOCKET, SO_SNDBUF, f.tcp.options->socket.sndbuf / 2);
}

// ---- SO_LINGER, timeouts

void keep_linger(const SetCall& c, SocketOptions& o) {
  if (c.len < sizeof(linger)) return;
  linger l{};
  std::memcpy(&l, c.value, sizeof l);
  o.socket.linger_on = l.l_onoff != 0;
  o.socket.linger_s = l.l_linger;
}
std::optional<Result<void>> read_linger(const GetCall& c) {
  const SocketLevelOptions& o = c.file().tcp.options->socket;
  return c.give(linger{o.linger_on, o.linger_s});
}
void give_linger(const File& f, int fd) {
  const SocketLevelOptions& o = f.tcp.options->socket;
  if (o.linger_on != 0) give_to(fd, SOL_SOCKET, SO_LINGER, linger{o.linger_on, o.linger_s});
}

/// In nanoseconds, 0 = no timeout.
int64_t timeout_ns(const void* value, socklen_t len) {
  if (value == nullptr || len < sizeof(timeval)) return 0;
  timeval tv{};
  std::memcpy(&tv, value, sizeof tv);
  if (tv.tv_sec < 0) return 1;  // Linux: no wait at all
  constexpr int64_t kMaxSeconds = 9'000'000'000;
  return std::min<int64_t>(tv.tv_sec, kMaxSeconds) * 1'000'000'000 + tv.tv_usec * 1'000;
}
timeval timeval_of(int64_t ns) { return {ns / 1'000'000'000, ns % 1'000'000'000 / 1'000}; }

using Timeout = std::atomic<int64_t> File::*;
// SO_RCVTIMEO_NEW is the same on 64-bit machines.
template <Timeout kTimeout>
void keep_timeout(const SetCall& c, SocketOptions&) {
  (c.file().*kTimeout).store(timeout_ns(c.value, c.len), std::memory_order_relaxed);
}
template <Timeout kTimeout>
std::optional<Result<void>> read_timeout(const GetCall& c) {
  return c.give(timeval_of((c.file().*kTimeout).load()));
}
template <Timeout kTimeout, int kName>
void give_timeout(const File& f, int fd) {
  const int64_t ns = (f.*kTimeout).load(std::memory_order_relaxed);
  if (ns == 0) return;
  timeval t = timeval_of(ns);
  if (ns < 1000) t.tv_usec = 1;
  give_to(fd, SOL_SOCKET, kName, t);
}

// ---- SO_BINDTODEVICE

void keep_device(const SetCall& c, SocketOptions& o) {
  (void)c.read_back(SO_BINDTOIFINDEX, o.socket.bound_ifindex);
}
/// As net/core/sock.c sock_getbindtodevice(): the name with its NUL, or zero bytes if there is
/// none.
std::optional<Result<void>> read_device(const GetCall& c) {
  const int index = c.file().tcp.options->socket.bound_ifindex;
  if (index == 0) {
    *c.len = 0;
    return Result<void>();
  }
  if (*c.len < IFNAMSIZ) return fail(EINVAL, "getsockopt");
  ifreq r{};
  r.ifr_ifindex = index;
  if (libc().ioctl(c.h.fd, SIOCGIFNAME, &r) != 0) return fail_errno("getsockopt");
  *c.len = static_cast<socklen_t>(strnlen(r.ifr_name, IFNAMSIZ - 1)) + 1;
  std::memcpy(c.value, r.ifr_name, *c.len);
  return Result<void>();
}
std::optional<Result<void>> read_ifindex(const GetCall& c) {
  return c.give(c.file().tcp.options->socket.bound_ifindex);
}
void give_device(const File& f, int fd) {
  const int index = f.tcp.options->socket.bound_ifindex;
  if (index != 0) give_to(fd, SOL_SOCKET, SO_BINDTOIFINDEX, index);
}

// ---- times and losses of received data

/// As net/core/sock.c __sock_set_timestamps(). The four options are one state, of which each reads
/// its part.
template <bool kNs, bool kNew>
void keep_stamp(const SetCall& c, SocketOptions& o) {
  const bool on = c.as_int() != 0;
  o.socket.stamp = on;
  o.socket.stamp_ns = on && kNs;
  if (!on) return;
  o.socket.stamp_new = kNew;
  o.socket.keeps_stamp = 1;  // to the socket's end: others may tell what it still has taken
}
template <bool kNs, bool kNew>
std::optional<Result<void>> read_stamp(const GetCall& c) {
  const SocketLevelOptions& o = c.file().tcp.options->socket;
  // Linux says SO_TIMESTAMP_NEW of SO_TIMESTAMPNS_NEW, too.
  const bool is_kind = (o.stamp_ns != 0) == kNs || (kNew && !kNs);
  return c.give(int{o.stamp != 0 && is_kind && (o.stamp_new != 0) == kNew});
}
template <bool kNs, bool kNew>
void give_stamp(const File& f, int fd) {
  constexpr int kName = kNs ? (kNew ? SO_TIMESTAMPNS_NEW : SO_TIMESTAMPNS_OLD)
                            : (kNew ? SO_TIMESTAMP_NEW : SO_TIMESTAMP_OLD);
  const SocketLevelOptions& o = f.tcp.options->socket;
  if (o.stamp != 0 && (o.stamp_ns != 0) == kNs && (o.stamp_new != 0) == kNew)
    give_to(fd, SOL_SOCKET, kName, 1);
}

/// The kernel's socket may have a filter of Vireo's, of which the program knows nothing. Its own
/// has taken the place of that.
void keep_filter(const SetCall& c, SocketOptions&) {
  if (c.file().is_udp()) c.file().udp->hears_once = false;
}
std::optional<Result<void>> make_way_for_lock(const SetCall& c) {
  if (c.file().is_udp()) udp_socket::hear_unfiltered(c.file(), c.h.fd);
  return std::nullopt;
}
std::optional<Result<void>> refuse_detach_of_ours(const SetCall& c) {
  if (c.file().is_udp() && c.file().udp->hears_once) return fail(ENOENT, "setsockopt");
  return std::nullopt;
}

/// OptionHandling::leaves of SO_TIMESTAMPING.
bool lacks_clock(const File& f, int value) {
  Engine* const e = f.engine.load(std::memory_order_relaxed);
  if (e == nullptr || !f.is_tcp()) return false;  // UDP: with the flow
  const EngineGuard guard(*e);
  return only_kernel_has_clock(*e, static_cast<uint32_t>(value));
}

/// linux/net_tstamp.h so_timestamping, which some headers lack.
struct StampFlags {
  int flags;
  int bind_phc;
};
template <bool kNew>
void keep_timestamping(const SetCall& c, SocketOptions& o) {
  o.socket.timestamping = c.as_int();
  o.socket.stamp_new = kNew;
}
/// The kernel socket beneath a connection is not connected, and would refuse to number: another
/// judges, a datagram socket, which does not.
template <bool kNew>
std::optional<Result<void>> set_timestamping(const SetCall& c) {
  File& f = c.file();
  const bool is_connection = f.is_tcp() && f.mode.load(std::memory_order_relaxed) == Mode::kCarried;
  if (!is_connection || (static_cast<uint32_t>(c.as_int()) & kStampsOfKernel) != 0)
    return std::nullopt;
  Engine* const e = f.engine.load(std::memory_order_relaxed);
  if (e == nullptr || lacks_clock(f, c.as_int())) return std::nullopt;
  const UniqueFd judge(libc().socket(f.domain.load(std::memory_order_relaxed),
                                     SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP));
  if (!judge) return fail_errno("setsockopt");
  if (auto ok = c.by_kernel(judge.get()); !ok) return ok;
  SocketOptions o = *f.tcp.options;
  keep_timestamping<kNew>(c, o);
  {
    const EngineGuard guard(*e);
    e->poll_to_return(Clock::now());  // numbers begin behind what is acknowledged
  }
  return replace_options(f, o);
}
template <bool kNew>
std::optional<Result<void>> read_timestamping(const GetCall& c) {
  const SocketLevelOptions& o = c.file().tcp.options->socket;
  // The older option tells the flags however they were set (net/core/sock.c).
  return c.give(StampFlags{!kNew || o.stamp_new != 0 ? o.timestamping : 0, 0});
}
template <bool kNew>
std::optional<Result<void>> tell_timestamping(const GetCall& c) {
  if (!c.file().is_tcp() || !c.file().is_carried()) return std::nullopt;
  const LockGuard control(c.file().control);
  return read_timestamping<kNew>(c);
}
template <bool kNew>
void give_timestamping(const File& f, int fd) {
  const SocketLevelOptions& o = f.tcp.options->socket;
  if (o.timestamping != 0 && (o.stamp_new != 0) == kNew)
    give_to(fd, SOL_SOCKET, kNew ? SO_TIMESTAMPING_NEW : SO_TIMESTAMPING_OLD, o.timestamping);
}
template <bool kNew>
constexpr OptionHandling timestamping() {
  return {.set = set_timestamping<kNew>,
          .leaves = lacks_clock,
          .keep = keep_timestamping<kNew>,
          .tell = tell_timestamping<kNew>,
          .read = read_timestamping<kNew>,
          .give = give_timestamping<kNew>};
}
template <bool kNs, bool kNew>
constexpr OptionHandling stamp() {
  return {
      .keep = keep_stamp<kNs, kNew>, .read = read_stamp<kNs, kNew>, .give = give_stamp<kNs, kNew>};
}

/// SO_RXQ_OVFL on a socket without loss counters of its own.
bool has_no_counters(const File& f, int on) {
  return f.is_udp() && on != 0 && f.stats->generation.load(std::memory_order_relaxed) == 0;
}

// ---- SO_MAX_PACING_RATE of TCP: 32 bits, or 64 if `len` allows; all ones means unlimited

std::optional<Result<void>> set_pacing(const SetCall& c) {
  File& f = c.file();
  if (!f.is_tcp()) return std::nullopt;
  f.touch();
  if (f.mode.load(std::memory_order_relaxed) == Mode::kKernel) return c.by_kernel();
  if (static_cast<int>(c.len) < static_cast<int>(sizeof(int))) return fail(EINVAL, "setsockopt");
  uint64_t rate = 0;
  if (!is_readable(c.value, c.len < sizeof rate ? sizeof(int) : sizeof rate))
    return fail(EFAULT, "setsockopt");
  if (c.len >= sizeof rate) {
    std::memcpy(&rate, c.value, sizeof rate);
  } else {
    uint32_t narrow = 0;
    std::memcpy(&narrow, c.value, sizeof narrow);
    rate = narrow == UINT32_MAX ? UINT64_MAX : narrow;
  }
  if (!f.placeholder)
    if (auto ok = c.by_kernel(); !ok) return ok;
  SocketOptions o = *f.tcp.options;
  o.socket.max_pacing_rate = rate;
  if (auto ok = replace_options(f, o); !ok) return ok;
  apply_to_tcp(c);
  return Result<void>();
}
void apply_pacing(LiveConnection& c) {
  tcp::set_max_pacing_rate(c.tcb(), c.o.socket.max_pacing_rate);
}
std::optional<Result<void>> read_pacing(const GetCall& c) {
  const uint64_t rate = c.file().tcp.options->socket.max_pacing_rate;
  if (is_readable(c.len) && *c.len >= sizeof rate) return c.give(rate);
  return c.give(static_cast<uint32_t>(std::min<uint64_t>(rate, UINT32_MAX)));
}
void give_pacing(const File& f, int fd) {
  const uint64_t rate = f.tcp.options->socket.max_pacing_rate;
  if (rate != UINT64_MAX) give_to(fd, SOL_SOCKET, SO_MAX_PACING_RATE, rate);
}

using namespace rows;
#define SOCKET(name) SOL_SOCKET, name, #name

constexpr SocketOption kRows[] = {
    kernels(SOCKET(SO_DEBUG)),
    ours(SOCKET(SO_REUSEADDR),
         {.kept = kept<&SocketLevelOptions::reuse_addr>, .apply = apply_reuse}),
    kernels(SOCKET(SO_TYPE)),
    ours(SOCKET(SO_ERROR), {.tell = of_flow<tell_error>}),
    leaves(SOCKET(SO_DONTROUTE)),
    ours(SOCKET(SO_BROADCAST), {.kept = kept<&SocketLevelOptions::broadcast>}),
    ours(SOCKET(SO_SNDBUF), {.kept = kept<&SocketLevelOptions::sndbuf>,
                             .keep = keep_sndbuf,
                             .apply = apply_sndbuf,
                             .read = read_sndbuf,
                             .give = give_sndbuf}),
    ours(SOCKET(SO_RCVBUF), {.kept = kept<&SocketLevelOptions::rcvbuf>,
                             .keep = keep_rcvbuf,
                             .apply = apply_rcvbuf,
                             .read = read_rcvbuf,
                             .give = give_rcvbuf}),
    ours(SOCKET(SO_SNDBUFFORCE), {.keep = keep_sndbuf, .apply = apply_sndbuf}),
    ours(SOCKET(SO_RCVBUFFORCE), {.keep = keep_rcvbuf, .apply = apply_rcvbuf}),
    ours(SOCKET(SO_KEEPALIVE),
         {.kept = kept<&SocketLevelOptions::keepalive>, .apply = apply_keepalive}),
    ours(SOCKET(SO_OOBINLINE),
         {.kept = kept<&SocketLevelOptions::oobinline>, .apply = apply_oobinline}),
    leaves_udp(SOCKET(SO_NO_CHECK)),
    ours(SOCKET(SO_PRIORITY), {.kept = kept<&SocketLevelOptions::priority>, .apply = apply_ip}),
    ours(SOCKET(SO_LINGER), {.keep = keep_linger, .read = read_linger, .give = give_linger}),
    kernels(SOCKET(SO_BSDCOMPAT)),
    ours(SOCKET(SO_REUSEPORT),
         {.kept = kept<&SocketLevelOptions::reuse_port>, .apply = apply_reuse}),
    kernels(SOCKET(SO_PASSCRED)),
    kernels(SOCKET(SO_PEERCRED)),
    ours(SOCKET(SO_RCVLOWAT),
         {.kept = kept<&SocketLevelOptions::rcvlowat>, .apply = apply_rcvlowat}),
    kernels(SOCKET(SO_SNDLOWAT)),
    ours(SOCKET(SO_RCVTIMEO_OLD), {.keep = keep_timeout<&File::rcv_timeout_ns>,
                                   .read = read_timeout<&File::rcv_timeout_ns>,
                                   .give = give_timeout<&File::rcv_timeout_ns, SO_RCVTIMEO>}),
    ours(SOCKET(SO_SNDTIMEO_OLD), {.keep = keep_timeout<&File::snd_timeout_ns>,
                                   .read = read_timeout<&File::snd_timeout_ns>,
                                   .give = give_timeout<&File::snd_timeout_ns, SO_SNDTIMEO>}),
    kernels(SOCKET(SO_SECURITY_AUTHENTICATION)),
    kernels(SOCKET(SO_SECURITY_ENCRYPTION_TRANSPORT)),
    kernels(SOCKET(SO_SECURITY_ENCRYPTION_NETWORK)),
    ours(SOCKET(SO_BINDTODEVICE),
         {.keep = keep_device, .apply = apply_device, .read = read_device, .give = give_device}),
    {SOCKET(SO_ATTACH_FILTER), kLeaves, kLeaves, kSet, 0, {.keep = keep_filter}},
    kernels(SOCKET(SO_DETACH_FILTER), {.set = refuse_detach_of_ours}),
    ours(SOCKET(SO_PEERNAME), {.tell = of_flow<tell_peer>}),
    ours(SOCKET(SO_TIMESTAMP_OLD), stamp<false, false>()),
    kernels(SOCKET(SO_ACCEPTCONN)),
    kernels(SOCKET(SO_PEERSEC)),
    leaves_udp(SOCKET(SO_PASSSEC)),
    ours(SOCKET(SO_TIMESTAMPNS_OLD), stamp<true, false>()),
    ours(SOCKET(SO_MARK), {.kept = kept<&SocketLevelOptions::mark>, .apply = apply_ip}),
    {SOCKET(SO_TIMESTAMPING_OLD), kLeaves, kLeaves, kUnknownStamps, 0, timestamping<false>()},
    kernels(SOCKET(SO_PROTOCOL)),
    kernels(SOCKET(SO_DOMAIN)),
    {SOCKET(SO_RXQ_OVFL),
     kKernels,
     kOurs,
     kOn,
     0,
     {.kept = kept<&SocketLevelOptions::rxq_ovfl>, .leaves = has_no_counters}},
    leaves_udp(SOCKET(SO_WIFI_STATUS)),
    leaves(SOCKET(SO_PEEK_OFF), kNotNegative),
    kernels(SOCKET(SO_NOFCS)),  // packet sockets only
    {SOCKET(SO_LOCK_FILTER), kLeaves, kLeaves, kOn, 0, {.set = make_way_for_lock}},
    // A stream's poll does not heed it (net/ipv4/tcp.c tcp_poll()).
    kernels(SOCKET(SO_SELECT_ERR_QUEUE), {.kept = kept<&SocketLevelOptions::select_err_queue>}),
    // Vireo polls by VMA_RX_POLL and VMA_SELECT_POLL; the kernel polls for its own sockets.
    kernels(SOCKET(SO_BUSY_POLL), {.kept = kept<&SocketLevelOptions::busy_poll>}),
    {SOCKET(SO_MAX_PACING_RATE),
     kOurs,
     kLeaves,
     kSet,
     0,
     {.set = set_pacing, .apply = apply_pacing, .read = read_pacing, .give = give_pacing}},
    kernels(SOCKET(SO_BPF_EXTENSIONS)),
    kernels(SOCKET(SO_INCOMING_CPU), {.kept = kept<&SocketLevelOptions::incoming_cpu>}),  // a hint
    {SOCKET(SO_ATTACH_BPF), kLeaves, kLeaves, kSet, 0, {.keep = keep_filter}},
    leaves(SOCKET(SO_ATTACH_REUSEPORT_CBPF), kSet),
    leaves(SOCKET(SO_ATTACH_REUSEPORT_EBPF), kSet),
    kernels(SOCKET(SO_CNX_ADVICE)),  // a hint
    kernels(SOCKET(SO_MEMINFO)),
    kernels(SOCKET(SO_INCOMING_NAPI_ID)),
    kernels(SOCKET(SO_COOKIE)),
    kernels(SOCKET(SO_PEERGROUPS)),
    ours(SOCKET(SO_ZEROCOPY), {.kept = kept<&SocketLevelOptions::zerocopy>}),
    leaves(SOCKET(SO_TXTIME), kSet),
    ours(SOCKET(SO_BINDTOIFINDEX),
         {.keep = keep_device, .apply = apply_device, .read = read_ifindex}),
    ours(SOCKET(SO_TIMESTAMP_NEW), stamp<false, true>()),
    ours(SOCKET(SO_TIMESTAMPNS_NEW), stamp<true, true>()),
    {SOCKET(SO_TIMESTAMPING_NEW), kLeaves, kLeaves, kUnknownStamps, 0, timestamping<true>()},
    ours(SOCKET(SO_RCVTIMEO_NEW), {.keep = keep_timeout<&File::rcv_timeout_ns>,
                                   .read = read_timeout<&File::rcv_timeout_ns>}),
    ours(SOCKET(SO_SNDTIMEO_NEW), {.keep = keep_timeout<&File::snd_timeout_ns>,
                                   .read = read_timeout<&File::snd_timeout_ns>}),
    kernels(SOCKET(SO_DETACH_REUSEPORT_BPF)),
    kernels(SOCKET(SO_PREFER_BUSY_POLL)),  // as SO_BUSY_POLL
    kernels(SOCKET(SO_BUSY_POLL_BUDGET)),
    kernels(SOCKET(SO_NETNS_COOKIE)),
    leaves(SOCKET(SO_BUF_LOCK)),
    kernels(SOCKET(SO_RESERVE_MEM)),  // of a control group
    kernels(SOCKET(SO_TXREHASH)),     // a hint
    leaves_udp(SOCKET(SO_RCVMARK)),
    kernels(SOCKET(SO_PASSPIDFD)),
    kernels(SOCKET(SO_PEERPIDFD)),
    leaves(SOCKET(SO_DEVMEM_DONTNEED), kSet),
    leaves_udp(SOCKET(SO_RCVPRIORITY)),
    kernels(SOCKET(SO_PASSRIGHTS)),
    kernels(SOCKET(SO_INQ)),  // Unix sockets only
};

#undef SOCKET

}  // namespace

constinit const OptionLevel kSocketLevel(kRows);

}  // namespace vireo
