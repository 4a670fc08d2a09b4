// The element ring of a striding receive queue, written in place, and the frames of its elements.
// An element is a run of frames, and a stride is a frame. A packet begins at the beginning of a
// stride and is handed over where it lies. One that does not fit into the rest of an element begins
// in the next; the rest is filler.
//
// Strides are numbered from the queue's beginning on: the element and the place in it are parts of
// the number.
// Owner: Mlx5Queue. Thread: holder of the engine's lock; the device reads at the same time.
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

/// The length in a completion of such a queue.
struct StridesUsed {
  static constexpr unsigned kAt = 16;  ///< the number of strides, in bits; whether filler above it
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
  /// The run whose first frame this is becomes the element that begins with `stride`.
  void write(uint32_t stride, PacketBuf& first) {
    const uint32_t i = stride >> log_strides_ & mask_;
    firsts_[i] = &first;
    segment(i)->addr = htobe64(reinterpret_cast<uintptr_t>(first.frame));
  }
  /// All elements before that which begins with `stride` are written.
  void publish(uint32_t stride) {
    publish_to_device();
    __atomic_store_n(record_, htobe32(stride >> log_strides_ & 0xffff), __ATOMIC_RELEASE);
  }
  /// Only with LRO: `n` strides from `at` on, of the element that is being filled, are told of.
  void use(uint32_t at, uint32_t n) {
    for (; n > 0; --n, ++used_count_) used_[place_of(at++)] = true;
    if (used_count_ >= runs.frames()) end_element();
  }
  void end_element() {
    used_.assign(used_.size(), false);
    used_count_ = 0;
  }
  bool is_used(uint32_t place) const { return used_[place]; }
  /// Whose frame it is.
  PacketBuf* packet_of(uint32_t stride) const {
    return firsts_[stride >> log_strides_ & mask_] + place_of(stride);
  }
  uint32_t place_of(uint32_t stride) const { return stride & places_; }
  /// Strides from this one to the element's end.

  uint32_t few = 0;         ///< strides posted, a run at least: below, packets are copied
  uint32_t most_stuck = 0;  ///< frames: above, too, so that runs come back whole
  bool copies = false;      ///< it is so in this burst
  Runs runs;
  StridingWq wq;  // behind `runs`: the device lets go of them first

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
  uint32_t places_;  ///< mask of a stride's place in its element
  uint32_t most_;
  std::unique_ptr<PacketBuf*[]> firsts_;  ///< by element: that of its first frame
  std::vector<bool> used_;                ///< of the element that is being filled, by place
  uint32_t used_count_ = 0;
};

}  // namespace vireo::mlx5
