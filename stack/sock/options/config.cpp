// The initial configuration of a flow, from its socket's options.
#include <netinet/in.h>

#include <algorithm>

#include "stack/sock/options/options.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/stack.h"
#include "stack/sock/udp_socket.h"

namespace vireo {
namespace {

tcp::EcnMode ecn_mode(int tcp_ecn) {
  if (tcp_ecn == 1 || tcp_ecn == 3) return tcp::EcnMode::kRequest;
  return tcp_ecn == 0 ? tcp::EcnMode::kOff : tcp::EcnMode::kAccept;
}

}  // namespace

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

Result<void> replace_options(File& f, const SocketOptions& o) VIREO_NO_THREAD_ANALYSIS {
  if (f.is_udp()) {
    f.udp->options = o;
    f.udp->control = datagram_control(o);
    send_reports::follow(f, nullptr);
    return {};
  }
  auto shared = SharedOptions::share(*f.stack, o);
  if (!shared) return fail(ENOMEM, "options");
  Engine* const e = f.engine.load(std::memory_order_relaxed);
  if (e != nullptr) e->acquire();
  std::swap(f.tcp.options, *shared);
  f.tcp.wants_control.store(wants_stream_control(o), std::memory_order_relaxed);
  send_reports::follow(f, e);
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
    f.tcp.sends_apart = f.stack->settings().rx_poll_on_tx_tcp;
    return;
  }
  const Settings& s = f.stack->settings();
  f.udp->options.ip.mc_loop = s.tx_mc_loopback;
  // Linux net/ipv6/af_inet6.c inet6_create() sets IPv6's alone.
  f.udp->options.ip.mc_all = f.domain.load(std::memory_order_relaxed) == AF_INET ? 1 : 0;
  f.udp->options.ipv6.mc_loop = s.tx_mc_loopback;
}

SharedOptions first_options(Stack& stack) {
  const KernelDefaults& d = stack.defaults();
  SocketOptions o;
  o.tcp.nodelay = stack.settings().tcp_nodelay;
  o.tcp.keepidle = static_cast<int>(d.tcp_keepalive_time.ms() / 1000);
  o.tcp.keepintvl = static_cast<int>(d.tcp_keepalive_intvl.ms() / 1000);
  o.tcp.keepcnt = d.tcp_keepalive_probes;
  o.tcp.syncnt = d.tcp_syn_retries;
  o.tcp.linger2 = static_cast<int>(d.tcp_fin_timeout.ms() / 1000);
  return SharedOptions::share(stack, o).value_or(SharedOptions());
}

IpSettings ip_settings(const SocketOptions& o, bool v6) {
  return {.ttl = static_cast<uint8_t>(v6 ? o.ipv6.hops : o.ip.ttl),
          .tos = static_cast<uint8_t>(v6 ? o.ipv6.tclass : o.ip.tos),
          .mtu_discover = static_cast<uint8_t>(v6 ? o.ipv6.mtu_discover : o.ip.mtu_discover),
          .priority = static_cast<uint8_t>(std::clamp(o.socket.priority, 0, 255)),
          .mark = static_cast<uint32_t>(o.socket.mark)};
}

