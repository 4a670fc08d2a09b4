// A receive queue of striding elements as the hardware has it: a ring in the program's memory whose
// every element names one buffer, cut into strides of equal length, and a doorbell record. Packets
// fill it one behind the other, each from the beginning of a stride on, in the elements' order; one
// that does not fit into what is left begins in the next, and the rest is told of as filler.
// Owner: Wq. Thread: holder of the port's lock; the memory is the program's at the same time.
// Source: mlx5dv.h (mlx5_wqe_srq_next_seg, mlx5_wqe_data_seg); DPDK's mlx5 driver for what the
// completions of such a queue say.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>

#include "tests/apparatus/softnic/shared_pages.h"

namespace vireo::softnic {

class MemoryTable;

class StridingRing {
 public:
  // What devices offer, as powers of two.
  static constexpr uint32_t kMinBytes = 6, kMaxBytes = 13;
  static constexpr uint32_t kMinStrides = 3, kMinStridesOfOld = 9, kMaxStrides = 16;

  /// `segments` of an element, of which the first is used.
  StridingRing(uint32_t entries, uint32_t segments, const mlx5dv_striding_rq_init_attr& shape);
  void describe(mlx5dv_rwq& out) const;
  /// Reads the record and checks what was posted. @return true: there was something new.
  bool look(const ibv_wq& wq, MemoryTable& memory);
  /// The element that packets go to now. @return false: nothing is posted.
  bool has_front(const ibv_wq& wq, MemoryTable& memory) {
    return taken_ != noticed_ || look(wq, memory);
  }
  uint32_t strides_for(size_t bytes) const {
    return static_cast<uint32_t>((bytes + stride_bytes() - 1) / stride_bytes());
  }
  /// Of an element.
  uint32_t strides() const { return 1U << log_strides_; }
  uint64_t bytes() const { return uint64_t{strides()} << log_bytes_; }
  /// Of the front element, that no packet lies in.
  uint32_t left() const { return strides() - used_; }
  /// Strides that are posted.
  uint64_t waiting() const { return (noticed_ - taken_) * strides() - used_; }
  uint16_t front_index() const { return static_cast<uint16_t>(taken_); }
  uint16_t front_stride() const { return static_cast<uint16_t>(used_); }
  /// Where the next packet goes: `strides` of the front element.
  ibv_sge place(uint32_t strides) const;
  /// They are the program's again, and so is the element with its last stride.
  void use(uint32_t strides, MemoryTable& memory);
  void clear(MemoryTable& memory);

 private:
  uint32_t stride_bytes() const { return 1U << log_bytes_; }
  const mlx5_wqe_data_seg* segment(uint64_t index) const;
  ibv_sge buffer(uint64_t index) const;
  void note(const ibv_sge& strides, bool posted, MemoryTable& memory) const;

  SharedPages pages_;
  SharedPages record_{sizeof(__be32), 0};
  uint32_t entries_, segments_;
  uint32_t log_strides_, log_bytes_;
  uint64_t noticed_ = 0;  ///< elements, as the record says
  uint64_t taken_ = 0;
  uint32_t used_ = 0;  ///< strides of the front element
};

}  // namespace vireo::softnic
