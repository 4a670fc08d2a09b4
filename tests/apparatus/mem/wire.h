// One direction of the test wire: frames with the time at which they arrive. Deterministic: the
// same frames at the same times from the same seed fare the same. Owner: MemLink. Thread: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "tests/apparatus/mem/impairments.h"
#include "tests/apparatus/mem/prng.h"

namespace vireo {

/// A test's word on one frame, before any random impairment.
enum class MemVerdict : uint8_t {
  kPass,
  kDrop,
  kDuplicate,
  kCorrupt,
  kHold,  ///< kept until release_held()
};

/// `index` counts the frames of the direction from 0. Tests only.
using MemFilter = std::function<MemVerdict(std::span<const std::byte> frame, uint64_t index)>;

class MemWire {
 public:
  MemWire(uint64_t seed, const MemImpairments& impairments);

  /// Puts a frame on the wire.
  void send(std::vector<std::byte> frame, Instant now);
  /// When the next frame arrives; never() if none is under way.
  Instant next_arrival() const;
  /// The next frame that has arrived by `now`.
  std::optional<std::vector<std::byte>> receive(Instant now);

  /// The next `n` frames are dropped.
  void drop_next(uint64_t n) { drop_next_ += n; }
  void set_filter(MemFilter filter) { filter_ = std::move(filter); }
  /// Frames held by the filter go on in their order, arriving after the wire's delay.
  void release_held(Instant now);
  /// Changes the conditions for frames sent from now on.
  void set_impairments(const MemImpairments& impairments) { imp_ = impairments; }
  const MemImpairments& impairments() const { return imp_; }
  const MemStats& stats() const { return stats_; }
  size_t in_flight() const { return flying_.size(); }

 private:
  using Frame = std::vector<std::byte>;
  using Slot = std::pair<Instant, uint64_t>;  ///< arrival, then order of sending
  struct Overtaken {
    Slot slot;
    uint32_t still_to_pass = 0;
  };

  bool survives(const Frame& frame);
  bool lost_in_burst();
  void travel(Frame frame, Instant now);
  std::optional<Instant> serialise(Frame& frame, Instant now);
  void corrupt(Frame& frame);
  void fly(Frame frame, Instant arrival);
  void overtake(Instant arrival);

  MemImpairments imp_;
  MemStats stats_;
  MemFilter filter_;
  uint64_t drop_next_ = 0;
  uint64_t index_ = 0;
  uint64_t order_ = 0;
  bool burst_ = false;
  Instant last_in_order_;  ///< latest arrival of a frame that was not reordered: jitter never goes
                           ///< before it
  Instant wire_free_;      ///< when the slow wire has sent all it was given
  std::deque<Instant> queue_;  ///< when each queued frame has left the slow wire
  std::map<Slot, Frame> flying_;
  std::vector<Overtaken> overtaken_;
  std::vector<Frame> held_;
  Prng loss_, burst_rng_, jitter_, reorder_, duplicate_, corrupt_, corrupt_place_;
};

}  // namespace vireo
