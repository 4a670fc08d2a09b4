// Computes the sizes of a queue's rings from what is wished for, what the device has, and how many
// frames there are; and how many receives are posted of those that could be.
// Owner: none (values); ReceiveFill: the queue. Thread: as the queue.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>

#include "core/packet.h"
#include "dev/caps.h"
#include "dev/verbs/verbs.h"

namespace vireo::verbs {

struct QueueShape {
  static constexpr uint32_t kMaxSegments = 16;
  uint32_t rx_slots, rx_segments, tx_slots, tx_segments, signal_every, refill;
  bool checksums;
};

/// Frames of `frame_bytes` that a packet of this MTU may fill.
uint32_t receive_segments(uint32_t frame_bytes, uint32_t mtu);
/// Segments of one send, the head's among them.
uint32_t send_segments(const ibv_device_attr_ex& limits);
/// Errors: ENOTSUP the MTU needs more segments than there are.
Result<QueueShape> shape_of(const ibv_device_attr_ex& limits, const PacketPool& pool,
                            const DeviceCaps& caps, const VerbsOptions& options);

/// Receives are used in turn: the fewer they are, the warmer their frames are in the caches. Begins
/// with few, and doubles whenever half of them were used up at once.
class ReceiveFill {
 public:
  /// `step`: they are posted so many at once.
  explicit ReceiveFill(uint32_t slots, uint32_t step = 1)
      : most_(slots), target_(std::min(std::max(kCalm, 2 * step), slots)) {}
  /// To have posted now, as `posted` still are.
  uint32_t target(uint32_t posted) {
    if (posted < target_ / 2 && primed_) target_ = std::min(2 * target_, most_);
    primed_ = true;
    return target_;
  }

 private:
  static constexpr uint32_t kCalm = 512;
  uint32_t most_, target_;
  bool primed_ = false;
};

}  // namespace vireo::verbs
