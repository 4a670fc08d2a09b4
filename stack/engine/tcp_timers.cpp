// Timers that are due, and those that have moved.
#include "stack/engine/hub.h"

namespace vireo {
namespace {

constexpr unsigned kTimersPerTurn = 32;
/// Work of the wheel in a turn, and in one that has left some of it waiting for so long.
constexpr unsigned kTimerLooks = 3;
constexpr unsigned kMaxTimerLooks = kTimersPerTurn * Wheel::kLooksPerFired;
constexpr Duration kMaxBacklog = Duration::us(256);

}  // namespace

/// Of thousands of connections hundreds are to be looked at together, each a miss or two of the
/// cache, most of them in vain: a few with each turn, so that what a program waits for is not kept
/// up, unless time runs away.
void TcpTimers::run(Instant now) noexcept {
  const unsigned looks = wheel_.backlog() > kMaxBacklog ? kMaxTimerLooks : kTimerLooks;
  wheel_.advance(now, looks, [&](WheelNode& n) {
    TcpFlow& f = static_cast<TcpFlow&>(n);
    if (const Instant due = tcp::deadline(f.tcb); due > now) [[likely]] {
      wheel_.arm(f, due);  // it has moved since the node was placed, and nothing else happens
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
  hub().wakeups.wake_helper_before(d);  // a send by a program that then does something else
}

}  // namespace vireo
