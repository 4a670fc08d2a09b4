// The memory that the members of a group share besides the packets: who has each frame, and the
// queues. Owner: Sharing. Thread: the functions under the group's control lock, unless noted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/fd.h"
#include "core/frame_owners.h"
#include "core/result.h"
#include "dev/xdp/group/shared_queue.h"
#include "dev/xdp/xsk.h"

namespace vireo::xdp {

/// An interface that members have open, with one steering program.
struct SharedInterface {
  uint32_t ifindex = 0;            ///< 0: none
  uint32_t how = 0;                ///< what its first member found
  std::atomic<uint64_t> users{0};  ///< by slot
};

/// At its beginning. The bytes of `owner` and the words of `in_flight` follow.
struct SharedHead {
  static constexpr uint32_t kMaxInterfaces = 16;
  static constexpr uint32_t kMaxQueues = 128;  ///< FrameOwners::of_queue() has no more
  /// Changes with every change of what members share.
  static constexpr uint32_t kVersion = 2;

  uint64_t packet_bytes = 0;
  uint32_t frame_bytes = 0;
  uint32_t frames = 0;
  std::atomic<uint32_t> ingress[kGroupSlots];  ///< CopiedFrames::number() by slot; 0: none
  SharedInterface interfaces[kMaxInterfaces];
  SharedQueue queues[kMaxQueues];
};

class SharedMemory {
 public:
  /// A memfd for packet memory of `packet_bytes`. It takes memory only where it is written.
  static Result<UniqueFd> create(size_t packet_bytes, uint32_t frame_bytes);
  /// Maps it. Not inherited by fork.
  static Result<SharedMemory> map(int fd);

  SharedHead& head() const { return *static_cast<SharedHead*>(map_.base()); }
  FrameOwners owners(unsigned slot) const;

  /// Gives `slot` its frames: at most `most`; while others may come, at most an eighth of those
  /// that nobody has. @return how many; 0: fewer than `least` are left.
  uint32_t grant(unsigned slot, uint32_t most, uint32_t least) const;
  /// Takes back what `slot` has. Frames that the kernel may still send stay with
  /// FrameOwners::kGone.
  void take_back(unsigned slot) const;
  /// Takes back the frames in `queue`'s FILL ring, which nobody uses any more.
  void take_back_queue(unsigned queue) const;
  /// Gives `slot` up to `most` of those that nobody has; calls `take(frame)` for each.
  template <class F>
  void give(unsigned slot, uint32_t most, F&& take) const {
    const FrameOwners o = owners(slot);
    for (uint32_t i = 0; i < o.owner.size() && most != 0; ++i) {
      if (o.owner[i] != FrameOwners::kNobody) continue;
      o.owner[i] = o.me;
      take(i);
      --most;
    }
  }
  /// Frames of this owner, for tools and tests. Any thread.
  uint32_t count(uint8_t owner) const;

  /// The queue's number, or that of an unused one, which it then is. Errors: ENOSPC.
  Result<unsigned> queue_of(IfIndex ifindex, QueueId queue) const;
  /// Likewise. Null: there is no more room.
  SharedInterface* interface_of(IfIndex ifindex) const;

 private:
  Mapping map_;
};

}  // namespace vireo::xdp
