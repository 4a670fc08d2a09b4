#include "tests/apparatus/softnic/receive_ring.h"

#include <bit>

#include "tests/apparatus/softnic/memory.h"
#include "tests/apparatus/softnic/queue_pair.h"
#include "tests/apparatus/softnic/strict.h"

namespace vireo::softnic {

ReceiveRing::ReceiveRing(uint32_t entries, uint32_t segments, __be32& record)
    : pages_(size_t{entries} * std::bit_ceil(segments) * sizeof(mlx5_wqe_data_seg), 0),
      record_(record),
      entries_(entries),
      segments_(std::bit_ceil(segments)) {}

void ReceiveRing::describe(mlx5dv_qp& out) const {
  out.rq = {pages_.data(), entries_, segments_ * static_cast<uint32_t>(sizeof(mlx5_wqe_data_seg))};
}

void ReceiveRing::clear() {
  noticed_ = taken_ = 0;
  store(record_, 0);
}

mlx5_wqe_data_seg* ReceiveRing::element(uint64_t index) const {
  return reinterpret_cast<mlx5_wqe_data_seg*>(pages_.data()) + (index & (entries_ - 1)) * segments_;
}

uint32_t ReceiveRing::read(uint64_t index, ibv_sge* out) const {
  const mlx5_wqe_data_seg* s = element(index);
  uint32_t n = 0;
  while (n < segments_ && be32toh(s[n].lkey) != MLX5_INVALID_LKEY) {
    out[n] = {be64toh(s[n].addr), be32toh(s[n].byte_count), be32toh(s[n].lkey)};
    ++n;
  }
  return n;
}

bool ReceiveRing::look(const Qp& qp, MemoryTable& memory) {
  const auto fresh = static_cast<uint16_t>(load(record_) - static_cast<uint16_t>(noticed_));
  if (fresh == 0) return false;
  if (noticed_ + fresh - taken_ > entries_) {
    broken_rule(
        "receive queue %u of %u overflows: its doorbell record goes from %u to %u, %lu "
        "are taken",
        qp.qp_num, entries_, static_cast<uint16_t>(noticed_), load(record_),
        static_cast<unsigned long>(taken_));
    return false;
  }
  for (uint32_t i = 0; i < fresh; ++i, ++noticed_) {
    ibv_sge sge[64];
    const uint32_t n = read(noticed_, sge);
    if (n == 0) broken_rule("receive queue %u: an element without a segment", qp.qp_num);
    for (uint32_t k = 0; k < n; ++k)
      if (Mr* mr = memory.region_of(sge[k], qp.pd, true, "receive queue"))
        memory.note_posted(*mr, sge[k], true);
  }
  return true;
}

bool ReceiveRing::fetch(Qp& qp, MemoryTable& memory) {
  if (taken_ == noticed_ && !look(qp, memory)) return false;
  ReceiveRequest& r = qp.receives.free_slot();
  r.wr_id = static_cast<uint16_t>(taken_);
  r.segments = read(taken_, qp.receives.segments_of(r));
  ++taken_;
  qp.receives.push();
  return true;
}

void ReceiveRing::post(const ibv_recv_wr& wr) {
  const auto at = static_cast<uint16_t>(load(record_));
  mlx5_wqe_data_seg* s = element(at);
  for (int i = 0; i < wr.num_sge; ++i)
    mlx5dv_set_data_seg(&s[i], wr.sg_list[i].length, wr.sg_list[i].lkey, wr.sg_list[i].addr);
  if (static_cast<uint32_t>(wr.num_sge) < segments_)
    mlx5dv_set_data_seg(&s[wr.num_sge], 0, MLX5_INVALID_LKEY, 0);
  store(record_, static_cast<uint16_t>(at + 1));
}

}  // namespace vireo::softnic
