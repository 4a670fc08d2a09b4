// Active opens, and the tuples that must be free for them.
#include <algorithm>

#include "stack/engine/hub.h"
#include "stack/engine/mss.h"

namespace vireo {

bool TcpFlows::make_way(TcpFlow& f, const tcp::Segment& syn, std::optional<tcp::TimeWait>& before,
                        Instant now) noexcept {
  const tcp::State state = tcp::state(f.tcb);
  const bool waits = state == tcp::State::kTimeWait && !f.pending_hook.is_linked();
  if ((state != tcp::State::kClosed && !waits) || f.tcb.reset_due) return false;
  if (has(syn.flags, tcp::SegFlags::kAck | tcp::SegFlags::kRst)) return false;
  if (hub().keys.find(IpProto::kTcp, f.key.local.addr, f.key.local.port) == 0) return false;
  if (waits) {
    tcp::TimeWait wait = tcp::make_time_wait(f.tcb);
    tcp::Plan none;
    if (tcp::time_wait_input(wait, syn, now, none) != tcp::TimeWaitVerdict::kNewConnection)
      return false;
    before = wait;
    hub().notifications.note(f, tcp::finish(f.tcb, 0));
    hub().timers.arm(f);
  }
  give_tuple_up(f);
  return true;
}

/// A connection that is over remains for its program only.
void TcpFlows::give_tuple_up(TcpFlow& f) noexcept {
  if (f.is_orphan()) return free(f);
  hub().receive.forget(f);
  hub().demux.erase(demux_key(f.key), ref(f));
  f.rule = FlowRule();
}

/// Frees the tuple for an active open. As Linux (tcp_twsk_unique()): a connection in TIME-WAIT
/// gives way if its timestamps distinguish old segments from new ones, or if the program did not
/// choose the port. @return the state of what was in TIME-WAIT. Errors: EADDRNOTAVAIL.
Carried<std::optional<tcp::TimeWait>> TcpFlows::take_tuple(const FlowKey& key,
                                                           PortOrigin origin) noexcept {
  const Refusal taken{Carriage::kDevice, EADDRNOTAVAIL, "connection exists"};
  const auto gives_way = [&](const tcp::TimeWait& w) {
    return w.timestamps || origin != PortOrigin::kProgram;
  };
  const Demux::Ref r = hub().demux.find_own(demux_key(key));
  if (kind_of(r) == FlowKind::kTimeWait) {
    TimeWaitEntry& e = at<TimeWaitEntry>(r);
    const tcp::TimeWait before = e.wait;
    if (!gives_way(before)) return std::unexpected(taken);
    hub().time_waits.drop(e);
    return before;
  }
  if (kind_of(r) != FlowKind::kTcp) return std::nullopt;
  TcpFlow& f = at<TcpFlow>(r);
  if (f.tcb.reset_due || f.pending_hook.is_linked()) return std::unexpected(taken);
  std::optional<tcp::TimeWait> before;
  if (tcp::state(f.tcb) == tcp::State::kTimeWait) {
    before = tcp::make_time_wait(f.tcb);
    if (!gives_way(*before)) return std::unexpected(taken);
    hub().notifications.note(f, tcp::finish(f.tcb, 0));
    hub().timers.arm(f);
  } else if (tcp::state(f.tcb) != tcp::State::kClosed) {
    return std::unexpected(taken);
  }
  give_tuple_up(f);
  return before;
}

bool TcpFlows::is_in_use(const BindWish& wish) noexcept {
  const IpAddr& addr = wish.local.addr;
  const auto meets = [&](const IpAddr& local) {
    if (addr == local) return true;
    if (!addr.is_unspecified()) return false;
    return addr.is_v4() ? local.is_v4() : !wish.v6only || !local.is_v4();
  };
  bool is_used = false;
  const auto look = [&](const auto& c, const IpAddr& local) {
    const bool shares = (wish.reuse_addr && c.reuse_addr) || (wish.reuse_port && c.reuse_port);
    is_used |= !shares && meets(local);
  };
  flows_.for_each([&](const TcpFlow& f) {
    if (f.key.local.port == wish.local.port && tcp::state(f.tcb) != tcp::State::kClosed)
      look(f, f.key.local.addr);
  });
  hub().time_waits.for_each([&](const TimeWaitEntry& e) {
    if (e.key.local_port == wish.local.port && !e.is_elsewhere) look(e, IpAddr::v6(e.key.local));
  });
  return is_used;
}

void TcpFlows::set_route(TcpFlow& f, const Route& route, const IpSettings& ip,
                         Instant now) noexcept {
  f.ip = ip;
  f.egress.port = route.port;
  f.egress.ifindex = route.hop.ifindex;
  f.egress.link_mtu = route.hop.mtu;
  f.egress.mtu = ip.mtu_discover < IP_PMTUDISC_INTERFACE
                     ? hub().next_hops.path_mtu(f.key.remote.addr, route.hop.mtu, now)
                     : route.hop.mtu;
}

/// The program's configuration, with what the route allows.
tcp::Config TcpFlows::config_within(TcpFlow& f, const tcp::Config& config) noexcept {
  f.mss_limit = config.mss;
  tcp::Config c = config;
  c.mss = std::min(c.mss, mss_of(f.egress.mtu, f.key.v6));
  c.spread_rto = true;
  return c;
}

Carried<TcpFlow*> TcpFlows::connect(const Route& route, const Endpoint& local,
                                    const Endpoint& remote, const tcp::Config& config,
                                    const IpSettings& ip, void* owner, SocketStats& stats,
                                    Instant now, const FastConnect* fast,
                                    std::optional<PortLease> lease, PortOrigin origin) {
  const FlowKey key{IpProto::kTcp, !local.addr.is_v4(), VlanId(), local, remote};
  const uint64_t secret = tcp::tuple_hash(hub().secret, local, remote);
  Seq32 iss = tcp::initial_sequence(secret, now);
  const auto before = take_tuple(key, origin);
  if (before && *before) iss = tcp::beyond_old_window(iss, (*before)->snd_nxt);
  TcpFlow* f = before ? make(key) : nullptr;
  if (f == nullptr) {
    if (lease) leases_.keep(std::move(*lease), true);
    return std::unexpected(before ? Refusal{Carriage::kMemory, ENOMEM, "TCP flows"}
                                  : before.error());
  }
  if (lease) {
    f->port_origin = PortOrigin::kLeased;
    f->port_holder = std::move(lease->holder);
    f->rule = std::move(lease->rule);
    hub().stats.leased_ports.add();
  }
  if (!f->rule) {
    // Before the SYN leaves: the SYN-ACK must not reach the kernel, which would reset it.
    auto rule = hub().steering.make_rule(*route.port, key, f->tag);
    if (!rule) {
      free(*f);
      return std::unexpected(rule.error());
    }
    f->rule = std::move(*rule);
  }
  f->owner = owner;
  f->stats = &stats;
  set_route(*f, route, ip, now);
  tcp::Config c = config_within(*f, config);
  c.ts_offset = tcp::timestamp_offset(secret);
  tcp::open_active(f->tcb, c, hub().pool, iss, now);
  if (fast != nullptr) begin_fast_connect(*f, *fast, now);
  hub().stats.active_opens.add();
  hub().will.write(*f);
  progress(*f, now);
  hub().turn.publish_deadline(now);
  return f;
}

}  // namespace vireo
