// Creates the parts, and ends them in the order of their dependencies.
#include "stack/engine/hub.h"

namespace vireo {

Hub::Hub(EngineId i, const EngineConfig& c, DeviceOpener opener, net::Mirror& mirror,
         const EngineEvents& e, EngineStats& s, Arena a)
    : id(i),
      config(c),
      events(e),
      stats(s),
      secret(c.secret.k0 != 0 ? c.secret : tcp::IsnSecret::random()),
      arena(std::move(a)),
      reader(mirror.store()),
      pool(arena.bytes(), c.frame_bytes, arena.owners()),
      turn(reader.generation()),
      ports(std::move(opener)),
      receive(pool.size() / 8),
      pressure(pool.size(), Receive::kBurst),
      tcp(c.port_leases),
      next_hops(mirror),
      will(id, config) {
  stats.pool_size.set(pool.size());
}

Hub::~Hub() {
  tcp.free_all();
  passive.close_all(Clock::now());  // after the flows: none needs a rule of its own any more
  udp.close_all();
  time_waits.drop_all();
  tcp.give_up_leases(uint16_t{0});
  receive.clear();
  steering.forget_all_left();
  ports.close_all();  // devices and queues return their frames before the pool ends
}

}  // namespace vireo
