// When frames come faster than the program takes them. The receive ring is small, and every
// connection invites its peer to send a whole window: a few hundred of them overflow it together as
// soon as the program does something else for some milliseconds, and what is lost at the end of a
// window costs its sender a timeout. So while the ring is more than half used up, or the pool seven
// eighths, the connections share what it holds: none invites more than its part. When it is calm
// again the bound is doubled step by step, until it bounds nothing.
//
// Linux does the like by memory pressure (tcp_rmem, tcp_mem in tcp(7)); it needs no ring for it,
// as its interrupts take frames from the ring whatever the program does. For one busy connection
// the part is half the ring, and windows that few connections use are never bounded.
#include <algorithm>

#include "stack/engine/hub.h"

namespace vireo {
namespace {

/// What everyone may have: enough for fast retransmit to see a loss, as Linux under pressure.
constexpr uint32_t kMinShare = 4;
/// From here on it is no bound.
constexpr uint32_t kMaxShare = 16'384;
/// Calm for so long: a step wider. Longer than a program usually is away.
constexpr Duration kCalm = Duration::ms(20);

}  // namespace

/// Called where more than a burst waits.
void PoolPressure::watch_ring(const RxLevel& level, unsigned burst, Instant now) noexcept {
  if (level.most != 0 && level.waiting + burst > level.most / 2) share_windows(level.most / 2, now);
}

void PoolPressure::share_windows(uint32_t frames, Instant now) noexcept {
  const uint32_t flows = std::max(hub().wakeups.flows(), 1U);
  hub().pool.set_window_share(std::max(frames / flows, kMinShare));
  relieve_below_ = UINT32_MAX;
  shared_at_ = now;
}

void PoolPressure::widen_windows(Instant now) noexcept {
  if (now - shared_at_ < kCalm) return;
  const uint32_t wider = hub().pool.window_share() * 2;
  const bool is_over = wider >= kMaxShare;
  hub().pool.set_window_share(is_over ? PacketPool::kNoShare : wider);
  if (is_over) relieve_below_ = short_below_;
  shared_at_ = now;
}

void PoolPressure::relieve(Instant now) noexcept {
  if (hub().pool.free_count() > short_below_) return widen_windows(now);
  // The pool is down to what append() leaves of it.
  if (hub().pool.free_count() < 2 * low_water_)
    share_windows(hub().pool.free_count(), now);
  else if (hub().pool.window_share() != PacketPool::kNoShare)
    widen_windows(now);
  end_shut_longest(now);
}

}  // namespace vireo
