#include "stack/sock/options.h"

#include <linux/in6.h>
#include <linux/net_tstamp.h>
#include <linux/tcp.h>
#include <net/if.h>

#include <algorithm>
#include <cstring>

#include "stack/sock/option_table.h"
#include "stack/sock/sockets.h"
#include "stack/tcp/linux_info.h"

#ifndef TCP_RTO_MAX_MS  // Linux 6.15
#define TCP_RTO_MAX_MS 44
#define TCP_RTO_MIN_US 45
#define TCP_DELACK_MAX_US 46
#endif

namespace vireo {
namespace {

using O = SocketOptions;

/// Names under which the kernel reads what was set by another.
int read_name(int level, int name) {
  if (level != SOL_SOCKET) return name;
  if (name == SO_RCVBUFFORCE) return SO_RCVBUF;
  if (name == SO_SNDBUFFORCE) return SO_SNDBUF;
  return name;
}

/// An int option whose value is kept: read back from the kernel after it was set.
const SocketOption* find_kept(int level, int name) {
  const SocketOption* o = find_option(level, read_name(level, name));
  return o != nullptr && o->kept != nullptr ? o : nullptr;
}

/// As the kernel reads it: whole, or where it takes less, one byte.
int int_of(const void* value, socklen_t len) {
  int v = 0;
  const size_t n = len < sizeof v ? std::min<size_t>(len, 1) : sizeof v;
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

/// Are there tables of the kernel's to look into?
bool has_mirror(Stack& stack) {
  const Settings& s = stack.settings();
  return s.offloaded_sockets && s.device != DeviceChoice::kOff && stack.engine();
}

/// Whose address that is; 0: nobody's.
IfIndex interface_with(Stack& stack, const IpAddr& address) {
  if (!has_mirror(stack)) return {};
  net::SnapshotStore::Reader reader(stack.mirror()->store());
  for (const net::Addr& a : reader.snapshot().addrs->all)
    if (a.addr == address) return a.ifindex;
  return {};
}

/// By which the kernel's tables lead to a group; 0: none.
IfIndex interface_to(Stack& stack, const IpAddr& group) {
  if (!has_mirror(stack)) return {};
  net::SnapshotStore::Reader reader(stack.mirror()->store());
  net::LookupKey key;
  key.dst = group;
  key.proto = IpProto::kUdp;
  const auto hop = net::resolve(reader.snapshot(), key);
  return hop ? hop->ifindex : IfIndex();
}

/// SO_PRIORITY, as IP_TOS sets it (Linux rt_tos2priority).
int priority_of(int tos) {
  constexpr int kPriorities[] = {0, 2, 6, 4};  // TC_PRIO_*
  return kPriorities[tos >> 3 & 3];
}

/// Keeps what the kernel made of it, in `o`. Control lock held.
void keep(File& f, SocketOptions& o, int fd, int level, int name, const void* value,
          socklen_t len) {
  if (const SocketOption* k = find_kept(level, name); k != nullptr) {
    int v = 0;
    socklen_t n = sizeof v;
    if (libc().getsockopt(fd, level, k->name, &v, &n) != 0) return;
    if (k->kept == &O::ip_tos && o.ip_tos != v) o.priority = priority_of(v);
    o.*(k->kept) = v;
    if (k->kept == &O::rcvbuf) o.rcvbuf_set = true;
    if (k->kept == &O::sndbuf) o.sndbuf_set = true;
    if (k->kept == &O::timestamp && v != 0) o.timestamp_ns = 0;
    if (k->kept == &O::timestamp_ns && v != 0) o.timestamp = 0;
    return;
  }
  if (level == IPPROTO_IPV6 && name == IPV6_MTU && f.is_udp()) o.v6_fragment = int_of(value, len);
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
    case SO_RCVTIMEO_OLD:
    case SO_RCVTIMEO_NEW:  // the same on a machine of 64 bits
      f.rcv_timeout_ns.store(timeout_ns(value, len), std::memory_order_relaxed);
      break;
    case SO_SNDTIMEO_OLD:
    case SO_SNDTIMEO_NEW:
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
    case SO_BINDTOIFINDEX: {
      int index = 0;
      socklen_t n = sizeof index;
      if (libc().getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, &n) == 0)
        o.bound_ifindex = index;
      break;
    }
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
    (void)e.listeners().hear_by(f.listener(), of_listener.device);
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
  const bool names_device =
      level == SOL_SOCKET && (name == SO_BINDTODEVICE || name == SO_BINDTOIFINDEX);
  const bool names_way =
      names_device || (level == SOL_SOCKET && (name == SO_MARK || name == SO_PRIORITY));
  if (level == IPPROTO_IP || level == IPPROTO_IPV6 || names_way) {
    flow.ip = ip_settings(o, flow.key.v6);
    if (names_device && !flow.key.remote.addr.is_link_local())
      flow.key.remote.scope = static_cast<uint32_t>(o.bound_ifindex);
    flow.egress.generation = 0;
    if (flow.ip.mtu_discover == IP_PMTUDISC_DONT && !flow.key.v6) tcp::stop_mtu_probing(t);
  }
  e.tcp().progress(flow, now);
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

/// A membership by the interface's address, or by none, gets its index as Linux finds it
/// (net/ipv4/igmp.c ip_mc_find_dev(), net/ipv6/mcast.c ipv6_sock_mc_join()): whose address that is,
/// or by the route to the group.
void resolve_interface(Stack& stack, Membership& m) {
  if (m.ifindex.value() != 0) return;
  if (!m.address.is_unspecified())
    m.ifindex = interface_with(stack, m.address);
  else
    m.ifindex = interface_to(stack, m.group);
}

}  // namespace

bool wants_device_time(const SocketOptions& o) {
  return (o.timestamping & SOF_TIMESTAMPING_RAW_HARDWARE) != 0;
}

Result<void> replace_options(File& f, const SocketOptions& o) VIREO_NO_THREAD_ANALYSIS {
  if (f.is_udp()) {
    f.udp->options = o;
    f.udp->control = datagram_control(o);
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
  for (const SocketOption& k : all_options()) {
    if (k.kept == nullptr) continue;
    int v = o.*k.kept;
    const bool of_opening = k.kept == &O::fastopen || k.kept == &O::fastopen_connect ||
                            k.kept == &O::fastopen_no_cookie || k.kept == &O::defer_accept;
    // One that the operator sets for all (net.ipv6.bindv6only).
    const bool is_ordinary = v == ordinary.*k.kept && k.kept != &O::v6only;
    if (is_ordinary || k.level == other_family || of_opening) continue;
    if (k.kept == &O::rcvbuf || k.kept == &O::sndbuf) v /= 2;  // it is doubled again
    give(k.level, k.name, v);
  }
  give(SOL_SOCKET, SO_PRIORITY, o.priority);  // IP_TOS has set it
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
          .priority = static_cast<uint8_t>(std::clamp(o.priority, 0, 255)),
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

/// Would the kernel have it for a socket of this family? A carried connection's own is not to be
/// asked: it has no connection, and others have it, too.
Result<void> kernel_judges(const File& f, int level, int name, const void* value, socklen_t len) {
  const UniqueFd fd(libc().socket(f.domain.load(std::memory_order_relaxed),
                                  SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd) return fail_errno("setsockopt");
  return kernel_set(fd.get(), level, name, value, len);
}

Refusal why_left(const SocketOption* option) {
  return {Carriage::kOption, 0, option != nullptr ? option->text : "one that Vireo does not know"};
}
Forced forced_by(const SocketOption* option) {
  if (option == nullptr) return {Carriage::kOption};
  return {Carriage::kOption, static_cast<uint16_t>(option - all_options().data())};
}

/// The kernel's socket has it: it is the kernel's alone from now on. Control lock held.
void leave(File& f, int fd, const SocketOption* option) {
  const Refusal why = why_left(option);
  const Mode mode = f.mode.load(std::memory_order_relaxed);
  if (f.is_udp()) return udp_socket::give_up(f, why, forced_by(option));
  if (mode == Mode::kListening) {
    listener::give_to_kernel(f, fd, why, forced_by(option));
    f.ready.notify(kModeChanged);
  } else {
    f.forced = forced_by(option);  // it may connect anew
  }
}

/// The same for a carried connection. Errors: EOPNOTSUPP, it cannot go on there; the kernel's.
Result<void> leave_connected(File& f, int fd, const SocketOption* option, int level, int name,
                             const void* value, socklen_t len) {
  if (auto ok = hand_over_connection(f, why_left(option)); !ok)
    return fail(EOPNOTSUPP, "setsockopt");
  f.forced = forced_by(option);
  f.ready.notify(kModeChanged | kReadyIn | kReadyOut);
  return kernel_set(fd, level, name, value, len);
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
  if (!kind || mode == Mode::kKernel) {
    if (auto ok = kernel_set(fd, IPPROTO_TCP, TCP_CONGESTION, value, len); !ok) return ok;
    leave(f, fd, find_option(IPPROTO_TCP, TCP_CONGESTION));
    return {};
  }
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

/// SO_PEERNAME: getpeername(2), but for room that is too small.
Result<void> get_peer(File& f, Engine& e, void* value, socklen_t* len) {
  Endpoint peer;
  {
    const EngineGuard guard(e);
    const tcp::State s = f.flow == nullptr ? tcp::State::kClosed : tcp::state(f.tcp_flow().tcb);
    if (s == tcp::State::kClosed || s == tcp::State::kTimeWait) return fail(ENOTCONN, "getsockopt");
    peer = f.flow->key.remote;
  }
  sockaddr_storage sa{};
  const socklen_t n = peer.to_sockaddr(sa, f.domain.load(std::memory_order_relaxed));
  if (!is_readable(len)) return fail(EFAULT, "getsockopt");
  if (static_cast<int>(*len) < 0 || *len > n) return fail(EINVAL, "getsockopt");
  if (*len != 0 && !is_writable(value, *len)) return fail(EFAULT, "getsockopt");
  std::memcpy(value, &sa, *len);
  return {};
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
  if (f.is_tcp() && level == SOL_SOCKET && name == SO_PEERNAME) return get_peer(f, e, value, len);
  if (f.is_tcp() && level == IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE)
    return fail(EOPNOTSUPP, "getsockopt");  // as of a connection whose pages cannot be mapped
  if (f.is_tcp() && level == IPPROTO_IPV6 && name == IPV6_ADDRFORM &&
      f.domain.load(std::memory_order_relaxed) == AF_INET6) {
    const EngineGuard guard(e);
    const bool is_there = f.flow != nullptr && !tcp::is_opening(f.tcp_flow().tcb);
    if (!is_there) return fail(ENOTCONN, "getsockopt");
    return give_int(AF_INET6, value, len);
  }
  if (level == IPPROTO_IPV6 && name == IPV6_PATHMTU && f.is_tcp() &&
      f.domain.load(std::memory_order_relaxed) == AF_INET6) {
    const EngineGuard guard(e);
    ip6_mtuinfo info{};
    if (is_readable(len) && static_cast<int>(*len) < static_cast<int>(sizeof info))
      return fail(EINVAL, "getsockopt");
    info.ip6m_mtu = f.flow != nullptr ? f.tcp_flow().egress.mtu : 0;
    if (info.ip6m_mtu == 0) return fail(ENOTCONN, "getsockopt");
    return give(info, value, len);
  }
  const bool asks_mtu =
      (level == IPPROTO_IP && name == IP_MTU) || (level == IPPROTO_IPV6 && name == IPV6_MTU);
  if (asks_mtu) {
    const EngineGuard guard(e);
    if (f.flow == nullptr || (f.is_udp() && !f.udp->connected)) return std::nullopt;
    const uint32_t mtu = f.is_tcp() ? f.tcp_flow().egress.mtu : f.udp_flow().path_mtu;
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

/// The kernel's socket beneath has another answer than the program's: it was not told, or is bound
/// to an address that the program has not named.
bool is_own_to_tell(int level, int name) {
  return is_untold(level, name) || (level == IPPROTO_IPV6 && name == IPV6_V6ONLY);
}

/// Control lock held.
Result<void> set_untold(File& f, int fd, int level, int name, const void* value, socklen_t len) {
  if (static_cast<int>(len) < static_cast<int>(sizeof(int))) return fail(EINVAL, "setsockopt");
  if (!is_readable(static_cast<const int*>(value))) return fail(EFAULT, "setsockopt");
  SocketOptions o = *f.tcp.options;
  o.*(find_kept(level, name)->kept) = int_of(value, len) != 0 ? 1 : 0;
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

/// Of SO_TIMESTAMPING (linux/net_tstamp.h so_timestamping, which is newer than some headers).
struct StampFlags {
  int flags;
  int bind_phc;
};

/// Kept as 0 where it was never set, for which the kernel has a number.
bool is_read_as_default(const SocketOption& o) {
  return o.kept == &O::rto_min_us || o.kept == &O::rto_max_ms || o.kept == &O::delack_max_us;
}
Result<void> give_default(const File& f, const SocketOption& o, void* value, socklen_t* len) {
  const UniqueFd fd(libc().socket(f.domain.load(std::memory_order_relaxed),
                                  SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd || libc().getsockopt(fd.get(), o.level, o.name, value, len) != 0)
    return fail_errno("getsockopt");
  return {};
}

/// What an accepted connection was given, for it has no kernel socket that could tell.
std::optional<Result<void>> get_kept(Handle h, int level, int name, void* value, socklen_t* len) {
  File& f = *h.file;
  const SocketOptions& o = *f.tcp.options;
  if (level == SOL_SOCKET) {
    switch (name) {
      case SO_RCVTIMEO_OLD:
      case SO_RCVTIMEO_NEW:
        return give(timeval_of(f.rcv_timeout_ns.load()), value, len);
      case SO_SNDTIMEO_OLD:
      case SO_SNDTIMEO_NEW:
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
  const bool is_v6 = f.domain.load(std::memory_order_relaxed) == AF_INET6;
  const SocketOption* k = find_kept(level, name);
  if (k == nullptr || k->name != name || (level == IPPROTO_IPV6 && !is_v6)) return std::nullopt;
  // What the program has bound to an address of IPv6 is for IPv6 only, and the kernel says so.
  if (k->kept == &O::v6only && !f.placeholder && !f.tcp.has_drawn_source) return std::nullopt;
  if (k->kept == &O::timestamping) return give(StampFlags{o.timestamping, 0}, value, len);
  if (o.*(k->kept) == 0 && is_read_as_default(*k)) return give_default(f, *k, value, len);
  return give_int(o.*(k->kept), value, len);
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
      (level == IPPROTO_TCP &&
       (name == TCP_FASTOPEN_CONNECT || name == TCP_FASTOPEN_NO_COOKIE || name == TCP_FASTOPEN)) ||
      (level == IPPROTO_TCP && name == TCP_WINDOW_CLAMP && len >= sizeof(int) &&
       is_readable(value, sizeof(int)) && int_of(value, len) == 0) ||
      (level == IPPROTO_IPV6 && name == IPV6_V6ONLY &&
       f.domain.load(std::memory_order_relaxed) == AF_INET6);
  if (f.is_tcp() && mode == Mode::kCarried && is_before) return fail(EINVAL, "setsockopt");
  if (mode == Mode::kCarried && untold) return set_untold(f, h.fd, level, name, value, len);
  const SocketOption* const option = find_option(level, name);
  const OptionClass kind = option != nullptr ? option->of(f.is_udp()) : OptionClass::kLeaves;
  const bool may_leave = kind == OptionClass::kLeaves || kind == OptionClass::kRefused;
  const auto leaves = [&] {
    const int v = int_of(value, len);
    if (option != nullptr && option->kept == &O::rxq_ovfl && f.is_udp())  // are its drops counted?
      return v != 0 && f.stats->generation.load(std::memory_order_relaxed) == 0;
    return may_leave && (option == nullptr || option->leaves_with(v, len, f.is_udp()));
  };
  if (may_leave && mode == Mode::kCarried && f.is_tcp()) {
    const auto judged = kernel_judges(f, level, name, value, len);
    if (kind == OptionClass::kRefused && (!judged || leaves()))
      return fail(option->error, "setsockopt");
    if (!judged) return judged;
    if (leaves()) return leave_connected(f, h.fd, option, level, name, value, len);
  }
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
  if (leaves()) {
    leave(f, h.fd, option);
    return {};
  }
  if (f.is_udp()) {
    if (auto group = group_call(level, name, value, len)) {
      // As Linux: of IPv6 by no interface is left what was joined last.
      if (group->is_join || group->m.group.is_v4()) resolve_interface(*f.stack, group->m);
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
  if (f.is_carried() && (f.placeholder || (f.is_tcp() && is_own_to_tell(level, name)))) {
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
