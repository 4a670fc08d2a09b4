#include "stack/sock/options.h"

#include <linux/in6.h>
#include <linux/net_tstamp.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/if.h>

#include <algorithm>
#include <cstring>

#include "stack/sock/sockets.h"
#include "stack/tcp/linux_info.h"

#ifndef TCP_RTO_MAX_MS  // Linux 6.15
#define TCP_RTO_MAX_MS 44
#define TCP_RTO_MIN_US 45
#define TCP_DELACK_MAX_US 46
#endif

namespace vireo {
namespace {

/// An int option that is kept: read back from the kernel after it was set.
struct Kept {
  int level;
  int name;
  int SocketOptions::* field;
};

using O = SocketOptions;
constexpr Kept kKept[] = {
    {SOL_SOCKET, SO_REUSEADDR, &O::reuse_addr},
    {SOL_SOCKET, SO_REUSEPORT, &O::reuse_port},
    {SOL_SOCKET, SO_KEEPALIVE, &O::keepalive},
    {SOL_SOCKET, SO_BROADCAST, &O::broadcast},
    {SOL_SOCKET, SO_RCVBUF, &O::rcvbuf},
    {SOL_SOCKET, SO_SNDBUF, &O::sndbuf},
    {SOL_SOCKET, SO_RCVLOWAT, &O::rcvlowat},
    {SOL_SOCKET, SO_PRIORITY, &O::priority},
    {SOL_SOCKET, SO_MARK, &O::mark},
    {SOL_SOCKET, SO_BUSY_POLL, &O::busy_poll},
    {SOL_SOCKET, SO_OOBINLINE, &O::oobinline},
    {SOL_SOCKET, SO_INCOMING_CPU, &O::incoming_cpu},
    {SOL_SOCKET, SO_TIMESTAMP, &O::timestamp},
    {SOL_SOCKET, SO_TIMESTAMPNS, &O::timestamp_ns},
    {SOL_SOCKET, SO_TIMESTAMPING, &O::timestamping},
    {IPPROTO_IP, IP_TOS, &O::ip_tos},
    {IPPROTO_IP, IP_TTL, &O::ip_ttl},
    {IPPROTO_IP, IP_MTU_DISCOVER, &O::ip_mtu_discover},
    {IPPROTO_IP, IP_PKTINFO, &O::ip_pktinfo},
    {IPPROTO_IP, IP_RECVTTL, &O::ip_recvttl},
    {IPPROTO_IP, IP_RECVTOS, &O::ip_recvtos},
    {IPPROTO_IP, IP_MULTICAST_TTL, &O::ip_mc_ttl},
    {IPPROTO_IP, IP_MULTICAST_LOOP, &O::ip_mc_loop},
    {IPPROTO_IPV6, IPV6_V6ONLY, &O::v6only},
    {IPPROTO_IPV6, IPV6_MTU_DISCOVER, &O::v6_mtu_discover},
    {IPPROTO_IPV6, IPV6_TCLASS, &O::v6_tclass},
    {IPPROTO_IPV6, IPV6_UNICAST_HOPS, &O::v6_hops},
    {IPPROTO_IPV6, IPV6_RECVPKTINFO, &O::v6_pktinfo},
    {IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &O::v6_recvhops},
    {IPPROTO_IPV6, IPV6_RECVTCLASS, &O::v6_recvtclass},
    {IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &O::v6_mc_hops},
    {IPPROTO_IPV6, IPV6_MULTICAST_LOOP, &O::v6_mc_loop},
    {IPPROTO_IPV6, IPV6_MULTICAST_IF, &O::v6_mc_ifindex},
    {IPPROTO_TCP, TCP_NODELAY, &O::nodelay},
    {IPPROTO_TCP, TCP_CORK, &O::cork},
    {IPPROTO_TCP, TCP_KEEPIDLE, &O::keepidle},
    {IPPROTO_TCP, TCP_KEEPINTVL, &O::keepintvl},
    {IPPROTO_TCP, TCP_KEEPCNT, &O::keepcnt},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, &O::user_timeout_ms},
    {IPPROTO_TCP, TCP_LINGER2, &O::linger2},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT, &O::defer_accept},
    {IPPROTO_TCP, TCP_FASTOPEN, &O::fastopen},
    {IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &O::fastopen_connect},
    {IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &O::fastopen_no_cookie},
    {IPPROTO_TCP, TCP_SYNCNT, &O::syncnt},
    {IPPROTO_TCP, TCP_WINDOW_CLAMP, &O::window_clamp},
    {IPPROTO_TCP, TCP_NOTSENT_LOWAT, &O::notsent_lowat},
    {IPPROTO_TCP, TCP_RTO_MIN_US, &O::rto_min_us},
    {IPPROTO_TCP, TCP_DELACK_MAX_US, &O::delack_max_us},
    {IPPROTO_TCP, TCP_RTO_MAX_MS, &O::rto_max_ms},
    {IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &O::thin_linear},
    {IPPROTO_TCP, TCP_INQ, &O::inq},
};

/// Names under which the kernel reads what was set by another.
int read_name(int level, int name) {
  if (level != SOL_SOCKET) return name;
  if (name == SO_RCVBUFFORCE) return SO_RCVBUF;
  if (name == SO_SNDBUFFORCE) return SO_SNDBUF;
  return name;
}

const Kept* find_kept(int level, int name) {
  name = read_name(level, name);
  for (const Kept& k : kKept)
    if (k.level == level && k.name == name) return &k;
  return nullptr;
}

int int_of(const void* value, socklen_t len) {
  int v = 0;
  const size_t n = std::min<size_t>(len, sizeof v);
  if (n != 0 && is_readable(value, n)) std::memcpy(&v, value, n);
  return v;
}

