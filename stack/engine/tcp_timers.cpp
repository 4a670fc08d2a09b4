// Fires due timers, and places those that have moved.
#include "stack/engine/hub.h"

namespace vireo {
namespace {

constexpr unsigned kTimersPerTurn = 32;
/// Limit of the wheel's work in a turn, and in a turn after some of it has waited for kMaxBacklog.
constexpr unsigned kTimerLooks = 3;
constexpr unsigned kMaxTimerLooks = kTimersPerTurn * Wheel::kLooksPerFired;
constexpr Duration kMaxBacklog = Duration::us(256);

}  // namespace

/// With thousands of connections hundreds of nodes are looked at together, each a cache miss or
/// two, most in vain: a few in each turn, so that they do not delay the program, unless too much
/// work waits.
void TcpTimers::run(Instant now) noexcept {
  const unsigned looks = wheel_.backlog() > kMaxBacklog ? kMaxTimerLooks : kTimerLooks;
  wheel_.advance(now, looks, [&](WheelNode& n) {
    TcpFlow& f = static_cast<TcpFlow&>(n);
    if (const Instant due = tcp::deadline(f.tcb); due > now) [[likely]] {
      wheel_.arm(f, due);  // it has moved since the node was placed, nothing else to do
      return;
    }
    const tcp::Effects e = tcp::on_deadline(f.tcb, now);
    if (f.tcb.fast_asked) [[unlikely]]
      hub().tcp.watch_fast_open(f, e, now);
    hub().notifications.note(f, e);
    hub().output.want(f);
    arm(f);
  });
}

void TcpTimers::arm(TcpFlow& f) noexcept {
  hub().turn.note_work();
  const Instant d = tcp::deadline(f.tcb);
  wheel_.arm(f, d);
  hub().wakeups.wake_helper_before(d);  // for a program that sends and then does not call us
}

}  // namespace vireo
