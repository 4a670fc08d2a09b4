// What a direction of the test wire does to frames, and the count of what it did.
// Every impairment draws from its own random stream: turning one on leaves the decisions of the
// others as they were. Owner: none (values). Thread: any.
#pragma once

#include <cstdint>

#include "core/clock.h"

namespace vireo {

/// Probabilities are per frame, in [0, 1].
struct MemImpairments {
  double loss = 0;

  /// Gilbert-Elliott burst loss: per frame, good -> bad with `burst_enter`, bad -> good with
  /// `burst_leave`; a frame sent in the bad state is lost with `burst_loss`.
  double burst_enter = 0;
  double burst_leave = 1;
  double burst_loss = 1;

  Duration delay = {};   ///< propagation
  Duration jitter = {};  ///< up to this much more, uniform; never reorders

  double reorder = 0;              ///< a chosen frame is overtaken by the frames behind it ...
  uint32_t reorder_positions = 0;  ///< ... by this many, or by time alone if 0,
  Duration reorder_extra =
      Duration::ms(1);  ///< and comes this much late (at the latest, with positions)

  double duplicate = 0;
  double corrupt = 0;  ///< flips `corrupt_bits` bits at random places behind the Ethernet header
  uint32_t corrupt_bits = 1;

  uint64_t bytes_per_second = 0;  ///< serialisation rate of whole frames, 0 = infinite
  uint32_t queue_frames = 1000;   ///< room before the slow wire, tail drop
  uint32_t ecn_mark_frames =
      0;  ///< > 0: ECN-capable frames that find this many queued get CE (RFC 3168 §5)

  uint32_t mtu = 1500;  ///< larger IP packets vanish, as in a path with a smaller link
};

/// Frames of one direction, by what became of them.
struct MemStats {
  uint64_t sent = 0;  ///< left the sender
  uint64_t sent_bytes = 0;
  uint64_t delivered = 0;  ///< reached the receiver's device
  uint64_t lost = 0;
  uint64_t burst_lost = 0;
  uint64_t dropped_by_hook = 0;  ///< drop_next() and filter
  uint64_t queue_full = 0;
  uint64_t too_big = 0;
  uint64_t reordered = 0;
  uint64_t duplicated = 0;
  uint64_t corrupted = 0;
  uint64_t ecn_marked = 0;
  uint64_t queue_peak = 0;  ///< most frames queued before the slow wire
};

}  // namespace vireo
