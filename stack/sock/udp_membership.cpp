// Multicast groups that a UDP socket has joined. The kernel socket beneath joins or leaves first,
// then the flow.
#include <algorithm>
#include <iterator>

#include "stack/sock/blocking.h"
#include "stack/sock/stack.h"
#include "stack/sock/udp_socket.h"

namespace vireo::udp_socket {

void joined(File& f, const Membership& m) {
  f.udp->groups.push_back(m);
  f.stack->count_membership(1);
  if (!f.is_carried()) return;
  Engine& e = *f.engine.load(std::memory_order_relaxed);
  const EngineGuard guard(e);
  // Refused (an interface that is not carried): the kernel's queue receives the group.
  if (f.flow != nullptr) (void)e.udp().join(f.udp_flow(), m.group, m.ifindex);
}

/// The kernel has dropped one membership: the latest on that interface; or, if the interface is
/// unknown, the latest of the group.
void left(File& f, const Membership& m) {
  auto& groups = f.udp->groups;
  const auto last = [&](auto&& is_it) {
    return std::find_if(groups.rbegin(), groups.rend(), is_it);
  };
  auto it = last([&](const Membership& g) { return g.group == m.group && g.ifindex == m.ifindex; });
  if (it == groups.rend()) it = last([&](const Membership& g) { return g.group == m.group; });
  if (it == groups.rend()) return;
  const Membership gone = *it;
  groups.erase(std::next(it).base());
  f.stack->count_membership(-1);
  if (!f.is_carried()) return;
  Engine& e = *f.engine.load(std::memory_order_relaxed);
  const EngineGuard guard(e);
  if (f.flow != nullptr) e.udp().leave(f.udp_flow(), gone.group, gone.ifindex);
}

}  // namespace vireo::udp_socket
