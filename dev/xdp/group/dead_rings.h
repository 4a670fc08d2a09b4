// The rings of a member that died, in one queue: what lies in them comes back to the group.
// Owner: Sharing, for a burial. Thread: holder of the group's control lock.
#pragma once

#include <memory>

#include "core/clock.h"
#include "core/result.h"
#include "dev/xdp/group/shared_rings.h"
#include "dev/xdp/xsk.h"

namespace vireo::xdp {

class DeadRings {
 public:
  struct Which {
    SharedQueue* queue = nullptr;
    unsigned number = 0;  ///< of the queue
    unsigned slot = 0;    ///< of the dead
    RingSizes sizes;      ///< of its RX and TX rings
  };
  /// `ours`: as for the rings of a member, with the slot of who buries.
  static Result<DeadRings> map(const Which& which, int rx_fd, int tx_fd, SharedRings::Setup ours);

  /// Takes the queue's lock, and repairs what its last holder left. @return false: the holder lives
  /// and keeps it.
  bool lock(Duration patience) noexcept {
    return rings_->hold(view_.fill, view_.completion, patience);
  }
  void unlock() noexcept { rings_->release(); }
  /// Received frames go back to FILL: the others posted them and count on them. Frames not yet sent
  /// are not in flight any more, nor those that came back. With the lock; once more does no harm.
  void empty() noexcept;

 private:
  Which which_;
  FrameOwners owners_;
  uint32_t frame_shift_ = 0;
  XskView view_;
  std::unique_ptr<SharedRings> rings_;
};

}  // namespace vireo::xdp
