// Multicast groups of a UDP socket, as the kernel socket beneath has them.
#include <algorithm>
#include <iterator>

#include "stack/sock/blocking.h"
#include "stack/sock/stack.h"
#include "stack/sock/udp_socket.h"

namespace vireo::udp_socket {

void set_group(File& f, const IpAddr& group, std::vector<Membership> now) {
  UdpSocket& s = *f.udp;
  std::vector<Membership> before;
  std::ranges::copy_if(s.groups, std::back_inserter(before),
                       [&](const Membership& m) { return m.group == group; });
  if (before == now) return;
  std::erase_if(s.groups, [&](const Membership& m) { return m.group == group; });
  s.groups.insert(s.groups.end(), now.begin(), now.end());
  if (!f.is_carried()) return;
  std::vector<net::DiagSocket> sharers;
  if (s.watched_port != 0) sharers = f.stack->host_sockets().ports.look(s.watched_port);
  Engine& e = *f.engine.load(std::memory_order_relaxed);
  const EngineGuard guard(e);
  if (f.flow == nullptr) return;
  catch_up(e);
  if (s.watched_port != 0) e.udp().heed_sharers(s.watched_port, std::move(sharers));
  for (const Membership& m : before)
    if (std::ranges::find(now, m.ifindex, &Membership::ifindex) == now.end())
      e.udp().leave(f.udp_flow(), group, m.ifindex);
  for (const Membership& m : now)
    if (std::ranges::find(before, m) == before.end())
      // Refused (an interface that is not carried): the kernel's queue receives the group.
      (void)e.udp().join(f.udp_flow(), group, m.ifindex, m.sources);
}

}  // namespace vireo::udp_socket
