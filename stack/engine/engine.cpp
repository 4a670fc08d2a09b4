// Creating an engine, sleeping on it, and facts about it.
#include <algorithm>

#include "stack/engine/engine.h"

namespace vireo {

Result<std::unique_ptr<Engine>> Engine::create(EngineId id, const EngineConfig& config,
                                               DeviceOpener opener, net::Mirror& mirror,
                                               const EngineEvents& events, EngineStats& stats) {
  auto arena = Arena::create(config.arena_bytes, config.huge_pages);
  if (!arena) return std::unexpected(arena.error());
  return create_on(std::move(*arena), id, config, std::move(opener), mirror, events, stats);
}

std::unique_ptr<Engine> Engine::create_on(Arena arena, EngineId id, const EngineConfig& config,
                                          DeviceOpener opener, net::Mirror& mirror,
                                          const EngineEvents& events, EngineStats& stats) {
  Clock::calibrate();
  return std::unique_ptr<Engine>(
      new Engine(id, config, std::move(opener), mirror, events, stats, std::move(arena)));
}

// Out of line together with the lock's address, which would else be computed in each call.
[[gnu::noinline]] void Engine::take_lock_slowly() noexcept VIREO_NO_THREAD_ANALYSIS {
  lock_.lock();
}

[[gnu::noinline]] void Engine::unlock_slowly() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }

/// For a feed of 200,000 frames a second ten come meanwhile.
constexpr Duration kNap = Duration::us(50);

bool Engine::begin_sleep(Instant* nap_until) noexcept {
  hub_.turn.end_idling();  // the thread that wakes looks at everything
  if (hub_.output.has_delayed_acks()) hub_.output.flush(Clock::now());
  hub_.doorbells.ring_before_sleep();  // frames of another thread
  if (nap_until != nullptr && hub_.ports.come_in_bulk()) [[unlikely]]
    *nap_until = Clock::now() + kNap;
  else if (!hub_.ports.arm_all())
    return false;
  hub_.stats.sleeps.add();
  hub_.wakeups.count_sleeper();
  return true;
}

void Engine::end_sleep() noexcept {
  if (!hub_.wakeups.uncount_sleeper()) return;
  hub_.wakeups.wake_helper_before(Clock::now() + hub_.config.helper_grace);
}

bool Engine::look_for_helper(Instant now) noexcept {
  hub_.ports.look_after();
  hub_.steering.retry();
  bool is_worked = hub_.turn.run(now);  // reports the losses
  // A device that lost an event would not wake a sleeper any more.
  for (int i = 0; i < 8 && hub_.wakeups.sleepers() != 0 && !hub_.ports.arm_all(); ++i)
    is_worked |= hub_.turn.run(now);
  return is_worked;
}

Census Engine::census() const noexcept {
  const auto listeners = hub_.passive.all();
  return {
      .connections = hub_.tcp.size(),
      .orphans = hub_.tcp.orphans(),
      .waiting = static_cast<uint32_t>(hub_.output.waiting() + hub_.notifications.connections()),
      .half_open = static_cast<uint32_t>(hub_.passive.half_open()),
      .time_waits = hub_.time_waits.size(),
      .listeners = static_cast<uint32_t>(
          listeners.size() - static_cast<size_t>(std::ranges::count(listeners, nullptr))),
      .demux_keys = static_cast<uint32_t>(hub_.demux.size())};
}

bool Engine::is_unused() const noexcept {
  return hub_.tcp.size() == hub_.tcp.orphans() && hub_.udp.size() == 0 &&
         std::ranges::all_of(hub_.passive.all(), [](const Listener* l) { return l == nullptr; });
}

bool Engine::has_bound(IpProto proto, uint16_t port) noexcept {
  if (proto == IpProto::kTcp)
    return std::ranges::any_of(hub_.passive.all(), [&](const Listener* l) {
      return l != nullptr && l->key.local.port == port;
    });
  bool any = false;
  hub_.udp.for_each([&](const UdpFlow& u) { any |= u.key.local.port == port; });
  return any;
}

}  // namespace vireo
