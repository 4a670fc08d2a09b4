// The receive queue of a pair as the hardware has it: a ring of data segments in the program's
// memory and a doorbell record, which the device reads when it wants a buffer.
// Owner: Qp. Thread: holder of the port's lock; the memory is the program's at the same time.
// Source: mlx5dv.h (mlx5_wqe_data_seg); rdma-core's ibv_post_recv for how a short list ends.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstdint>

#include "tests/apparatus/softnic/shared_pages.h"

namespace vireo::softnic {

class MemoryTable;
struct Qp;

class ReceiveRing {
 public:
  /// `segments` of a request; `record` is the pair's first doorbell record.
  ReceiveRing(uint32_t entries, uint32_t segments, __be32& record);
  void describe(mlx5dv_qp& out) const;
  /// Reads the record and checks what was posted. @return true: there was something new.
  bool look(const Qp& qp, MemoryTable& memory);
  /// Moves the oldest request into the one slot of qp.receives. @return false: nothing is posted.
  bool fetch(Qp& qp, MemoryTable& memory);
  /// ibv_post_recv(3), as the driver does it.
  void post(const ibv_recv_wr& wr);
  bool full() const { return noticed_ - taken_ == entries_; }
  uint64_t waiting() const { return noticed_ - taken_; }
  void clear();

 private:
  /// The segments of a request. @return how many.
  uint32_t read(uint64_t index, ibv_sge* out) const;
  mlx5_wqe_data_seg* element(uint64_t index) const;

  SharedPages pages_;
  __be32& record_;
  uint32_t entries_;
  uint32_t segments_;     ///< that fit into the stride
  uint64_t noticed_ = 0;  ///< requests, as the record says
  uint64_t taken_ = 0;
};

}  // namespace vireo::softnic