/// Congestion control of a socket that did not choose.
tcp::CcKind default_congestion(const Stack& stack) {
  switch (stack.settings().tcp_congestion) {
    case TcpCongestion::kNewReno:
      return tcp::CcKind::kReno;
    case TcpCongestion::kCubic:
      return tcp::CcKind::kCubic;
    case TcpCongestion::kDctcp:
      return tcp::CcKind::kDctcp;
    case TcpCongestion::kNone:
      return tcp::CcKind::kNone;
    case TcpCongestion::kAsKernel:
      break;
  }
  return tcp::cc_kind(stack.defaults().tcp_congestion_control).value_or(tcp::CcKind::kCubic);
}

tcp::EcnMode ecn_mode(int tcp_ecn) {
  if (tcp_ecn == 1 || tcp_ecn == 3) return tcp::EcnMode::kRequest;
  return tcp_ecn == 0 ? tcp::EcnMode::kOff : tcp::EcnMode::kAccept;
}

/// TCP_CONGESTION's value: a name, with or without its end.
std::string_view congestion_name(const void* value, socklen_t len) {
  const std::string_view s(static_cast<const char*>(value), std::min<socklen_t>(len, 15));
  return s.substr(0, s.find('\0'));
}

const SocketOptions& options_of(const File& f) {
  return f.is_tcp() ? *f.tcp.options : f.udp->options;
}

/// SO_RCVTIMEO as nanoseconds, 0 = for ever.
int64_t timeout_ns(const void* value, socklen_t len) {
  if (value == nullptr || len < sizeof(timeval)) return 0;
  timeval tv{};
  std::memcpy(&tv, value, sizeof tv);
  if (tv.tv_sec < 0) return 1;  // Linux: does not wait at all
  constexpr int64_t kMostSeconds = 9'000'000'000;
  return std::min<int64_t>(tv.tv_sec, kMostSeconds) * 1'000'000'000 + tv.tv_usec * 1'000;
}

