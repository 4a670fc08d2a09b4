// When frames arrive faster than the program takes them. The receive ring is small, and each
// connection advertises a whole window: a few hundred of them together overflow the ring when the
// program does something else for some milliseconds, and a loss at the end of a window costs the
// sender a timeout. So while the ring is more than half full, or the pool seven eighths used, each
// connection advertises at most its share of what is left. When the load is over, the limit is
// doubled step by step until it has no effect.
//
// Linux acts alike under memory pressure (tcp_rmem, tcp_mem in tcp(7)); the ring is no problem
// there, because interrupts empty it whatever the program does. For one busy connection the share
// is half the ring, and the windows of a few connections are never limited.
#include <algorithm>

#include "stack/engine/hub.h"

namespace vireo {
namespace {

/// Minimum for each connection: enough for fast retransmit to detect a loss, as Linux under
/// pressure.
constexpr uint32_t kMinShare = 4;
/// From here on it is no limit.
constexpr uint32_t kMaxShare = 16'384;
/// Widen after this time without pressure. Longer than a program is usually away.
constexpr Duration kCalm = Duration::ms(20);

}  // namespace

/// Called when more than a burst waits.
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
  // The pool is down to the part that append() leaves.
  if (hub().pool.free_count() < 2 * low_water_)
    share_windows(hub().pool.free_count(), now);
  else if (hub().pool.window_share() != PacketPool::kNoShare)
    widen_windows(now);
  end_shut_longest(now);
}

}  // namespace vireo
