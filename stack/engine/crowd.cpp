// When frames come faster than the program takes them. The receive ring is small, and every
// connection invites its peer to send a whole window: a few hundred of them overflow it together as
// soon as the program does something else for some milliseconds, and what is lost at the end of a
// window costs its sender a timeout. So while the ring is more than half used up, or the pool seven
// eighths, the connections share what it holds: none invites more than its part. When it is calm
// again the bound is doubled step by step, until it bounds nothing.
//
// Linux does the like by memory pressure (tcp_rmem, tcp_mem in tcp(7)); it needs no ring for it,
// as its interrupts take frames from the ring whatever the program does. For one busy connection
// the part is half the ring, and windows that are not used by a crowd are never bounded.
#include <algorithm>

#include "stack/engine/engine.h"

namespace vireo {
namespace {

/// What everyone may have: enough for fast retransmit to see a loss, as Linux under pressure.
constexpr uint32_t kLeast = 4;
/// From here on it is no bound.
constexpr uint32_t kMost = 16'384;
/// Calm for so long: a step wider. Longer than a program usually is away.
constexpr Duration kCalm = Duration::ms(20);

}  // namespace

/// Called where more than a burst waits.
void Engine::watch_crowd(const RxLevel& level, Instant now) noexcept {
  if (level.most != 0 && level.waiting + kBurst > level.most / 2)
    share_windows(level.most / 2, now);
}

void Engine::share_windows(uint32_t frames, Instant now) noexcept {
  const uint32_t flows = std::max(flow_count_.load(std::memory_order_relaxed), 1U);
  pool_->set_window_share(std::max(frames / flows, kLeast));
  uneasy_below_ = UINT32_MAX;
  shared_at_ = now;
}

void Engine::widen_windows(Instant now) noexcept {
  if (now - shared_at_ < kCalm) return;
  const uint32_t wider = pool_->window_share() * 2;
  const bool is_over = wider >= kMost;
  pool_->set_window_share(is_over ? PacketPool::kNoShare : wider);
  if (is_over) uneasy_below_ = short_below_;
  shared_at_ = now;
}

/// The pool is down to what append() leaves of it.
void Engine::run_short(Instant now) noexcept {
  if (pool_->free_count() < 2 * low_water_)
    share_windows(pool_->free_count(), now);
  else if (pool_->window_share() != PacketPool::kNoShare)
    widen_windows(now);
  end_pinned(now);
}

}  // namespace vireo