timeval timeval_of(int64_t ns) { return {ns / 1'000'000'000, ns % 1'000'000'000 / 1'000}; }

/// The kernel's own option call: on the shadow, or on the placeholder under `lock`, where it serves
/// as the judge of values.
Result<void> kernel_set(int fd, int level, int name, const void* value, socklen_t len) {
  if (libc().setsockopt(fd, level, name, value, len) != 0) return fail_errno("setsockopt");
  return {};
}

/// Whose address that is; 0: nobody's.
IfIndex interface_with(Stack& stack, const IpAddr& address) {
  const Settings& s = stack.settings();
  if (!s.offloaded_sockets || s.device == DeviceChoice::kOff || !stack.engine()) return {};
  net::SnapshotStore::Reader reader(stack.mirror()->store());
  for (const net::Addr& a : reader.snapshot().addrs->all)
    if (a.addr == address) return a.ifindex;
  return {};
}

/// Keeps what the kernel made of it, in `o`. Control lock held.
void keep(File& f, SocketOptions& o, int fd, int level, int name, const void* value,
          socklen_t len) {
  if (const Kept* k = find_kept(level, name); k != nullptr) {
    int v = 0;
    socklen_t n = sizeof v;
    if (libc().getsockopt(fd, level, k->name, &v, &n) == 0) o.*(k->field) = v;
    if (k->field == &O::rcvbuf) o.rcvbuf_set = true;
    if (k->field == &O::sndbuf) o.sndbuf_set = true;
    if (k->field == &O::timestamp && v != 0) o.timestamp_ns = 0;
    if (k->field == &O::timestamp_ns && v != 0) o.timestamp = 0;
    return;
  }
  if (level == IPPROTO_TCP && name == TCP_QUICKACK) o.quickack = int_of(value, len) != 0 ? 1 : 0;
  if (level == IPPROTO_TCP && name == TCP_MAXSEG) o.maxseg = int_of(value, len);
  if (level == IPPROTO_IP && name == IP_MULTICAST_IF) {
    ip_mreqn m{};
    if (len >= sizeof m) std::memcpy(&m, value, sizeof m);
    o.ip_mc_ifindex = m.imr_ifindex;
    // The address is the source then, and tells the interface where no index does (ip(7)).
    in_addr a{};
    socklen_t n = sizeof a;
    if (libc().getsockopt(fd, level, name, &a, &n) != 0) return;
    o.ip_mc_address = IpAddr::v4(be32(__builtin_bswap32(a.s_addr)));
    if (f.is_udp() && o.ip_mc_ifindex == 0 && !o.ip_mc_address.is_unspecified())
      o.ip_mc_ifindex = static_cast<int>(interface_with(*f.stack, o.ip_mc_address).value());
  }
  if (level != SOL_SOCKET) return;
  switch (name) {
    case SO_RCVTIMEO:
      f.rcv_timeout_ns.store(timeout_ns(value, len), std::memory_order_relaxed);
      break;
    case SO_SNDTIMEO:
      f.snd_timeout_ns.store(timeout_ns(value, len), std::memory_order_relaxed);
      break;
    case SO_LINGER:
      if (len >= sizeof(linger)) {
        linger l{};
        std::memcpy(&l, value, sizeof l);
        o.linger_on = l.l_onoff != 0;
        o.linger_s = l.l_linger;
      }
      break;
    case SO_BINDTODEVICE:
#ifdef SO_BINDTOIFINDEX
    case SO_BINDTOIFINDEX: {
      int index = 0;
      socklen_t n = sizeof index;
      if (libc().getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, &n) == 0)
        o.bound_ifindex = index;
    }
#endif
    break;
    default:
      break;
  }
}

/// The options that a live connection takes from its configuration. Engine's lock held.
void apply_tcp_limits(File& f, tcp::Tcb& t, int name) {
  const tcp::Config& c = f.tcp.options.config();
  switch (name) {
    case TCP_USER_TIMEOUT:
      return tcp::set_user_timeout(t, c.user_timeout);
    case TCP_LINGER2:
      return tcp::set_fin_timeout(t, c.fin_timeout);
    case TCP_SYNCNT:
      return tcp::set_syn_retries(t, c.syn_retries);
    case TCP_WINDOW_CLAMP:
      return tcp::set_window_clamp(t, c.window_clamp);
    case TCP_NOTSENT_LOWAT:
      if (has(tcp::set_notsent_lowat(t, c.notsent_lowat), tcp::Effects::kWritable))
        f.ready.notify(kReadyOut);
      return;
    case TCP_RTO_MIN_US:
      return tcp::set_rto_min(t, c.rto_min);
    case TCP_RTO_MAX_MS:
      return tcp::set_rto_max(t, c.rto_max);
    case TCP_DELACK_MAX_US:
      return tcp::set_delack_max(t, c.delack_max);
    default:
      return;
  }
}

/// Makes a live connection or listener follow. Control lock held.
void apply_tcp(File& f, int fd, int level, int name) {
  Engine& e = *f.engine.load(std::memory_order_relaxed);
  const SocketOptions& o = *f.tcp.options;
  const bool listens = f.mode.load(std::memory_order_relaxed) == Mode::kListening;
  const ListenOptions of_listener = listens ? listener::listen_options(f, fd) : ListenOptions{};
  const EngineGuard guard(e);
  if (f.flow == nullptr) return;
  if (listens) {
    const uint16_t mss = f.listener().config.mss;
    f.listener().config = f.tcp.options.config();
    f.listener().config.mss = std::min(mss, f.listener().config.mss);
    // Refused (an interface that is not carried): the kernel's listener beneath hears by it.
    (void)e.hear_by(f.listener(), of_listener.device);
    f.listener().options = of_listener;
    return;
  }
  TcpFlow& flow = f.tcp_flow();
  tcp::Tcb& t = flow.tcb;
  const Instant now = Clock::now();
  if (level == SOL_SOCKET) {
    flow.reuse_addr = o.reuse_addr != 0;
    flow.reuse_port = o.reuse_port != 0;
    if (read_name(level, name) == SO_RCVBUF) tcp::set_rcv_buf(t, f.tcp.options.config().rcv_buf);
    if (name == SO_MAX_PACING_RATE) tcp::set_max_pacing_rate(t, o.max_pacing_rate);
    if (read_name(level, name) == SO_SNDBUF) tcp::set_snd_buf(t, f.tcp.options.config().snd_buf);
    if (name == SO_OOBINLINE) tcp::set_oob_inline(t, o.oobinline != 0);
    if (name == SO_RCVLOWAT) {  // as Linux: the buffer must hold it, and it may be there already
      if (!o.rcvbuf_set) tcp::set_rcv_buf(t, std::max(t.rcv_buf, uint32_t(o.rcvlowat)));
      f.ready.notify(kReadyIn);
    }
  }
  const bool keep_changed =
      (level == SOL_SOCKET && name == SO_KEEPALIVE) ||
      (level == IPPROTO_TCP &&
       (name == TCP_KEEPIDLE || name == TCP_KEEPINTVL || name == TCP_KEEPCNT));
  if (keep_changed)
    tcp::set_keepalive(t, o.keepalive != 0, Duration::s(o.keepidle), Duration::s(o.keepintvl),
                       static_cast<uint8_t>(o.keepcnt), now);
  if (level == IPPROTO_TCP) {
    if (name == TCP_CONGESTION && o.congestion) tcp::set_congestion(t, *o.congestion);
    if (name == TCP_NODELAY) tcp::set_nodelay(t, o.nodelay != 0, now);
    if (name == TCP_CORK) tcp::set_cork(t, o.cork != 0, now);
    if (name == TCP_QUICKACK) tcp::set_quickack(t, o.quickack != 0, now);
    apply_tcp_limits(f, t, name);
  }
  const bool names_way = level == SOL_SOCKET &&
                         (name == SO_MARK || name == SO_BINDTODEVICE || name == SO_BINDTOIFINDEX);
  if (level == IPPROTO_IP || level == IPPROTO_IPV6 || names_way) {
    flow.ip = ip_settings(o, flow.key.v6);
    if (level == SOL_SOCKET && name != SO_MARK && !flow.key.remote.addr.is_link_local())
      flow.key.remote.scope = static_cast<uint32_t>(o.bound_ifindex);
    flow.egress.generation = 0;
    if (flow.ip.mtu_discover == IP_PMTUDISC_DONT && !flow.key.v6) tcp::stop_mtu_probing(t);
  }
  e.tcp_progress(flow, now);
}

// ---- multicast groups

/// The group and interface of a join or leave; nullopt: not one, or one with a source.
struct GroupCall {
  Membership m;
  bool is_join = false;
};

std::optional<GroupCall> group_call(int level, int name, const void* value, socklen_t len) {
  const auto v4 = [](in_addr a) { return IpAddr::v4(be32(__builtin_bswap32(a.s_addr))); };
  if (level == IPPROTO_IP && (name == IP_ADD_MEMBERSHIP || name == IP_DROP_MEMBERSHIP) &&
      len >= sizeof(ip_mreq)) {
    ip_mreqn m{};
    std::memcpy(&m, value, std::min<size_t>(len, sizeof m));
    const int index = len >= sizeof(ip_mreqn) ? m.imr_ifindex : 0;
    return GroupCall{
        {v4(m.imr_multiaddr), IfIndex(static_cast<uint32_t>(index)), v4(m.imr_address)},
        name == IP_ADD_MEMBERSHIP};
  }
  if (level == IPPROTO_IPV6 && (name == IPV6_JOIN_GROUP || name == IPV6_LEAVE_GROUP) &&
      len >= sizeof(ipv6_mreq)) {
    ipv6_mreq m{};
    std::memcpy(&m, value, sizeof m);
    return GroupCall{{IpAddr::v6(m.ipv6mr_multiaddr), IfIndex(m.ipv6mr_interface), {}},
                     name == IPV6_JOIN_GROUP};
  }
  if ((level == IPPROTO_IP || level == IPPROTO_IPV6) &&
      (name == MCAST_JOIN_GROUP || name == MCAST_LEAVE_GROUP) && len >= sizeof(group_req)) {
    group_req g{};
    std::memcpy(&g, value, sizeof g);
    const auto e =
        Endpoint::from_sockaddr(reinterpret_cast<const sockaddr*>(&g.gr_group), sizeof g.gr_group);
    if (e) return GroupCall{{e->addr, IfIndex(g.gr_interface), {}}, name == MCAST_JOIN_GROUP};
  }
  return std::nullopt;
}

/// A membership by the interface's address (ip_mreq) gets its index.
void resolve_interface(Stack& stack, Membership& m) {
  if (m.ifindex.value() != 0 || m.address.is_unspecified()) return;
  const auto engine = stack.engine();
  if (!engine) return;
  const EngineGuard guard(**engine);
  if (const auto port = (*engine)->port_of_address(m.address); port)
    m.ifindex = (*port)->link.index;
}

}  // namespace

