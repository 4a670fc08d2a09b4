// TIME-WAIT: the state kept for 2MSL after a connection (RFC 9293 §3.6.1). All wait equally long,
// so the oldest is first: a queue serves as the timer.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <utility>

#include "core/slab.h"
#include "stack/engine/flow.h"
#include "stack/engine/incoming.h"
#include "stack/engine/part.h"

namespace vireo {

struct Hub;

class TimeWaits : Part {
 public:
  /// Replaces the connection by an entry of its key for 2MSL.
  void enter(TcpFlow& f, Instant now);
  /// The same for a connection that another TCP has: its segments are dropped here, but for the
  /// strays (steering.h).
  void leave_to_kernel(TcpFlow& f, Instant now);
  void drop(TimeWaitEntry& e) noexcept;
  void drop_all() noexcept {
    entries_.for_each([&](TimeWaitEntry& e) { drop(e); });
  }
  void segment_arrived(TimeWaitEntry& e, const Incoming& in, tcp::Segment& s, Instant now) noexcept;
  void expire(Instant now) noexcept;
  /// When the oldest entry ends; never(): there is none.
  Instant first_expiry() const noexcept {
    return queue_.empty() ? Instant::never() : queue_.front().until;
  }

  uint32_t size() const noexcept { return entries_.size(); }
  template <class F>
  void for_each(F&& fn) {
    entries_.for_each(fn);
  }

 private:
  TimeWaitEntry* make_entry(TcpFlow& f, FlowRule rule, Instant now);

  Hub& hub() const noexcept;
  FlowList<TimeWaitEntry, &TimeWaitEntry::hook> queue_;
  Slab<TimeWaitEntry> entries_;
};

}  // namespace vireo
