// The life of a connection in the engine, from its demux entry to TIME-WAIT.
#include <algorithm>
#include <string_view>

#include "stack/engine/hub.h"

namespace vireo {
namespace {

constexpr unsigned kTurnsAhead = 64;

/// Whether frames that come by the flow's rule can be given to the kernel. In generic mode they
/// would come back; with tags they need no demux entry.
bool takes_ahead(const TcpFlow& f) {
  if (f.egress.port == nullptr || f.egress.port->dead) return false;
  const DeviceCaps& caps = f.egress.port->device->caps();
  return !caps.tags && std::string_view(caps.mode) != "generic";
}

}  // namespace

TcpFlow* TcpFlows::make(const FlowKey& key) {
  TcpFlow* f = flows_.alloc();
  if (f == nullptr) return nullptr;
  f->kind = FlowKind::kTcp;
  f->tag = FlowTag(flows_.handle(*f).index + 1);
  f->key = key;
  f->stats = &hub().unowned_stats;
  if (!hub().demux.insert(demux_key(key), ref(*f))) {
    flows_.free(*f);
    return nullptr;
  }
  hub().wakeups.count_flow();
  return f;
}

void TcpFlows::free(TcpFlow& f) noexcept {
  hub().demux.erase(demux_key(f.key), ref(f));
  end(f);
}

void TcpFlows::end(TcpFlow& f) noexcept {
  hub().ports.ask_arrivals(f, false);
  hub().receive.forget(f);
  hub().doorbells.forget(f);
  hub().deferred.forget(f);
  if (f.is_orphan()) --orphan_count_;
  if (f.port_holder && !keep_port(f, Clock::now()) && f.port_origin == PortOrigin::kLeased)
    leases_.lost();
  hub().will.strike(f);
  hub().timers.cancel(f);
  tcp::release(f.tcb);
  hub().wakeups.uncount_flow();
  flows_.free(f);  // its hooks unlink themselves; rule and port holder end
}

bool TcpFlows::keep_port(TcpFlow& f, Instant now) {
  Port* const port = f.egress.port;
  const bool was_leased = f.port_origin == PortOrigin::kLeased;
  if (f.port_origin == PortOrigin::kProgram || !f.port_holder || !f.tcb.ts_on || port == nullptr ||
      port->dead || f.key.local.scope != 0)
    return false;
  if (!was_leased && !leases_.has_room()) return false;
  FlowRule rule;
  if (!port->device->caps().tags) {  // else each connection has its own rule, with its tag
    if (was_leased) {
      if (f.rule.device() != port->device.get()) return false;  // the route has changed since
      rule = std::move(f.rule);
    } else if (auto made = hub().steering.make_rule(
                   *port, {IpProto::kTcp, f.key.v6, VlanId(), f.key.local, {}}, FlowTag());
               made && *made) {
      rule = std::move(*made);
    } else {
      return false;
    }
  }
  leases_.keep({f.key.local, port, std::move(f.port_holder), std::move(rule), now}, was_leased);
  return true;
}

void TcpFlows::close(TcpFlow& f, UniqueFd port_holder, bool reset, Instant now) {
  hub().doorbells.end_cork_of(f);
  f.owner = nullptr;
  f.stats = &hub().unowned_stats;
  if (f.port_origin != PortOrigin::kLeased && !f.taken_over) f.port_holder = std::move(port_holder);
  f.notify_hook.unlink();
  f.gathered = tcp::Effects::kNone;
  orphans_.push_back(f);
  if (reset)
    tcp::abort(f.tcb, now);
  else
    tcp::close(f.tcb, now);
  if (++orphan_count_ > hub().config.max_orphans) end_surplus(f);
  progress(f, now);
  // A RST is sent only once, and without flows the helper does not look.
  if (hub().doorbells.has_open_answers() && tcp::state(f.tcb) == tcp::State::kClosed)
    hub().doorbells.ring();
  hub().turn.publish_deadline(now);
  orphan_effects(f, now);
}

/// More orphans than allowed: a closed connection must not hold memory as long as its peer likes.
/// Reset at once, as on Linux (tcp(7) tcp_max_orphans).
void TcpFlows::end_surplus(TcpFlow& f) noexcept {
  const tcp::State s = tcp::state(f.tcb);
  if (s == tcp::State::kClosed || s == tcp::State::kTimeWait) return;
  (void)tcp::evict(f.tcb, 0);
}

void TcpFlows::orphan_effects(TcpFlow& f, Instant now) noexcept {
  if (f.pending_hook.is_linked()) return;  // still has something to send
  const tcp::State s = tcp::state(f.tcb);
  if (s != tcp::State::kClosed && s != tcp::State::kTimeWait) return;
  if (s == tcp::State::kTimeWait && !f.taken_over) return hub().time_waits.enter(f, now);
  // The next SYN of the tuple is for the kernel's listener, and may be in a ring already.
  if (f.taken_over) hub().steering.expect_strays(f.key, now);
  free(f);
}

uint64_t TcpFlows::orphans_owe() const {
  uint64_t owed = 0;
  for (const TcpFlow& f : orphans_) {
    const tcp::State s = tcp::state(f.tcb);
    if (s == tcp::State::kFinWait2 || s == tcp::State::kTimeWait) continue;
    owed += 1 + f.tcb.outstanding() + f.tcb.unsent();
  }
  return owed;
}

void TcpFlows::settle_will() noexcept {
  for (const TcpFlow& f : orphans_)
    if (tcp::state(f.tcb) == tcp::State::kFinWait2 || tcp::state(f.tcb) == tcp::State::kTimeWait)
      hub().will.strike(f);
}

Result<void> TcpFlows::hand_over(TcpFlow& f, Instant now) {
  // The other TCP takes an ACK of what was sent since its state was read for a bad one, for ever.
  f.pending_hook.unlink();
  hub().timers.cancel(f);
  hub().steering.expect_strays(f.key, now);
  if (takes_ahead(f)) {
    // What is in the ring goes first: behind frames that come to the kernel directly, it would look
    // lost.
    hub().receive.forget(f);
    hub().demux.erase(demux_key(f.key), ref(f));
    for (unsigned i = 0; i < kTurnsAhead && hub().turn.run(now); ++i) {
    }
    hub().demux.insert(demux_key(f.key), ref(f));
  }
  if (auto ok = hub().steering.leave_to_kernel(f); !ok) {
    progress(f, now);
    return ok;
  }
  part_with(f, now);
  return {};
}

void TcpFlows::part_with(TcpFlow& f, Instant now) noexcept {
  // The port is the other TCP's.
  if (f.port_origin == PortOrigin::kLeased && f.port_holder) leases_.lost();
  f.port_holder.reset();
  f.port_origin = PortOrigin::kProgram;
  f.owner = nullptr;
  f.stats = &hub().unowned_stats;
  hub().time_waits.leave_to_kernel(f, now);
}

}  // namespace vireo