bool wants_device_time(const SocketOptions& o) {
  return (o.timestamping & SOF_TIMESTAMPING_RAW_HARDWARE) != 0;
}

bool is_kernel_only(int level, int name, const void* value, socklen_t len, bool is_udp) {
  // What is received, and how it is told; times of what is sent come by the error queue.
  constexpr unsigned kReceiveTimes = SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RX_SOFTWARE |
                                     SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_SYS_HARDWARE |
                                     SOF_TIMESTAMPING_RAW_HARDWARE;
  const bool on = int_of(value, len) != 0;
  switch (level) {
    case SOL_SOCKET:
      switch (name) {
        case SO_ATTACH_FILTER:
        case SO_ATTACH_BPF:
        case SO_ATTACH_REUSEPORT_CBPF:
        case SO_ATTACH_REUSEPORT_EBPF:
        case SO_LOCK_FILTER:
        case SO_MAX_PACING_RATE:
        case SO_TXTIME:
          return true;
        case SO_ZEROCOPY:
          return on;
        case SO_TIMESTAMPING:
          return is_udp ? (static_cast<unsigned>(int_of(value, len)) & ~kReceiveTimes) != 0 : on;
        case SO_PEEK_OFF:
          return int_of(value, len) >= 0;
        default:
          return false;
      }
    case IPPROTO_IP:
      switch (name) {
        case IP_OPTIONS:
          return len != 0;
        case IP_TRANSPARENT:
        case IP_RECVERR:
        case IP_RETOPTS:
        case IP_RECVOPTS:
        case IP_RECVORIGDSTADDR:
        case IP_MINTTL:
          return on;
        case IP_ADD_SOURCE_MEMBERSHIP:
        case IP_BLOCK_SOURCE:
        case IP_MSFILTER:
        case MCAST_JOIN_SOURCE_GROUP:
        case MCAST_BLOCK_SOURCE:
        case MCAST_MSFILTER:
          return true;
        default:
          return false;
      }
    case IPPROTO_IPV6:
      switch (name) {
        case IPV6_RECVERR:
        case IPV6_TRANSPARENT:
        case IPV6_CHECKSUM:
        case IPV6_MINHOPCOUNT:
          return on;
        case IPV6_HOPOPTS:
        case IPV6_DSTOPTS:
        case IPV6_RTHDR:
        case MCAST_JOIN_SOURCE_GROUP:
        case MCAST_BLOCK_SOURCE:
        case MCAST_MSFILTER:
          return true;
        default:
          return false;
      }
    case IPPROTO_TCP:
      switch (name) {
        case TCP_MD5SIG:
        case TCP_MD5SIG_EXT:
        case TCP_REPAIR:
        case TCP_ULP:
          return true;
        default:
          return false;
      }
    case IPPROTO_UDP:
      return name == UDP_CORK || name == UDP_ENCAP || name == UDP_SEGMENT || name == UDP_GRO;
    default:
      return false;
  }
}

Result<void> replace_options(File& f, const SocketOptions& o) VIREO_NO_THREAD_ANALYSIS {
  if (f.is_udp()) {
    f.udp->options = o;
    return {};
  }
  auto shared = SharedOptions::share(*f.stack, o);
  if (!shared) return fail(ENOMEM, "options");
  Engine* const e = f.engine.load(std::memory_order_relaxed);
  if (e != nullptr) e->acquire();
  std::swap(f.tcp.options, *shared);
  f.tcp.wants_control.store(wants_stream_control(o), std::memory_order_relaxed);
  if (e != nullptr) e->unlock();
  return {};
}

void leave_name(File& f) {
  SocketOptions o = *f.tcp.options;
  o.void_name = f.flow->key.local;
  f.tcp.options = SharedOptions::share(*f.stack, o).value_or(f.tcp.options);
}

void init_options(File& f) {
  if (f.is_tcp()) {
    f.tcp.options = f.stack->first_options();
    return;
  }
  const Settings& s = f.stack->settings();
  f.udp->options.ip_mc_loop = s.tx_mc_loopback;
  f.udp->options.v6_mc_loop = s.tx_mc_loopback;
}

SharedOptions first_options(Stack& stack) {
  const KernelDefaults& d = stack.defaults();
  SocketOptions o;
  o.nodelay = stack.settings().tcp_nodelay;
  o.keepidle = static_cast<int>(d.tcp_keepalive_time.ms() / 1000);
  o.keepintvl = static_cast<int>(d.tcp_keepalive_intvl.ms() / 1000);
  o.keepcnt = d.tcp_keepalive_probes;
  o.syncnt = d.tcp_syn_retries;
  o.linger2 = static_cast<int>(d.tcp_fin_timeout.ms() / 1000);
  return SharedOptions::share(stack, o).value_or(SharedOptions());
}

