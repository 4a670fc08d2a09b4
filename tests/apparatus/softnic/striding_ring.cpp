#include "tests/apparatus/softnic/striding_ring.h"

#include <bit>

#include "tests/apparatus/softnic/memory.h"
#include "tests/apparatus/softnic/strict.h"

namespace vireo::softnic {
namespace {

/// As the driver makes them: a head and the pointers.
uint32_t octowords(uint32_t segments) { return std::bit_ceil(1 + segments); }

}  // namespace

StridingRing::StridingRing(uint32_t entries, uint32_t segments,
                           const mlx5dv_striding_rq_init_attr& shape)
    : pages_(size_t{entries} * octowords(segments) * sizeof(mlx5_wqe_data_seg), 0),
      entries_(entries),
      segments_(segments),
      log_strides_(shape.single_wqe_log_num_of_strides),
      log_bytes_(shape.single_stride_log_num_of_bytes) {}

void StridingRing::describe(mlx5dv_rwq& out) const {
  out.buf = pages_.data();
  out.dbrec = reinterpret_cast<__be32*>(record_.data());
  out.wqe_cnt = entries_;
  out.stride = octowords(segments_) * static_cast<uint32_t>(sizeof(mlx5_wqe_data_seg));
  out.comp_mask = 0;
}

const mlx5_wqe_data_seg* StridingRing::segment(uint64_t index) const {
  static_assert(sizeof(mlx5_wqe_srq_next_seg) == sizeof(mlx5_wqe_data_seg));
  return reinterpret_cast<const mlx5_wqe_data_seg*>(pages_.data()) +
         (index & (entries_ - 1)) * octowords(segments_) + 1;
}

ibv_sge StridingRing::buffer(uint64_t index) const {
  const mlx5_wqe_data_seg& s = *segment(index);
  return {be64toh(s.addr), be32toh(s.byte_count), be32toh(s.lkey)};
}

bool StridingRing::look(const ibv_wq& wq, MemoryTable& memory) {
  const auto& record = *reinterpret_cast<const __be32*>(record_.data());
  const auto fresh = static_cast<uint16_t>(load(record) - static_cast<uint16_t>(noticed_));
  if (fresh == 0) return false;
  if (noticed_ + fresh - taken_ > entries_) {
    broken_rule(
        "striding queue %u of %u overflows: its doorbell record goes from %u to %u, %lu are taken",
        wq.wq_num, entries_, static_cast<uint16_t>(noticed_), load(record),
        static_cast<unsigned long>(taken_));
    return false;
  }
  for (uint32_t i = 0; i < fresh; ++i, ++noticed_) {
    const ibv_sge all = buffer(noticed_);
    if (all.length != uint64_t{strides()} << log_bytes_)
      broken_rule("striding queue %u: an element of %u bytes, %u strides have %u", wq.wq_num,
                  all.length, strides(), strides() << log_bytes_);
    if (memory.region_of(all, wq.pd, true, "striding queue") != nullptr) note(all, true, memory);
  }
  return true;
}

ibv_sge StridingRing::place(uint32_t strides) const {
  const ibv_sge all = buffer(taken_);
  return {all.addr + (uint64_t{used_} << log_bytes_), strides << log_bytes_, all.lkey};
}

/// Each stride begins a buffer of its own.
void StridingRing::note(const ibv_sge& strides, bool posted, MemoryTable& memory) const {
  Mr* mr = memory.find(strides.lkey);
  if (mr == nullptr) return;
  for (uint64_t at = 0; at < strides.length; at += stride_bytes())
    memory.note_posted(*mr, {strides.addr + at, stride_bytes(), strides.lkey}, posted);
}

void StridingRing::use(uint32_t strides, MemoryTable& memory) {
  note(place(strides), false, memory);
  used_ += strides;
  if (used_ < this->strides()) return;
  used_ = 0;
  ++taken_;
}

void StridingRing::clear(MemoryTable& memory) {
  while (taken_ != noticed_) use(left(), memory);
  noticed_ = taken_ = used_ = 0;
  store(*reinterpret_cast<__be32*>(record_.data()), 0);
}

}  // namespace vireo::softnic