tcp::Config tcp_config(const Stack& stack, const SocketOptions& o) {
  const Settings& s = stack.settings();
  const KernelDefaults& d = stack.defaults();
  // Both buffers grow with the path (stack/tcp/buffer_tuning.h). The receive buffer starts as on
  // Linux, at half of tcp_rmem: a peer may fill it at once, and so may those of all other
  // connections. The send buffer, which Linux starts small, starts with what an ordinary path
  // needs. A size set by the program is stored doubled (socket(7)).
  static constexpr uint32_t kStartToSend = 256 << 10;
  const auto bytes = [](bool set, int doubled, Bytes chosen, uint32_t start) {
    if (set) return static_cast<uint32_t>(std::max(doubled, 2 * 2048) / 2);
    if (chosen != 0) return static_cast<uint32_t>(chosen.value());
    return start;
  };
  tcp::Config c;
  c.mss = 65'495;
  if (s.tcp_mss != 0) c.mss = static_cast<uint16_t>(s.tcp_mss.value());
  if (o.tcp.maxseg != 0) c.mss = std::min(c.mss, static_cast<uint16_t>(o.tcp.maxseg));
  c.rcv_buf = bytes(o.socket.rcvbuf_set, o.socket.rcvbuf, s.rcvbuf,
                    static_cast<uint32_t>(std::max(d.tcp_rmem.initial / 2, 4096)));
  c.snd_buf = bytes(o.socket.sndbuf_set, o.socket.sndbuf, s.sndbuf,
                    std::max(static_cast<uint32_t>(d.tcp_wmem.initial), kStartToSend));
  const auto most = [](bool fixed, uint32_t now, int limit) {
    return fixed ? now : std::max(now, static_cast<uint32_t>(limit));
  };
  c.rcv_buf_max = most(o.socket.rcvbuf_set || s.rcvbuf != 0, c.rcv_buf, d.tcp_rmem.most);
  c.snd_buf_max = most(o.socket.sndbuf_set || s.sndbuf != 0, c.snd_buf, d.tcp_wmem.most);
  c.max_pacing_rate = o.socket.max_pacing_rate;
  c.wscale = 0;
  while (c.wscale < 14 && c.rcv_buf_max >> c.wscale > 65'535) ++c.wscale;
  c.wscale = std::max<uint8_t>(c.wscale, 7);  // room to grow by SO_RCVBUF later
  c.window_scaling = d.tcp_window_scaling;
  c.timestamps = s.tcp_timestamps == TcpTimestamps::kOn ||
                 (s.tcp_timestamps == TcpTimestamps::kAsKernel && d.tcp_timestamps);
  c.sack = d.tcp_sack;
  c.congestion = o.tcp.congestion.value_or(default_congestion(stack));
  c.ecn = ecn_mode(d.tcp_ecn);
  c.nodelay = o.tcp.nodelay != 0;
  c.cork = o.tcp.cork != 0;
  c.quickack = s.tcp_quickack;
  c.oob_inline = o.socket.oobinline != 0;
  c.keepalive = o.socket.keepalive != 0;
  c.rto_min = o.tcp.rto_min_us != 0 ? Duration::us(o.tcp.rto_min_us) : Duration(s.tcp_rto_min);
  if (o.tcp.rto_max_ms != 0) c.rto_max = Duration::ms(o.tcp.rto_max_ms);
  if (o.tcp.delack_max_us != 0) c.delack_max = Duration::us(o.tcp.delack_max_us);
  c.window_clamp = static_cast<uint32_t>(std::max(o.tcp.window_clamp, 0));
  c.notsent_lowat =
      static_cast<uint32_t>(o.tcp.notsent_lowat != 0 ? o.tcp.notsent_lowat : d.tcp_notsent_lowat);
  c.keep_idle = o.tcp.keepidle != 0 ? Duration::s(o.tcp.keepidle) : d.tcp_keepalive_time;
  c.keep_interval = o.tcp.keepintvl != 0 ? Duration::s(o.tcp.keepintvl) : d.tcp_keepalive_intvl;
  c.keep_count = static_cast<uint8_t>(o.tcp.keepcnt != 0 ? o.tcp.keepcnt : d.tcp_keepalive_probes);
  c.syn_retries = static_cast<uint8_t>(o.tcp.syncnt != 0 ? o.tcp.syncnt : d.tcp_syn_retries);
  c.synack_retries = static_cast<uint8_t>(d.tcp_synack_retries);
  c.retries1 = static_cast<uint8_t>(d.tcp_retries1);
  c.retries2 = static_cast<uint8_t>(d.tcp_retries2);
  // A path whose packets may be fragmented cannot be probed.
  if (o.ip.mtu_discover != IP_PMTUDISC_DONT)
    c.mtu_probing = static_cast<tcp::MtuProbing>(d.tcp_mtu_probing);
  const auto bounded = [](int64_t v) {
    return static_cast<uint16_t>(std::min<int64_t>(v, UINT16_MAX));
  };
  c.mtu_base = bounded(d.tcp_base_mss);
  c.mtu_floor = bounded(d.tcp_mtu_probe_floor);
  c.mtu_threshold = bounded(d.tcp_probe_threshold);
  c.mtu_interval_s = bounded(d.tcp_probe_interval.ms() / 1000);
  c.user_timeout = Duration::ms(o.tcp.user_timeout_ms);
  c.fin_timeout = o.tcp.linger2 < 0 ? Duration::ms(-1) : Duration::s(o.tcp.linger2);
  return c;
}

}  // namespace vireo