void give_options(const SocketOptions& o, int domain, int fd) {
  const auto give = [&](int level, int name, const auto& value) {
    (void)libc().setsockopt(fd, level, name, &value, sizeof value);
  };
  const SocketOptions ordinary;
  const int other_family = domain == AF_INET6 ? IPPROTO_IP : IPPROTO_IPV6;
  for (const Kept& k : kKept) {
    int v = o.*k.field;
    const bool of_opening = k.field == &O::fastopen || k.field == &O::fastopen_connect ||
                            k.field == &O::fastopen_no_cookie || k.field == &O::defer_accept;
    // One that the operator sets for all (net.ipv6.bindv6only).
    const bool is_ordinary = v == ordinary.*k.field && k.field != &O::v6only;
    if (is_ordinary || k.level == other_family || of_opening) continue;
    if (k.field == &O::rcvbuf || k.field == &O::sndbuf) v /= 2;  // it is doubled again
    give(k.level, k.name, v);
  }
  if (o.linger_on != 0) give(SOL_SOCKET, SO_LINGER, linger{o.linger_on, o.linger_s});
  if (o.bound_ifindex != 0) give(SOL_SOCKET, SO_BINDTOIFINDEX, o.bound_ifindex);
  if (o.max_pacing_rate != UINT64_MAX) give(SOL_SOCKET, SO_MAX_PACING_RATE, o.max_pacing_rate);
  if (o.maxseg != 0) give(IPPROTO_TCP, TCP_MAXSEG, o.maxseg);
  if (o.quickack >= 0) give(IPPROTO_TCP, TCP_QUICKACK, o.quickack);
  if (o.congestion) {
    const std::string_view name = tcp::cc_name(*o.congestion);
    (void)libc().setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                            static_cast<socklen_t>(name.size()));
  }
  if (o.owner != 0) {
    f_owner_ex whom{o.owner_is_thread ? F_OWNER_TID
                    : o.owner < 0     ? F_OWNER_PGRP
                                      : F_OWNER_PID,
                    std::abs(o.owner)};
    (void)libc().fcntl(fd, F_SETOWN_EX, &whom);
  }
}

void give_timeouts(const File& f, int fd) {
  const auto give = [&](int name, int64_t ns) {
    timeval t = timeval_of(ns);
    if (ns != 0 && ns < 1000) t.tv_usec = 1;
    if (ns != 0) (void)libc().setsockopt(fd, SOL_SOCKET, name, &t, sizeof t);
  };
  give(SO_RCVTIMEO, f.rcv_timeout_ns.load(std::memory_order_relaxed));
  give(SO_SNDTIMEO, f.snd_timeout_ns.load(std::memory_order_relaxed));
}

IpSettings ip_settings(const SocketOptions& o, bool v6) {
  return {.ttl = static_cast<uint8_t>(v6 ? o.v6_hops : o.ip_ttl),
          .tos = static_cast<uint8_t>(v6 ? o.v6_tclass : o.ip_tos),
          .mtu_discover = static_cast<uint8_t>(v6 ? o.v6_mtu_discover : o.ip_mtu_discover),
          .mark = static_cast<uint32_t>(o.mark)};
}

