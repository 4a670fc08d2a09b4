// The timers of connections: one node of a timing wheel each, for the earliest of its deadlines.
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

  /// Fires what is due, as far as a turn has time for it.
  void run(Instant now) noexcept;
  /// The deadlines of `f` have changed.
  void arm(TcpFlow& f) noexcept;
  /// Its deadline may have come to be `at`, or is later than it was. It may fire in vain then.
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
