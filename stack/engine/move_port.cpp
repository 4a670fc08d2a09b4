// An interface that continues on another device: a bond with a new active member. The port stays,
// with all flows that use it; device, queues and rules are new. Frames under way are lost, as on
// any network: TCP retransmits them.
#include <algorithm>

#include "core/log.h"
#include "stack/engine/hub.h"

namespace vireo {

/// @return false: there is no other device, or it was refused; nothing has changed.
bool Ports::move(Port& p) noexcept {
  const net::Link* const link = hub().reader.snapshot().links->find(p.link.index);
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
  hub().tcp.give_up_leases(p);
  std::swap(p, other);
  hub().host.tell(p);
  take_up(p);
  hub().steering.move_rules(p, *other.device);
  log<LogLevel::kInfo>("{}: goes on by another device, {}", p.link.name, p.device->caps().mode);
  return true;  // the old queues end, then their device
}

}  // namespace vireo
