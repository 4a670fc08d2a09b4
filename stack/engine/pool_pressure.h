// What the engine does when packet buffers or the receive ring run short: connections share what is
// left (window_sharing.cpp), queues grow no more, and connections whose peers keep their window
// shut end (shut_windows.cpp).
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
  /// `buffers`: of the pool. `burst`: frames that a look at a queue takes.
  PoolPressure(uint32_t buffers, unsigned burst)
      : low_water_(buffers / 16),
        short_below_(2 * low_water_ + burst),
        relieve_below_(short_below_) {}

  /// Queues grow no more: what is left is for what is on its way out.
  bool is_low() const noexcept;
  /// A turn has nothing to do here.
  bool is_at_ease() const noexcept;
  /// The part of a turn that is_at_ease() spares.
  void relieve(Instant now) noexcept;
  /// More than a burst waits in a queue's ring, as `level` says.
  void watch_ring(const RxLevel& level, unsigned burst, Instant now) noexcept;

 private:
  void share_windows(uint32_t frames, Instant now) noexcept;
  void widen_windows(Instant now) noexcept;
  void end_shut_longest(Instant now) noexcept;

  Hub& hub() const noexcept;
  uint32_t low_water_;    ///< free frames below which queues grow no more
  uint32_t short_below_;  ///< free frames with which, or fewer, the pool runs short
  /// Free frames with which, or fewer, a turn calls relieve(): all while windows are shared out,
  /// else short_below_.
  uint32_t relieve_below_;
  Instant shared_at_{};  ///< when windows were last bounded or widened
  // The search for the connection whose window has been shut the longest: when it went on last, how
  // far it is, whom it found.
  Instant searched_at_{};
  uint32_t search_next_ = 0;
  SlabHandle shut_longest_;
};

}  // namespace vireo
