// The frames of a striding receive queue: runs of adjacent frames, each the buffer of one element,
// in which every stride is a frame. A frame is handed out when a packet lies in it, and comes back
// alone; a run is posted again when all its frames are back.
//
//   pool --lend--> spare -> posted -> stride by stride: in use -> dropped to back_ -> counted
//     ^--reclaim--'  ^--------------------------------------------------- all of a run ---'
//
// Runs are lent as more are needed. Those that are whole are spare: the pool counts them as free
// and has them back before it is short, so that whoever asks how short packets are, as TCP does
// before it keeps what came out of order, gets an answer that does not depend on how they are
// received. One frame in use keeps its run from being posted: such frames are stuck, and bounded,
// for the queue copies packets while they are many, or too few are posted (striding.cpp).
// Owner: Striding. Thread: holder of the engine's lock.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/packet.h"

namespace vireo::mlx5 {

class Runs {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  /// At most `most` runs of `frames` (a power of two) of `pool`.
  Runs(PacketPool& pool, uint32_t frames, uint32_t most)
      : pool_(pool),
        back_(&pool),
        shift_(static_cast<uint32_t>(std::countr_zero(frames))),
        most_(most),
        missing_(pool.size() >> shift_),
        spare_{frames, {}} {
    spare_.firsts.reserve(most);
    pool.join(spare_);
  }
  Runs(const Runs&) = delete;
  /// All that is not in use goes to the pool now, the rest when it is dropped: the device must not
  /// write any more.
  ~Runs();

  uint32_t frames() const { return 1U << shift_; }
  /// Frames that are free and yet in no whole run, nor posted.
  uint32_t stuck() const { return stuck_; }
  /// A run to be posted: the index of its first frame; kNone: there is none. `wanted`: as many are,
  /// by and by.
  uint32_t take(uint32_t wanted) {
    if (spare_.firsts.empty() && !borrow(wanted)) return kNone;
    const uint32_t first = spare_.firsts.back();  // the one that came back last: the warmest
    spare_.firsts.pop_back();
    pool_.note_used(spare_);
    missing_[first >> shift_] = frames();
    ++used_;
    return first;
  }
  /// Counts what was dropped since the last call.
  void collect() {
    for (PacketBuf* p = back_.take_list(); p != nullptr;) {
      PacketBuf* const next = std::exchange(p->next, nullptr);
      p->hw_time = 0;
      give_back(p->index);
      p = next;
    }
  }
  /// A frame that was posted is free again, without having been in use.
  void give_back(uint32_t index) {
    const uint32_t run = index >> shift_;
    ++stuck_;
    if (--missing_[run] == 0) [[unlikely]]
      make_spare(run);
  }

 private:
  void make_spare(uint32_t run) {
    stuck_ -= frames();
    --used_;
    spare_.firsts.push_back(run << shift_);
    pool_.note_spare(spare_);
  }
  [[gnu::cold, gnu::noinline]] bool borrow(uint32_t wanted);

  PacketPool& pool_;
  PacketPool back_;  ///< dropped, not yet counted
  uint32_t shift_;
  uint32_t most_;
  std::vector<uint32_t> missing_;  ///< by number of the run: its frames that are not back
  PacketPool::Spares spare_;
  uint32_t used_ = 0;      ///< runs that are lent and not spare
  uint32_t stuck_ = 0;     ///< of them
  uint32_t tried_at_ = 0;  ///< frames the pool had when it lent none
};

}  // namespace vireo::mlx5
