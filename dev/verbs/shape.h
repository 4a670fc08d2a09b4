// Computes ring sizes from the options, the device's limits and the number of frames; and the
// number of receives to post.
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

/// Number of frames of `frame_bytes` that a packet of this MTU can take.
uint32_t receive_segments(uint32_t frame_bytes, uint32_t mtu);
/// Segments of one send, including the head.
uint32_t send_segments(const ibv_device_attr_ex& limits);
/// Errors: ENOTSUP the MTU needs more segments than the device has.
Result<QueueShape> shape_of(const ibv_device_attr_ex& limits, const PacketPool& pool,
                            const DeviceCaps& caps, const VerbsOptions& options);

/// Limits the receives that are posted: they are used in turn, so the fewer there are, the warmer
/// their frames are in the caches. Starts with few, and doubles when half were used up at once.
class ReceiveFill {
 public:
  /// `step`: receives are posted in units of this size.
  explicit ReceiveFill(uint32_t slots, uint32_t step = 1)
      : most_(slots), target_(std::min(std::max(kCalm, 2 * step), slots)) {}
  /// The number that should be posted, when `posted` are.
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
