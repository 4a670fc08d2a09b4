// The contents of a send ring: frames, the packets that WQEs point to, and a mark for each WQE that
// requested a completion. Counts only grow.
// Owner: Mlx5Queue. Thread: holder of the engine's lock.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/packet.h"

namespace vireo::mlx5 {

class InFlight {
 public:
  InFlight(uint32_t frames, uint32_t most_packets)
      : held_mask_(std::bit_ceil(std::max(kHeldPerFrame * frames, 2 * most_packets)) - 1),
        held_(new PacketBuf*[held_mask_ + 1]),
        marks_(std::bit_ceil(frames)) {}

  void add_frame() { ++frames_; }
  /// Notes that the WQE being written points to packet `p`.
  void hold(PacketBuf* p) {
    held_[held_tail_++ & held_mask_] = p;
    ++p->device_refs;
  }
  /// The last WQE requests a completion; `blocks` is the ring position behind it.
  void mark(uint32_t blocks) {
    marks_[mark_tail_++ & (marks_.size() - 1)] = {frames_, held_tail_, blocks};
    marked_held_ = held_tail_;
  }
  /// True if no completion is requested that would free the last packet held.
  bool has_unmarked() const { return marked_held_ != held_tail_; }
  /// The completion of the oldest mark arrived; it also completes all WQEs before it.
  void free_marked() {
    const Mark& mark = marks_[mark_head_++ & (marks_.size() - 1)];
    release(mark.held);
    freed_ = mark;
  }
  /// Call when the device reads nothing more.
  void release_all() { release(held_tail_); }
  /// Restarts with an empty ring. @return frames that were in it.
  uint32_t begin_anew() {
    const uint32_t lost = frames();
    release_all();
    freed_ = {frames_, held_tail_, 0};
    begun_at_ = frames_;
    mark_head_ = mark_tail_;
    marked_held_ = held_tail_;
    return lost;
  }

  uint32_t frames() const { return frames_ - freed_.frames; }
  uint32_t freed_frames() const { return freed_.frames; }
  uint32_t freed_blocks() const { return freed_.blocks; }
  /// True if any frame completed since the QP was last restarted.
  bool has_freed() const { return freed_.frames != begun_at_; }
  /// How many more packets can be held.
  uint32_t room() const { return held_mask_ + 1 - (held_tail_ - freed_.held); }

 private:
  static constexpr uint32_t kHeldPerFrame = 2;  ///< per frame in flight, on average
  /// Everything before these positions is freed by one completion.
  struct Mark {
    uint32_t frames, held, blocks;
  };

  void release(uint32_t until) {
    for (; freed_.held != until; ++freed_.held) {
      PacketBuf* p = held_[freed_.held & held_mask_];
      --p->device_refs;
      PacketPool::drop(p);
    }
  }

  const uint32_t held_mask_;
  std::unique_ptr<PacketBuf*[]> held_;  ///< a ring
  std::vector<Mark> marks_;             ///< a ring
  uint32_t frames_ = 0, held_tail_ = 0, mark_tail_ = 0;
  Mark freed_{};  ///< completed, as far as known
  uint32_t mark_head_ = 0;
  uint32_t begun_at_ = 0;     ///< freed_.frames when the QP was last restarted
  uint32_t marked_held_ = 0;  ///< held_tail_ when a completion was last requested
};

}  // namespace vireo::mlx5
