// The engine's turn: the work of one poll(), most urgent first.
#include <algorithm>

#include "stack/engine/hub.h"

namespace vireo {
namespace {

/// Of consecutive turns without frames, the first and then every kIdleTurns-th runs idle().
constexpr unsigned kIdleTurns = 8;

}  // namespace

/// Nothing to do besides frames. Whoever has something to send or to report has moved the deadline:
/// note_work(), or publish_deadline() for what remained.
inline bool Turn::is_quiet(Instant now) const noexcept {
  return hub().pressure.is_at_ease() && !hub().wakeups.is_due(now);
}

/// Receives from all queues, from index `first` on. @return frames.
[[gnu::noinline]] unsigned Turn::receive_from(size_t first, Instant now) noexcept {
  unsigned frames = 0;
  for (size_t i = first; i < hub().ports.polled().size(); ++i) {  // a frame may open another port
    const Ports::Polled from = hub().ports.polled()[i];
    frames +=
        hub().receive.take(*from.port, *from.queue, hub().receive.take_burst(*from.queue), now);
  }
  return frames;
}

[[gnu::always_inline]] inline bool Turn::run_here(Instant now) noexcept {
  hub().doorbells.ring_if_due(now);
  unsigned frames = 0;
  size_t done = 0;
  if (Queue* const queue = hub().ports.only().queue; queue != nullptr) [[likely]] {
    const unsigned n = queue->rx_burst(hub().receive.burst());
    frames = hub().receive.take(*hub().ports.only().port, *queue, n, now);
    done = 1;
  }
  if (hub().ports.only().queue == nullptr) [[unlikely]]
    frames += receive_from(done, now);
  return end(now, frames);
}

bool Turn::run(Instant now) noexcept { return run_here(now); }

bool Turn::poll(Instant now) noexcept {
  hub().wakeups.note_poll(now);
  return run_here(now);
}

bool Turn::go_on_to_return(Instant now, PollOf of, unsigned n) noexcept {
  of_ = of;
  hub().doorbells.ring_if_due(now);
  const Ports::Polled from = hub().ports.only();
  unsigned frames = hub().receive.take(*from.port, *from.queue, n, now);
  if (hub().ports.only().queue == nullptr) [[unlikely]]
    frames += receive_from(1, now);
  const bool is_worked = end(now, frames);
  of_ = PollOf::kNobody;
  return is_worked;
}

bool Turn::finish_to_return(Instant now, PollOf of) noexcept {
  hub().deferred.finish_if_left();
  of_ = of;
  hub().doorbells.ring_if_due(now);
  const bool is_worked = end_in_full(now, 1);
  of_ = PollOf::kNobody;
  return is_worked;
}

/// The rest of a turn that found `frames`.
[[gnu::always_inline]] inline bool Turn::end(Instant now, unsigned frames) noexcept {
  if (is_quiet(now)) [[likely]] {
    if (frames != 0) {
      if (!is_deadline_moved_ && frames_unserved_ + frames < kMaxUnserved) [[likely]] {
        frames_unserved_ += frames;
        idle_turns_ = 0;
        hub().stats.polls.add();
        return true;
      }
    } else if (idle_turns_ % kIdleTurns != 0) [[likely]] {
      ++idle_turns_;
      hub().stats.polls.add();
      hub().stats.empty_polls.add();
      return false;
    }
  }
  return end_in_full(now, frames);
}

/// The same without the shortcuts of end().
bool Turn::end_in_full(Instant now, unsigned frames) noexcept {
  const bool is_worked = frames != 0;
  if (!hub().pressure.is_at_ease()) [[unlikely]]
    hub().pressure.relieve(now);
  if (hub().doorbells.corked() != nullptr) [[unlikely]]
    hub().doorbells.uncork();
  const bool is_due = hub().wakeups.is_due(now);
  hub().stats.polls.add();
  if (!is_worked && !is_due && idle_turns_++ % kIdleTurns != 0) [[unlikely]] {
    hub().stats.empty_polls.add();
    return false;
  }
  if (is_due) [[unlikely]] {
    is_deadline_moved_ = true;
    hub().timers.run(now);
    hub().time_waits.expire(now);
    hub().steering.expire_strays(now);
    hub().passive.expire(now);
    hub().next_hops.expire_path_mtus(now);
    hub().receive.expire_fragments(now);
    hub().output.retry_stalled_if_due(now);
  }
  frames_unserved_ += frames;
  if (is_worked)
    idle_turns_ = 0;
  else
    idle(now);
  if (frames_unserved_ >= kMaxUnserved) [[unlikely]]
    serve_rings();
  if (hub().output.has_pending() || hub().output.has_delayed_acks()) {
    if (of_ != PollOf::kNobody)
      hub().output.flush_to_return(now);
    else
      hub().output.flush(now);
  }
  if (!hub().notifications.empty()) hub().notifications.deliver(now);
  if (is_deadline_moved_ || !is_worked) publish_deadline(now);
  return is_worked;
}

/// Work that nobody waits for.
void Turn::idle(Instant now) noexcept {
  hub().stats.empty_polls.add();
  serve_rings();
  hub().reader.quiesce();
  if (hub().reader.generation() != tables_seen_) [[unlikely]]
    heed_tables(now);
  hub().stats.pool_free.set(hub().pool.free_count());
}

void Turn::heed_tables(Instant now) noexcept {
  tables_seen_ = hub().reader.generation();
  hub().host.follow();
  hub().output.retry_stalled(now);
}

void Turn::serve_rings() noexcept {
  frames_unserved_ = 0;
  hub().ports.reap_and_refill();
}

void Turn::publish_deadline(Instant now) noexcept {
  is_deadline_moved_ = hub().output.has_delayed_acks();  // the next turn counts for their delay
  Instant d = std::min(hub().timers.next_deadline(), hub().next_hops.first_expiry());
  d = std::min(d, hub().receive.first_expiry());
  d = std::min(d, hub().time_waits.first_expiry());
  d = std::min(d, hub().steering.first_stray_expiry());
  d = std::min(d, hub().passive.next_deadline());
  d = std::min(d, hub().output.deadline(now));
  if (hub().output.has_pending() || !hub().notifications.empty() ||
      hub().doorbells.corked() != nullptr || hub().doorbells.has_unrung())
    d = now;
  hub().wakeups.set_deadline(d);
}

}  // namespace vireo
