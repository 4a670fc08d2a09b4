// The WQE ring of a striding receive queue, written in place, and the frames of its WQEs. A WQE is
// a run of frames; a stride is one frame. A packet starts at the start of a stride and is delivered
// in place. If it does not fit in the rest of a WQE, it starts in the next; the rest is filler.
//
// Strides are numbered from the start of the queue: the number contains the WQE and the place in
// it.
// Owner: Mlx5Queue. Thread: holder of the engine's lock; the device reads concurrently.
// Source: mlx5dv.h (mlx5_wqe_srq_next_seg, mlx5_wqe_data_seg).
#pragma once

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/packet.h"
#include "dev/mlx5/barrier.h"
#include "dev/mlx5/runs.h"
#include "dev/mlx5/striding_wq.h"

namespace vireo::mlx5 {

/// The byte_cnt of a CQE of such a queue.
struct StridesUsed {
  static constexpr unsigned kAt = 16;  ///< first bit of the stride count, below the filler flag
  uint32_t bytes, strides;
  bool is_filler;
  explicit StridesUsed(uint32_t byte_cnt)
      : bytes(byte_cnt & 0xffff),
        strides(byte_cnt >> kAt & 0x3fff),
        is_filler(byte_cnt >> 31 != 0) {}
};

class Striding {
 public:
  Striding(StridingWq queue, const StridingShape& shape, PacketPool& pool, uint32_t lkey)
      : runs(pool, 1U << shape.log_strides, shape.runs),
        wq(std::move(queue)),
        elements_(static_cast<std::byte*>(wq.ring().buf)),
        record_(wq.ring().dbrec),
        mask_(wq.ring().wqe_cnt - 1),
        log_strides_(shape.log_strides),
        places_((1U << shape.log_strides) - 1),
        most_(shape.elements << shape.log_strides),
        firsts_(new PacketBuf*[wq.ring().wqe_cnt]),
        used_(1U << shape.log_strides) {
    most_stuck = std::max(pool.size() / 8, 2 * runs.frames());
    for (uint32_t i = 0; i <= mask_; ++i) {
      *reinterpret_cast<mlx5_wqe_srq_next_seg*>(element(i)) = {};
      mlx5dv_set_data_seg(segment(i), pool.frame_bytes() << log_strides_, lkey, 0);
    }
  }

  uint32_t most_strides() const { return most_; }
  /// Writes the WQE that starts at `stride`, with the run whose first frame is `first`.
  void write(uint32_t stride, PacketBuf& first) {
    const uint32_t i = stride >> log_strides_ & mask_;
    firsts_[i] = &first;
    segment(i)->addr = htobe64(reinterpret_cast<uintptr_t>(first.frame));
  }
  /// Call when all WQEs before the one that starts at `stride` are written.
  void publish(uint32_t stride) {
    publish_to_device();
    __atomic_store_n(record_, htobe32(stride >> log_strides_ & 0xffff), __ATOMIC_RELEASE);
  }
  /// Only with LRO: marks `n` completed strides of the WQE being filled, from `at` on.
  void use(uint32_t at, uint32_t n) {
    for (; n > 0; --n, ++used_count_) used_[place_of(at++)] = true;
    if (used_count_ >= runs.frames()) end_element();
  }
  void end_element() {
    used_.assign(used_.size(), false);
    used_count_ = 0;
  }
  bool is_used(uint32_t place) const { return used_[place]; }
  /// The frame of this stride.
  PacketBuf* packet_of(uint32_t stride) const {
    return firsts_[stride >> log_strides_ & mask_] + place_of(stride);
  }
  uint32_t place_of(uint32_t stride) const { return stride & places_; }

  uint32_t few = 0;         ///< strides posted, at least one run: below it packets are copied
  uint32_t most_stuck = 0;  ///< frames: above it too, so that runs come back whole
  bool copies = false;      ///< packets are copied in this burst
  Runs runs;
  StridingWq wq;  // after `runs`, so destroyed first: the device releases the frames

 private:
  std::byte* element(uint32_t i) const {
    return elements_ + size_t{i} * (sizeof(mlx5_wqe_srq_next_seg) + sizeof(mlx5_wqe_data_seg));
  }
  mlx5_wqe_data_seg* segment(uint32_t i) const {
    return reinterpret_cast<mlx5_wqe_data_seg*>(element(i) + sizeof(mlx5_wqe_srq_next_seg));
  }
  std::byte* elements_;
  __be32* record_;
  uint32_t mask_;
  uint32_t log_strides_;
  uint32_t places_;  ///< mask of a stride's place in its WQE
  uint32_t most_;
  std::unique_ptr<PacketBuf*[]> firsts_;  ///< by WQE: its first frame
  std::vector<bool> used_;                ///< completed strides of the WQE being filled, by place
  uint32_t used_count_ = 0;
};

}  // namespace vireo::mlx5
