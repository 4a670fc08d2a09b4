// A device that is gone: the interface was removed, or someone took the steering program off it.
// Frames go to the kernel from then on, which knows none of our connections; so they end, and the
// interface is not opened again for this process, lest we fight whoever did it. And frames that a
// device lost although it is there.
#include <algorithm>
#include <cstring>

#include "core/log.h"
#include "stack/engine/engine.h"

namespace vireo {

void Engine::look_after_ports() noexcept {
  for (Port* p : ports_)
    if (!p->dead && !std::ranges::all_of(p->queues, [](auto& q) { return q->alive(); }) &&
        !(p->device->has_moved() && move_port(*p)))
      lose_port(*p);
  count_losses();
}

bool Engine::look_for_helper(Instant now) noexcept {
  look_after_ports();
  bool is_worked = turn(now);  // tells of what was lost
  // A device that has lost an event would tell a sleeper of nothing more.
  for (int i = 0; i < 8 && sleepers() != 0 && !arm_all(); ++i) is_worked |= turn(now);
  return is_worked;
}

void Engine::count_losses() noexcept {
  QueueLosses all;
  const auto add = [](QueueLosses& to, const QueueLosses& l) {
    to.rx_ring_full += l.rx_ring_full;
    to.rx_no_frame += l.rx_no_frame;
    to.rx_starved += l.rx_starved;
    to.rx_refused += l.rx_refused;
    to.tx_refused += l.tx_refused;
    to.restarts += l.restarts;
  };
  for (Port* p : ports_) {
    if (!p->dead) {
      p->losses = p->losses_before;
      for (const auto& q : p->queues) add(p->losses, q->losses());
    }
    add(all, p->losses);
  }
  stats_.rx_lost_ring_full.set(all.rx_ring_full);
  stats_.rx_lost_no_frame.set(all.rx_no_frame);
  stats_.rx_starved.set(all.rx_starved);
  stats_.rx_refused.set(all.rx_refused);
  stats_.tx_refused.set(all.tx_refused);
  stats_.queue_restarts.set(all.restarts);
}

void Engine::lose_port(Port& p) noexcept {
  if (p.dead) return;
  count_losses();  // for the last time: what was refused is why
  p.dead = true;
  log<LogLevel::kWarn>(
      "{}: the interface or its steering program is gone: its TCP connections end with ENETDOWN, "
      "new sockets stay on the kernel",
      p.link.name);
  leases_.give_up(p);
  // Readable for ever, some of them: nobody may sleep on them.
  for (auto& q : p.queues) std::erase(wait_fds_, q->wait_fd());
  for (PortStats& row : config_.port_stats)
    if (row.ifindex.load(std::memory_order_relaxed) == p.link.index.value())
      std::strncpy(row.mode, "lost", sizeof row.mode - 1);
  tcp_.for_each([&](TcpFlow& f) {
    if (f.egress.port == &p) note_effects(f, tcp::fail(f.tcb, ENETDOWN));
  });
  udp_.for_each([&](UdpFlow& u) {
    if (u.egress.port == &p) u.go_to({});  // the next datagram asks for a way
  });
}

}  // namespace vireo
