// An interface that goes on over another device: a bond whose active member is another by now. Its
// port stays, with all who send by it; device, queues and rules are made anew. What was under way
// is lost, as on any wire: TCP says it again.
#include <algorithm>

#include "core/log.h"
#include "stack/engine/engine.h"

namespace vireo {

/// @return false: there is no other device, or it was refused. Then nothing has happened.
bool Engine::move_port(Port& p) noexcept {
  const net::Link* const link = reader_.snapshot().links->find(p.link.index);
  if (link == nullptr || !link->is_up()) return false;
  Port other;
  other.link = *link;
  if (auto open = open_device(other); !open) {
    log<LogLevel::kWarn>("{}: not by its other device: {}", p.link.name, open.error().where);
    return false;
  }
  count_losses();
  other.losses_before = p.losses;
  for (auto& q : p.queues) std::erase(wait_fds_, q->wait_fd());
  std::erase_if(polled_, [&](const Polled& q) { return q.port == &p; });
  leases_.give_up(p);
  std::swap(p, other);
  tell_host(p);
  take_up(p);
  move_rules(p, *other.device);
  log<LogLevel::kInfo>("{}: goes on by another device, {}", p.link.name, p.device->caps().mode);
  return true;  // the old queues end, then their device
}

/// Those of `from` are asked of the port's device now. Who is refused there ends as with a lost
/// device; sockets that are bound hear nothing by it.
void Engine::move_rules(Port& p, const Device& from) noexcept {
  const auto is_old = [&](const FlowRule& r) { return r.device() == &from; };
  tcp_.for_each([&](TcpFlow& f) {
    if (!is_old(f.rule)) return;
    // A leased port's is for whoever has the port next, too.
    const bool is_wide = f.port_origin == PortOrigin::kLeased && !p.device->caps().tags;
    FlowKey key = f.key;
    if (is_wide) key.remote = {};
    auto rule = steer(p, key, is_wide ? FlowTag() : f.tag);
    if (rule)
      f.rule = std::move(*rule);
    else
      note_effects(f, tcp::fail(f.tcb, ENETDOWN));
  });
  // The kernel answers for those: a late segment of theirs is reset.
  time_waits_.for_each([&](TimeWaitEntry& e) {
    if (is_old(e.rule)) e.rule.reset();
  });
  std::erase_if(spared_, [&](Spared& s) {
    if (!is_old(s.rule)) return false;
    auto rule = p.device->spare(s.key);
    if (rule) s.rule = std::move(*rule);
    return !rule;  // and so it is reset
  });
  for (Listener* l : listeners_)
    if (l != nullptr && std::erase_if(l->rules, is_old) != 0)
      (void)steer_on(p, l->key, l->options.device, *l, l->rules);
  for (UdpFlow* u : bound_udp_) {
    if (std::erase_if(u->rules, is_old) == 0) continue;
    if (!u->key.local.addr.is_multicast()) (void)steer_on(p, u->key, u->device, *u, u->rules);
    for (const UdpGroup& g : u->groups)
      if (g.carrier == p.link.index) (void)steer_on(p, group_key(*u, g), {}, *u, u->rules);
  }
}

}  // namespace vireo
