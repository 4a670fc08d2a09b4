// Lost devices: the interface was removed, or its steering program was detached. From then on the
// kernel gets the frames and does not know our connections; so they end, and this process does not
// open the interface again, so as not to fight whoever did it. Also counts frames that working
// devices lost.
#include <algorithm>
#include <cstring>

#include "core/log.h"
#include "stack/engine/hub.h"

namespace vireo {

void Ports::look_after() noexcept {
  for (Port* p : all_)
    if (!p->dead && !std::ranges::all_of(p->queues, [](auto& q) { return q->alive(); }) &&
        !(p->device->has_moved() && move(*p)))
      lose(*p);
  count_losses();
}

void Ports::count_losses() noexcept {
  QueueLosses all;
  const auto add = [](QueueLosses& to, const QueueLosses& l) {
    to.rx_ring_full += l.rx_ring_full;
    to.rx_no_frame += l.rx_no_frame;
    to.rx_starved += l.rx_starved;
    to.rx_refused += l.rx_refused;
    to.tx_refused += l.tx_refused;
    to.restarts += l.restarts;
  };
  for (Port* p : all_) {
    if (!p->dead) {
      p->losses = p->losses_before;
      for (const auto& q : p->queues) add(p->losses, q->losses());
    }
    add(all, p->losses);
  }
  hub().stats.rx_lost_ring_full.set(all.rx_ring_full);
  hub().stats.rx_lost_no_frame.set(all.rx_no_frame);
  hub().stats.rx_starved.set(all.rx_starved);
  hub().stats.rx_refused.set(all.rx_refused);
  hub().stats.tx_refused.set(all.tx_refused);
  hub().stats.queue_restarts.set(all.restarts);
}

void Ports::lose(Port& p) noexcept {
  if (p.dead) return;
  count_losses();  // for the last time: refused frames are the reason
  p.dead = true;
  log<LogLevel::kWarn>(
      "{}: the interface or its steering program is gone: its TCP connections end with ENETDOWN, "
      "new sockets stay on the kernel",
      p.link.name);
  hub().tcp.give_up_leases(p);
  // Some stay readable for ever: nobody may sleep on them.
  for (auto& q : p.queues) std::erase(wait_fds_, q->wait_fd());
  for (PortStats& row : hub().config.port_stats)
    if (row.ifindex.load(std::memory_order_relaxed) == p.link.index.value())
      std::strncpy(row.mode, "lost", sizeof row.mode - 1);
  hub().tcp.for_each([&](TcpFlow& f) {
    if (f.egress.port == &p) hub().notifications.note(f, tcp::fail(f.tcb, ENETDOWN));
  });
  hub().udp.for_each([&](UdpFlow& u) {
    if (u.egress.port == &p) u.go_to({});  // the next datagram resolves again
  });
}

}  // namespace vireo
