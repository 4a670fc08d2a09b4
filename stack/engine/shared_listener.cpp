// Listeners that share their address with those of other processes: by SO_REUSEPORT, or beside the
// kernel's listener that these have from one parent. The device brings each of them its part of the
// SYNs. Everything else without an exact rule comes to the first, so connections of the others need
// a rule each, from their SYN on.
#include <algorithm>
#include <utility>

#include "stack/engine/hub.h"

namespace vireo {

void PassiveOpen::share_on(Port& port) noexcept {
  std::atomic<uint64_t>* const word = port.device->accepting();
  if (word == nullptr) return;
  const uint64_t until =
      accept_until_.is_never() ? Device::kAcceptsNow : static_cast<uint64_t>(accept_until_.ns());
  word->store(until, std::memory_order_relaxed);
}

/// A listener of the program's own that shares its address gets its part, as the kernel's would,
/// whatever the program does.
void PassiveOpen::accept_until(Instant until) noexcept {
  const auto gets_its_part = [](const Listener* l) {
    return l != nullptr && l->options.is_shared() && !l->options.joins;
  };
  accept_until_ = std::ranges::any_of(listeners_, gets_its_part) ? Instant::never() : until;
  for (Port* p : hub().ports.all())
    if (!p->dead) share_on(*p);
}

/// Of listeners of this process with one address, only one has the rules. Where a SYN that is sent
/// again may come to another process than the first did, each connection needs one.
bool PassiveOpen::needs_rule(const Listener& l, const Port& port) const noexcept {
  if (!l.options.is_shared()) return false;
  if (l.options.joins) return true;
  const auto brings_syns_alone = [&](const FlowRule& r) {
    return r.device() == port.device.get() && !r.brings_connections();
  };
  return std::ranges::any_of(listeners_, [&](const Listener* other) {
    return other != nullptr && other->key.local.port == l.key.local.port &&
           std::ranges::any_of(other->rules, brings_syns_alone);
  });
}

/// For a half-open connection. @return 0, or errno: EBUSY another process or the kernel has the
/// tuple; the device has no room.
int PassiveOpen::make_rule(const tcp::SynRecord& r, Port& port) noexcept {
  auto rule = hub().steering.make_rule(port, flow_key(tuple_of(r)), FlowTag());
  if (!rule) return rule.error().err;
  if (*rule) syn_rules_.insert_or_assign(&r, std::move(*rule));
  return 0;
}

/// The half-open connection becomes `child`.
void PassiveOpen::pass_rule(const tcp::SynRecord& r, TcpFlow& child) noexcept {
  const auto it = syn_rules_.find(&r);
  if (it == syn_rules_.end()) return;
  child.rule = std::move(it->second);
  syn_rules_.erase(it);
}

/// For a connection that may not have been half-open here. @return false: there is none.
bool PassiveOpen::make_rule(const Listener& l, TcpFlow& child) noexcept {
  if (child.rule || !needs_rule(l, *child.egress.port)) return true;
  auto rule = hub().steering.make_rule(*child.egress.port, child.key, child.tag);
  if (rule) child.rule = std::move(*rule);
  return rule.has_value();
}

}  // namespace vireo
