// What the engine does when packet buffers or the receive ring run short: windows are limited
// (window_sharing.cpp), queues do not grow, and connections whose peers keep a zero window are
// ended (shut_windows.cpp).
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <cstdint>

#include "core/clock.h"
#include "core/slab.h"
#include "dev/device.h"
#include "stack/engine/part.h"

namespace vireo {

struct Hub;

class PoolPressure : Part {
 public:
  /// `buffers`: in the pool. `burst`: frames taken from a queue at a time.
  PoolPressure(uint32_t buffers, unsigned burst)
      : low_water_(buffers / 16),
        short_below_(2 * low_water_ + burst),
        relieve_below_(short_below_) {}

  /// Queues must not grow: the remaining buffers are for sending.
  bool is_low() const noexcept;
  /// Nothing to do in this turn.
  bool is_at_ease() const noexcept;
  /// The work of a turn for which is_at_ease() is false.
  void relieve(Instant now) noexcept;
  /// More than a burst waits in a queue's ring: `level`.
  void watch_ring(const RxLevel& level, unsigned burst, Instant now) noexcept;

 private:
  void share_windows(uint32_t frames, Instant now) noexcept;
  void widen_windows(Instant now) noexcept;
  void end_shut_longest(Instant now) noexcept;

  Hub& hub() const noexcept;
  uint32_t low_water_;    ///< free frames below which queues do not grow
  uint32_t short_below_;  ///< at this number of free frames the pool runs short
  /// At this number of free frames a turn calls relieve(): any number while windows are limited,
  /// else short_below_.
  uint32_t relieve_below_;
  Instant shared_at_{};  ///< when windows were last limited or widened
  // The search for the connection that has had a zero window longest: time of its last step, next
  // index, best candidate.
  Instant searched_at_{};
  uint32_t search_next_ = 0;
  SlabHandle shut_longest_;
};

}  // namespace vireo
