// Listening sockets: the program's calls, and which listener receives a segment.
#include <algorithm>

#include "stack/engine/hub.h"

namespace vireo {

Carried<Listener*> PassiveOpen::listen(const Endpoint& local, bool v6only, uint32_t backlog,
                                       const tcp::Config& config, void* owner, SocketStats& stats,
                                       const ListenOptions& options) {
  auto place = std::find(listeners_.begin(), listeners_.end(), nullptr);
  if (place - listeners_.begin() >= kNoListener)
    return std::unexpected(Refusal{Carriage::kDevice, ENOSPC, "too many listeners"});
  auto l = std::make_unique<Listener>();
  l->kind = FlowKind::kListener;
  l->key = FlowKey{IpProto::kTcp, !local.addr.is_v4(), VlanId(), local, {}};
  l->v6only = v6only;
  l->config = config;
  l->options = options;
  l->backlog = backlog;
  l->owner = owner;
  l->stats = &stats;
  if (auto ok = hub().keys.bind(*l); !ok) return std::unexpected(ok.error());
  if (auto ok = hub().steering.add_bound_rules(*l, options.device, l->rules); !ok) {
    hub().keys.unbind(*l);
    return std::unexpected(ok.error());
  }
  hub().wakeups.count_flow();
  l->listener = static_cast<uint16_t>(place - listeners_.begin());
  if (place == listeners_.end())
    listeners_.push_back(l.get());
  else
    *place = l.get();
  return l.release();
}

TcpFlow* PassiveOpen::accept(Listener& l) {
  if (l.ready.empty()) return nullptr;
  TcpFlow& f = l.ready.front();
  l.ready.pop_front();
  --l.ready_count;
  f.listener = kNoListener;
  hub().stats.accepted.add();
  return &f;
}

void PassiveOpen::close(Listener& l, Instant now) {
  if (l.options.joins) return give_to_kernel(l, now);
  leave(l);
  end(l, now);
}

/// It gets no more SYNs.
void PassiveOpen::leave(Listener& l) {
  hub().keys.unbind(l);
  if (l.options.joins)
    for (Port* p : hub().ports.all())
      if (!p->dead) hub().steering.suspect_kernel(*p, l.key.local.port);
  if (l.rules.empty()) return;
  // The listener's rules brought the frames of accepted connections: each needs its own rule now.
  hub().tcp.for_each([&](TcpFlow& f) {
    if (f.rule || f.egress.port == nullptr || f.key.local.port != l.key.local.port) return;
    if (tcp::state(f.tcb) == tcp::State::kClosed) return;  // another has the tuple
    if (auto rule = hub().steering.make_rule(*f.egress.port, f.key, f.tag))
      f.rule = std::move(*rule);
  });
}

/// As Linux: half-open connections are dropped; the peer's ACK is answered by RST.
void PassiveOpen::end(Listener& l, Instant now) noexcept {
  syns_.for_each([&](tcp::SynRecord& r) {
    if (r.listener != l.listener) return;
    drop_rule(r);
    syns_.erase(r);
  });
  reset_ready(l, now);
  hub().ports.ask_arrivals(l, false);
  listeners_[l.listener] = nullptr;
  hub().wakeups.uncount_flow();
  delete &l;
}

void PassiveOpen::reset_ready(Listener& l, Instant now) noexcept {
  while (!l.ready.empty()) {
    TcpFlow& f = l.ready.front();
    l.ready.pop_front();
    --l.ready_count;
    f.listener = kNoListener;
    hub().tcp.close(f, UniqueFd(), /*reset=*/true, now);
  }
}

void PassiveOpen::close_all(Instant now) {
  for (Listener* l : listeners_) {
    if (l == nullptr) continue;
    if (!l->is_leaving()) leave(*l);
    end(*l, now);
  }
}

/// The listener for what came by `link`: of those bound to that device, else of those bound to
/// none; the hash of the connection selects one of several. Null: none.
Listener* PassiveOpen::member_for(const ListenGroup& g, const SynTuple& t,
                                  IfIndex link) const noexcept {
  const auto device = [](const Listener* l) { return l->options.device; };
  if (g.members.size() == 1) [[likely]] {
    Listener* const l = g.members.front();
    return device(l) == IfIndex() || device(l) == link ? l : nullptr;
  }
  for (const IfIndex wanted : {link, IfIndex()}) {
    const auto n = static_cast<uint64_t>(std::ranges::count(g.members, wanted, device));
    if (n == 0) continue;
    uint64_t skip = (secret_of(t) >> 32) * n >> 32;
    for (Listener* l : g.members)
      if (device(l) == wanted && skip-- == 0) return l;
  }
  return nullptr;
}

Carried<void> PassiveOpen::hear_by(Listener& l, IfIndex device) {
  if (l.options.device == device) return {};
  hub().keys.unbind(l);  // its rules stay with the listeners that share them
  l.rules.clear();
  l.options.device = device;
  if (auto ok = hub().keys.bind(l); !ok) return ok;
  return hub().steering.add_bound_rules(l, device, l.rules);
}

}  // namespace vireo
