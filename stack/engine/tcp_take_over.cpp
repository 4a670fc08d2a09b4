// Connections that the kernel accepted: its frames come here first, then its state.
#include <algorithm>

#include "stack/engine/hub.h"
#include "stack/engine/mss.h"

namespace vireo {

Carried<TcpFlow*> TcpFlows::begin_take_over(const Route& route, const FlowKey& key,
                                            const IpSettings& ip, Instant now) {
  TcpFlow* const f = make(key);
  if (f == nullptr) return std::unexpected(Refusal{Carriage::kMemory, ENOMEM, "TCP flows"});
  auto rule = hub().steering.make_rule(*route.port, key, f->tag);
  if (!rule) {
    free(*f);
    return std::unexpected(rule.error());
  }
  f->rule = std::move(*rule);
  f->taken_over = true;
  f->egress.port = route.port;
  f->egress.ifindex = route.hop.ifindex;
  f->egress.link_mtu = route.hop.mtu;
  f->egress.mtu = ip.mtu_discover < IP_PMTUDISC_INTERFACE
                      ? hub().next_hops.path_mtu(key.remote.addr, route.hop.mtu, now)
                      : route.hop.mtu;
  f->ip = ip;
  return f;
}

bool TcpFlows::finish_take_over(TcpFlow& f, const tcp::Config& config, const tcp::TakeOver& o,
                                void* owner, SocketStats& stats, Instant now) {
  f.mss_limit = config.mss;
  tcp::Config c = config;
  c.mss = std::min(c.mss, mss_of(f.egress.mtu, f.key.v6));
  c.spread_rto = true;
  if (!tcp::open_taken_over(f.tcb, c, hub().pool, o, now)) return false;
  f.owner = owner;
  f.stats = &stats;
  hub().will.write(f);
  progress(f, now);
  return true;
}

}  // namespace vireo
