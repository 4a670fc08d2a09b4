// The timers of connections: one node each in a timing wheel, for the earliest of its deadlines.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include "core/wheel.h"
#include "stack/engine/flow.h"
#include "stack/engine/part.h"

namespace vireo {

struct Hub;

class TcpTimers : Part {
 public:
  TcpTimers() : wheel_(Clock::now()) {}

  /// Fires due timers, within the limits of a turn.
  void run(Instant now) noexcept;
  /// The deadlines of `f` have changed.
  void arm(TcpFlow& f) noexcept;
  /// The deadline may now be `at`, or later than before. A timer may then fire in vain.
  void arm_by(TcpFlow& f, Instant at) noexcept {
    if (at < f.deadline()) [[unlikely]]
      arm(f);
  }
  void cancel(TcpFlow& f) noexcept { wheel_.cancel(f); }
  Instant next_deadline() const noexcept { return wheel_.next_deadline(); }

 private:
  Hub& hub() const noexcept;
  Wheel wheel_;
};

}  // namespace vireo
