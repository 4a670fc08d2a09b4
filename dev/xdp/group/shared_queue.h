// The queue of an interface that several processes use at once, each with an RX and a TX ring of
// its own: what they share besides the kernel's FILL and COMPLETION rings. In memory that all
// members of the group map; zeroed memory is a valid start. Owner: the group. Thread: as noted.
#pragma once

#include <atomic>
#include <cstdint>

#include "dev/xdp/group/shared_lock.h"
#include "dev/xdp/group/table.h"

namespace vireo::xdp {

/// Frames that the kernel has sent, on their way back to their owner: he may not be the one who
/// found them in the COMPLETION ring.
struct ReturnRing {
  static constexpr uint32_t kEntries = 4096;  ///< above what one member has in flight

  alignas(64) std::atomic<uint32_t> tail{0};  ///< by the holder of the queue's lock
  alignas(64) std::atomic<uint32_t> head{0};  ///< by the member
  uint32_t frames[kEntries];
};

struct SharedQueue {
  // ---- what it is: written by who opens it first, under the group's control lock
  uint32_t ifindex = 0;  ///< 0: not in use
  uint32_t queue = 0;
  uint32_t fill_entries = 0;
  uint32_t completion_entries = 0;
  uint32_t chunk_bytes = 0;
  uint32_t multi_frame = 0;
  uint32_t is_zero_copy = 0;
  int64_t unused_from = 0;         ///< Clock::now_from_kernel(); before, drivers may use its frames
  std::atomic<uint64_t> users{0};  ///< by slot; changes under the control lock

  /// Frames to have in FILL and under way, of all members.
  std::atomic<uint32_t> fill_target{0};

  /// Held while sending, on kernels that need it (queue_shared.cpp).
  alignas(64) SharedLock sending;
  /// Guards both rings, and what follows.
  alignas(64) SharedLock lock;
  /// Entries of FILL that are written but not published yet: if `count` is not 0 and the producer
  /// still is `at`, their frames belong to nobody.
  struct {
    uint32_t at, count;
  } filling{};
  /// Completions that are distributed but not taken from the ring yet. If `is_valid`, what follows
  /// is to be stored, once more does no harm.
  struct {
    uint32_t is_valid;
    uint32_t consumer;
    uint64_t touched;  ///< by slot
    uint32_t tails[kGroupSlots];
  } completing{};
  ReturnRing returns[kGroupSlots];
};

}  // namespace vireo::xdp
