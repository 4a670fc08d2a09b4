// What lies in a send ring: frames, the packets that their elements point to, and a mark for each
// element that asked for a completion. Counts only grow.
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
  /// The element that is being written points to the packet.
  void hold(PacketBuf* p) {
    held_[held_tail_++ & held_mask_] = p;
    ++p->device_refs;
  }
  /// The last element asks for a completion; `blocks` are produced with it.
  void mark(uint32_t blocks) {
    marks_[mark_tail_++ & (marks_.size() - 1)] = {frames_, held_tail_, blocks};
    marked_held_ = held_tail_;
  }
  /// No completion is asked for that would free the packet held last.
  bool has_unmarked() const { return marked_held_ != held_tail_; }
  /// The completion of the oldest mark came. It speaks for all elements before it as well.
  void free_marked() {
    const Mark& mark = marks_[mark_head_++ & (marks_.size() - 1)];
    release(mark.held);
    freed_ = mark;
  }
  /// The device reads nothing more.
  void release_all() { release(held_tail_); }
  /// The ring is empty. @return frames that were in it.
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
  /// Any frame was freed since the pair last began.
  bool has_freed() const { return freed_.frames != begun_at_; }
  /// Packets that can be held besides.
  uint32_t room() const { return held_mask_ + 1 - (held_tail_ - freed_.held); }

 private:
  static constexpr uint32_t kHeldPerFrame = 2;  ///< of those in flight, on average
  /// What a completion frees: all before.
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
  Mark freed_{};  ///< done, as far as is known
  uint32_t mark_head_ = 0;
  uint32_t begun_at_ = 0;     ///< freed_.frames when the pair last began
  uint32_t marked_held_ = 0;  ///< held_tail_ when a completion was last asked for
};

}  // namespace vireo::mlx5