tcp::Config tcp_config(const Stack& stack, const SocketOptions& o) {
  const Settings& s = stack.settings();
  const KernelDefaults& d = stack.defaults();
  // Both grow with the path (stack/tcp/buffer_tuning.h). To receive it starts as on Linux, half of
  // tcp_rmem: it is what a peer may send at once, and so may those of all other connections. To
  // send, Linux starts small; we start with what an ordinary path needs. A size that was set is
  // twice the bytes asked for (socket(7)).
  static constexpr uint32_t kStartToSend = 256 << 10;
  const auto bytes = [](bool set, int doubled, Bytes chosen, uint32_t start) {
    if (set) return static_cast<uint32_t>(std::max(doubled, 2 * 2048) / 2);
    if (chosen != 0) return static_cast<uint32_t>(chosen.value());
    return start;
  };
  tcp::Config c;
  c.mss = 65'495;
  if (s.tcp_mss != 0) c.mss = static_cast<uint16_t>(s.tcp_mss.value());
  if (o.maxseg != 0) c.mss = std::min(c.mss, static_cast<uint16_t>(o.maxseg));
  c.rcv_buf = bytes(o.rcvbuf_set, o.rcvbuf, s.rcvbuf,
                    static_cast<uint32_t>(std::max(d.tcp_rmem.initial / 2, 4096)));
  c.snd_buf = bytes(o.sndbuf_set, o.sndbuf, s.sndbuf,
                    std::max(static_cast<uint32_t>(d.tcp_wmem.initial), kStartToSend));
  const auto most = [](bool fixed, uint32_t now, int limit) {
    return fixed ? now : std::max(now, static_cast<uint32_t>(limit));
  };
  c.rcv_buf_max = most(o.rcvbuf_set || s.rcvbuf != 0, c.rcv_buf, d.tcp_rmem.most);
  c.snd_buf_max = most(o.sndbuf_set || s.sndbuf != 0, c.snd_buf, d.tcp_wmem.most);
  c.max_pacing_rate = o.max_pacing_rate;
  c.wscale = 0;
  while (c.wscale < 14 && c.rcv_buf_max >> c.wscale > 65'535) ++c.wscale;
  c.wscale = std::max<uint8_t>(c.wscale, 7);  // room to grow by SO_RCVBUF later
  c.window_scaling = d.tcp_window_scaling;
  c.timestamps = s.tcp_timestamps == TcpTimestamps::kOn ||
                 (s.tcp_timestamps == TcpTimestamps::kAsKernel && d.tcp_timestamps);
  c.sack = d.tcp_sack;
  c.congestion = o.congestion.value_or(default_congestion(stack));
  c.ecn = ecn_mode(d.tcp_ecn);
  c.nodelay = o.nodelay != 0;
  c.cork = o.cork != 0;
  c.quickack = s.tcp_quickack;
  c.oob_inline = o.oobinline != 0;
  c.keepalive = o.keepalive != 0;
  c.rto_min = o.rto_min_us != 0 ? Duration::us(o.rto_min_us) : Duration(s.tcp_rto_min);
  if (o.rto_max_ms != 0) c.rto_max = Duration::ms(o.rto_max_ms);
  if (o.delack_max_us != 0) c.delack_max = Duration::us(o.delack_max_us);
  c.window_clamp = static_cast<uint32_t>(std::max(o.window_clamp, 0));
  c.notsent_lowat =
      static_cast<uint32_t>(o.notsent_lowat != 0 ? o.notsent_lowat : d.tcp_notsent_lowat);
  c.keep_idle = o.keepidle != 0 ? Duration::s(o.keepidle) : d.tcp_keepalive_time;
  c.keep_interval = o.keepintvl != 0 ? Duration::s(o.keepintvl) : d.tcp_keepalive_intvl;
  c.keep_count = static_cast<uint8_t>(o.keepcnt != 0 ? o.keepcnt : d.tcp_keepalive_probes);
  c.syn_retries = static_cast<uint8_t>(o.syncnt != 0 ? o.syncnt : d.tcp_syn_retries);
  c.synack_retries = static_cast<uint8_t>(d.tcp_synack_retries);
  c.retries1 = static_cast<uint8_t>(d.tcp_retries1);
  c.retries2 = static_cast<uint8_t>(d.tcp_retries2);
  // What may be fragmented tells nothing of the path.
  if (o.ip_mtu_discover != IP_PMTUDISC_DONT)
    c.mtu_probing = static_cast<tcp::MtuProbing>(d.tcp_mtu_probing);
  const auto bounded = [](int64_t v) {
    return static_cast<uint16_t>(std::min<int64_t>(v, UINT16_MAX));
  };
  c.mtu_base = bounded(d.tcp_base_mss);
  c.mtu_floor = bounded(d.tcp_mtu_probe_floor);
  c.mtu_threshold = bounded(d.tcp_probe_threshold);
  c.mtu_interval_s = bounded(d.tcp_probe_interval.ms() / 1000);
  c.user_timeout = Duration::ms(o.user_timeout_ms);
  c.fin_timeout = o.linger2 < 0 ? Duration::ms(-1) : Duration::s(o.linger2);
  return c;
}

namespace sock {
namespace {

/// An option that only the kernel can honour. Control lock held.
Result<void> set_kernel_only(File& f, int fd, int level, int name, const void* value,
                             socklen_t len) {
  const Mode mode = f.mode.load(std::memory_order_relaxed);
  if (f.is_tcp() && mode == Mode::kCarried) return fail(EOPNOTSUPP, "setsockopt");
  if (auto ok = kernel_set(fd, level, name, value, len); !ok) return ok;
  const Refusal why{Carriage::kOption, 0, "setsockopt"};
  if (f.is_udp()) {
    udp_socket::give_up(f, why);
    return {};
  }
  f.tcp.forced = Carriage::kOption;
  if (mode == Mode::kListening) {
    listener::stop(f);
    f.mode.store(Mode::kKernel, std::memory_order_release);
    record_kernel(f, why);
    f.ready.notify(kModeChanged);
  }
  return {};
}

/// SO_MAX_PACING_RATE of TCP: 32 bits, or 64 if there is room for them; all ones is no bound.
/// Control lock held.
Result<void> set_pacing(File& f, int fd, const void* value, socklen_t len) {
  const Mode mode = f.mode.load(std::memory_order_relaxed);
  if (mode == Mode::kKernel) return kernel_set(fd, SOL_SOCKET, SO_MAX_PACING_RATE, value, len);
  if (static_cast<int>(len) < static_cast<int>(sizeof(int))) return fail(EINVAL, "setsockopt");
  uint64_t rate = 0;
  if (!is_readable(value, len < sizeof rate ? sizeof(int) : sizeof rate))
    return fail(EFAULT, "setsockopt");
  if (len >= sizeof rate) {
    std::memcpy(&rate, value, sizeof rate);
  } else {
    uint32_t narrow = 0;
    std::memcpy(&narrow, value, sizeof narrow);
    rate = narrow == UINT32_MAX ? UINT64_MAX : narrow;
  }
  if (!f.placeholder)
    if (auto ok = kernel_set(fd, SOL_SOCKET, SO_MAX_PACING_RATE, value, len); !ok) return ok;
  SocketOptions o = *f.tcp.options;
  o.max_pacing_rate = rate;
  if (auto ok = replace_options(f, o); !ok) return ok;
  if (mode == Mode::kCarried || mode == Mode::kListening)
    apply_tcp(f, fd, SOL_SOCKET, SO_MAX_PACING_RATE);
  return {};
}

/// Copies a value as the kernel's getsockopt does: what fits.
template <class T>
Result<void> give(const T& v, void* value, socklen_t* len) {
  if (!is_writable(len)) return fail(EFAULT, "getsockopt");
  if (static_cast<int>(*len) < 0) return fail(EINVAL, "getsockopt");
  const socklen_t n = std::min<socklen_t>(*len, sizeof v);
  if (n != 0 && !is_writable(value, n)) return fail(EFAULT, "getsockopt");
  std::memcpy(value, &v, n);
  *len = n;
  return {};
}

Result<void> give_int(int v, void* value, socklen_t* len) { return give(v, value, len); }

/// TCP_CONGESTION. Ours are ours even if the kernel does not have them; one that only the kernel
/// has keeps the socket there, and one that nobody has is ENOENT. Control lock held.
Result<void> set_congestion(File& f, int fd, const void* value, socklen_t len) {
  if (static_cast<int>(len) < 1) return fail(EINVAL, "setsockopt");
  if (!is_readable(value, std::min<socklen_t>(len, 15))) return fail(EFAULT, "setsockopt");
  const auto kind = tcp::cc_kind(congestion_name(value, len));
  const Mode mode = f.mode.load(std::memory_order_relaxed);
  if (!kind && mode == Mode::kCarried) return fail(ENOENT, "setsockopt");
  if (!kind || mode == Mode::kKernel)
    return set_kernel_only(f, fd, IPPROTO_TCP, TCP_CONGESTION, value, len);
  if (!f.placeholder) (void)kernel_set(fd, IPPROTO_TCP, TCP_CONGESTION, value, len);
  SocketOptions o = *f.tcp.options;
  o.congestion = kind;
  if (auto ok = replace_options(f, o); !ok) return ok;
  if (mode == Mode::kCarried || mode == Mode::kListening)
    apply_tcp(f, fd, IPPROTO_TCP, TCP_CONGESTION);
  return {};
}

Result<void> get_congestion(File& f, void* value, socklen_t* len) {
  char name[16] = {};
  const auto kind = f.tcp.options->congestion.value_or(default_congestion(*f.stack));
  tcp::cc_name(kind).copy(name, sizeof name - 1);
  return give(name, value, len);
}

tcp_info info_of(const TcpFlow& f, Instant now) {
  tcp_info o = tcp::linux_info(f.tcb, now);
  o.tcpi_pmtu = f.egress.mtu;
  return o;
}

/// Options whose answer is the connection itself. nullopt: the kernel's, or kept.
std::optional<Result<void>> get_live(File& f, int level, int name, void* value, socklen_t* len) {
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) [[unlikely]]
    return fail(EBADF, "getsockopt");  // closed by another thread
  Engine& e = *engine;
  if (level == SOL_SOCKET && name == SO_ERROR) {
    const EngineGuard guard(e);
    if (f.flow == nullptr) return std::nullopt;
    e.poll_to_return(Clock::now());
    const int error = f.is_tcp() ? tcp_socket::take_error(f) : udp_socket::take_error(f);
    if (error == 0 && f.is_udp()) return std::nullopt;  // the kernel may have one
    return give_int(error, value, len);
  }
  const bool asks_mtu =
      (level == IPPROTO_IP && name == IP_MTU) || (level == IPPROTO_IPV6 && name == IPV6_MTU);
  if (asks_mtu) {
    const EngineGuard guard(e);
    if (f.flow == nullptr || (f.is_udp() && !f.udp->connected)) return std::nullopt;
    const uint32_t mtu = f.is_tcp() ? f.tcp_flow().egress.mtu : f.udp_flow().egress.mtu;
    if (mtu == 0) return std::nullopt;  // nothing was sent yet
    return give_int(static_cast<int>(mtu), value, len);
  }
  if (!f.is_tcp() || level != IPPROTO_TCP) return std::nullopt;
  if (name != TCP_INFO && name != TCP_MAXSEG && name != TCP_QUICKACK) return std::nullopt;
  const EngineGuard guard(e);
  if (f.flow == nullptr) return std::nullopt;
  const tcp::Tcb& t = f.tcp_flow().tcb;
  if (name == TCP_INFO) return give(info_of(f.tcp_flow(), Clock::now()), value, len);
  if (name == TCP_QUICKACK) return give_int(tcp::is_quick(t) ? 1 : 0, value, len);
  return give_int(static_cast<int>(tcp::effective_mss(t)), value, len);
}

/// Set on most connections as soon as they are there, and any value is right: the kernel's socket
/// beneath a carried one is not asked, but told when it is no longer carried (drop_flow()).
bool is_untold(int level, int name) { return level == IPPROTO_TCP && name == TCP_NODELAY; }

/// Control lock held.
Result<void> set_untold(File& f, int fd, int level, int name, const void* value, socklen_t len) {
  if (static_cast<int>(len) < static_cast<int>(sizeof(int))) return fail(EINVAL, "setsockopt");
  if (!is_readable(static_cast<const int*>(value))) return fail(EFAULT, "setsockopt");
  SocketOptions o = *f.tcp.options;
  o.*(find_kept(level, name)->field) = int_of(value, len) != 0 ? 1 : 0;
  if (auto ok = replace_options(f, o); !ok) return ok;
  if (f.is_carried()) apply_tcp(f, fd, level, name);
  return {};
}

/// As net/core/sock.c sock_getbindtodevice(): the name with its end, no bytes of none.
Result<void> give_device(int fd, int index, void* value, socklen_t* len) {
  if (index == 0) {
    *len = 0;
    return {};
  }
  if (*len < IFNAMSIZ) return fail(EINVAL, "getsockopt");
  ifreq r{};
  r.ifr_ifindex = index;
  if (libc().ioctl(fd, SIOCGIFNAME, &r) != 0) return fail_errno("getsockopt");
  *len = static_cast<socklen_t>(strnlen(r.ifr_name, IFNAMSIZ - 1)) + 1;
  std::memcpy(value, r.ifr_name, *len);
  return {};
}

/// What an accepted connection was given, for it has no kernel socket that could tell.
std::optional<Result<void>> get_kept(Handle h, int level, int name, void* value, socklen_t* len) {
  File& f = *h.file;
  const SocketOptions& o = *f.tcp.options;
  if (level == SOL_SOCKET) {
    switch (name) {
      case SO_RCVTIMEO:
        return give(timeval_of(f.rcv_timeout_ns.load()), value, len);
      case SO_SNDTIMEO:
        return give(timeval_of(f.snd_timeout_ns.load()), value, len);
      case SO_LINGER:
        return give(linger{o.linger_on, o.linger_s}, value, len);
      case SO_MAX_PACING_RATE:
        if (is_readable(len) && *len >= sizeof o.max_pacing_rate)
          return give(o.max_pacing_rate, value, len);
        return give(static_cast<uint32_t>(std::min<uint64_t>(o.max_pacing_rate, UINT32_MAX)), value,
                    len);
      case SO_BINDTODEVICE:
        return give_device(h.fd, o.bound_ifindex, value, len);
      case SO_BINDTOIFINDEX:
        return give_int(o.bound_ifindex, value, len);
      case SO_RCVBUF:
        // Not the placeholder's, which has what others set.
        if (!o.rcvbuf_set) return give_int(f.stack->defaults().tcp_rmem.initial, value, len);
        break;
      case SO_SNDBUF:
        if (!o.sndbuf_set) return give_int(f.stack->defaults().tcp_wmem.initial, value, len);
        break;
      default:
        break;
    }
  }
  const Kept* k = find_kept(level, name);
  if (k == nullptr || k->name != name) return std::nullopt;
  return give_int(o.*(k->field), value, len);
}

}  // namespace

Result<void> setsockopt(Handle h, int level, int name, const void* value, socklen_t len) {
  File& f = *h.file;
  const LockGuard control(f.control);
  if (!h.is_alive()) return fail(EBADF, "setsockopt");
  const Mode mode = f.mode.load(std::memory_order_relaxed);
  const bool untold = f.is_tcp() && is_untold(level, name);
  if (untold && mode == Mode::kUndecided) {  // told, for it may become the kernel's
    if (f.place.load(std::memory_order_relaxed) != 0) {
      if (auto ok = set_untold(f, h.fd, level, name, value, len); !ok) return ok;
      if (f.stack->spare_shadows().set_nodelay(f, int_of(value, len) != 0)) return {};
    }
    if (auto ok = kernel_set(h.fd, level, name, value, len); !ok) return ok;
    f.made_in.fetch_or(File::kNoDelay, std::memory_order_relaxed);
    return set_untold(f, h.fd, level, name, value, len);
  }
  if (mode != Mode::kCarried || !untold) f.touch();
  if (f.is_tcp() && level == IPPROTO_TCP && name == TCP_CONGESTION)
    return sock::set_congestion(f, h.fd, value, len);
  if (f.is_tcp() && level == SOL_SOCKET && name == SO_MAX_PACING_RATE)
    return sock::set_pacing(f, h.fd, value, len);
  // Before the connection only; the kernel's socket beneath has none.
  const bool is_before =
      (level == IPPROTO_TCP && (name == TCP_FASTOPEN_CONNECT || name == TCP_FASTOPEN_NO_COOKIE)) ||
      (level == IPPROTO_IPV6 && name == IPV6_V6ONLY);
  if (f.is_tcp() && mode == Mode::kCarried && is_before) return fail(EINVAL, "setsockopt");
  if (mode == Mode::kCarried && untold) return set_untold(f, h.fd, level, name, value, len);
  if (is_kernel_only(level, name, value, len, f.is_udp()))
    return set_kernel_only(f, h.fd, level, name, value, len);
  SocketOptions o = options_of(f);
  if (f.placeholder) {
    // The placeholder judges the value: limits and errno are the kernel's.
    const LockGuard judge(f.stack->placeholder_lock());
    if (auto ok = kernel_set(h.fd, level, name, value, len); !ok) return ok;
    keep(f, o, h.fd, level, name, value, len);
  } else {
    if (auto ok = kernel_set(h.fd, level, name, value, len); !ok) return ok;
    keep(f, o, h.fd, level, name, value, len);
  }
  if (auto ok = replace_options(f, o); !ok) return ok;
  if (f.is_udp()) {
    if (auto group = group_call(level, name, value, len)) {
      resolve_interface(*f.stack, group->m);
      if (group->is_join)
        udp_socket::joined(f, group->m);
      else
        udp_socket::left(f, group->m);
    } else {
      udp_socket::apply_options(f);
    }
  } else if (mode == Mode::kCarried || mode == Mode::kListening) {
    apply_tcp(f, h.fd, level, name);
  }
  return {};
}

Result<void> getsockopt(Handle h, int level, int name, void* value, socklen_t* len) {
  File& f = *h.file;
  if (f.is_tcp() && level == IPPROTO_TCP && name == TCP_CONGESTION &&
      f.mode.load(std::memory_order_acquire) != Mode::kKernel) {
    const LockGuard control(f.control);
    if (!h.is_alive()) return fail(EBADF, "getsockopt");
    return get_congestion(f, value, len);
  }
  if (f.is_carried())
    if (auto r = get_live(f, level, name, value, len)) return *r;
  if (f.is_carried() && (f.placeholder || (f.is_tcp() && is_untold(level, name)))) {
    const LockGuard control(f.control);
    if (!h.is_alive()) return fail(EBADF, "getsockopt");
    if (auto r = get_kept(h, level, name, value, len)) return *r;
  }
  if (f.is_tcp() && is_untold(level, name))
    if (const auto on = f.stack->spare_shadows().nodelay(f))
      return give_int(*on ? 1 : 0, value, len);
  if (libc().getsockopt(h.fd, level, name, value, len) != 0) return fail_errno("getsockopt");
  return {};
}

bool has_timeout(Handle h, bool sending) {
  const auto& t = sending ? h->snd_timeout_ns : h->rcv_timeout_ns;
  return t.load(std::memory_order_relaxed) != 0;
}

}  // namespace sock
}  // namespace vireo
