// A connection goes on in the kernel (stack/sock/hand_over.cpp): its frames must not come here.
#include <algorithm>

#include "stack/engine/engine.h"

namespace vireo {

Result<void> Engine::tcp_hand_over(TcpFlow& f, Instant now) {
  Port* const port = f.egress.port;
  const bool has_listener = find_bound(IpProto::kTcp, f.key.local.addr, f.key.local.port) != 0;
  if (has_listener || !f.rule) {
    // A listener's rule brings its frames, too.
    if (port == nullptr || port->dead) return fail(ENODEV, "hand over");
    const bool had_own = static_cast<bool>(f.rule);
    f.rule.reset();
    auto rule = port->device->spare(f.key);
    if (!rule) {
      if (had_own)
        if (auto again = steer(*port, f.key, f.tag)) f.rule = std::move(*again);
      return std::unexpected(rule.error());
    }
    spared_.push_back({f.key, f.egress.ifindex, std::move(*rule)});
  }
  // The port is the other's.
  if (f.port_origin == PortOrigin::kLeased && f.port_holder) leases_.lost();
  f.port_holder.reset();
  f.port_origin = PortOrigin::kProgram;
  f.owner = nullptr;
  f.stats = &spare_stats_;
  if (TimeWaitEntry* e = leave_entry(f, FlowRule(), now)) e->is_elsewhere = true;
  return {};
}

void Engine::forget_spared(bool (*is_there)(const FlowKey&, IfIndex)) {
  if (spared_.size() < spared_most_) return;
  std::erase_if(spared_, [&](const Spared& s) { return !is_there(s.key, s.by); });
  spared_most_ = std::max<size_t>(64, 2 * spared_.size());
}

}  // namespace vireo
