// The frames of a striding receive queue, in runs of adjacent frames. A run is the buffer of one
// WQE; each stride is one frame. A frame is handed out with a packet in it and returns alone; a run
// is posted again when all its frames are back.
//
//   pool --lend--> spare -> posted -> stride by stride: in use -> dropped to back_ -> counted
//     ^--reclaim--'  ^--------------------------------------------------- all of a run ---'
//
// Runs are lent as needed. Whole runs that are not posted are spare: the pool counts them as free
// and reclaims them before it runs short. So the pool's answer to "how short are packets?", which
// TCP asks before it keeps out-of-order data, does not depend on how they are received. One frame
// in use keeps its run from being posted; the run's other frames are stuck. Their number is
// bounded: while they are many, or too few are posted, the queue copies packets (striding.cpp).
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

  /// Uses at most `most` runs of `frames` (a power of two) of `pool`.
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
  /// Returns all frames that are not in use to the pool, the rest when dropped. The device must
  /// have stopped writing.
  ~Runs();

  uint32_t frames() const { return 1U << shift_; }
  /// Frames that are free, but neither posted nor in a whole run.
  uint32_t stuck() const { return stuck_; }
  /// Takes a run to post: the index of its first frame, or kNone. `wanted`: how many the caller
  /// will take in all.
  uint32_t take(uint32_t wanted) {
    if (spare_.firsts.empty() && !borrow(wanted)) return kNone;
    const uint32_t first = spare_.firsts.back();  // the last returned has the warmest cache lines
    spare_.firsts.pop_back();
    pool_.note_used(spare_);
    missing_[first >> shift_] = frames();
    ++used_;
    return first;
  }
  /// Counts the frames dropped since the last call.
  void collect() {
    for (PacketBuf* p = back_.take_list(); p != nullptr;) {
      PacketBuf* const next = std::exchange(p->next, nullptr);
      p->hw_time = 0;
      give_back(p->index);
      p = next;
    }
  }
  /// Returns a posted frame that was not used.
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
  PacketPool back_;  ///< frames dropped but not yet counted
  uint32_t shift_;
  uint32_t most_;
  std::vector<uint32_t> missing_;  ///< by run: its frames that are not back
  PacketPool::Spares spare_;
  uint32_t used_ = 0;      ///< runs lent and not spare
  uint32_t stuck_ = 0;     ///< see stuck()
  uint32_t tried_at_ = 0;  ///< frames the pool had when it last lent none
};

}  // namespace vireo::mlx5
