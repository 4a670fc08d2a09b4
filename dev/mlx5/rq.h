// A receive queue, written in place: a ring of requests, each with enough pointers for a packet of
// the MTU, and the doorbell record with the number of requests ever written. Keys and lengths never
// change; posting a request writes only its addresses.
// Owner: Mlx5Queue. Thread: holder of the engine's lock; the device reads concurrently.
// Source: mlx5dv.h (mlx5_wqe_data_seg).
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>

#include "dev/mlx5/barrier.h"

namespace vireo::mlx5 {

class Rq {
 public:
  Rq(const mlx5dv_qp& qp, uint32_t segments, uint32_t bytes, uint32_t lkey)
      : requests_(static_cast<std::byte*>(qp.rq.buf)),
        stride_(qp.rq.stride),
        mask_(qp.rq.wqe_cnt - 1),
        record_(&qp.dbrec[MLX5_RCV_DBR]) {
    for (uint32_t i = 0; i < size(); ++i)
      for (uint32_t k = 0; k < stride_ / sizeof(mlx5_wqe_data_seg); ++k)
        if (k < segments)
          mlx5dv_set_data_seg(segment(i, k), bytes, lkey, 0);
        else  // terminates a list shorter than the stride
          mlx5dv_set_data_seg(segment(i, k), 0, MLX5_INVALID_LKEY, 0);
  }
  uint32_t size() const { return mask_ + 1; }  ///< 0: receives are posted elsewhere
  void write(uint32_t index, uint32_t k, const std::byte* at) {
    segment(index, k)->addr = htobe64(reinterpret_cast<uintptr_t>(at));
  }
  /// Call when all requests before `posted` are written.
  void publish(uint32_t posted) {
    publish_to_device();
    __atomic_store_n(record_, htobe32(posted & 0xffff), __ATOMIC_RELEASE);
  }

 private:
  mlx5_wqe_data_seg* segment(uint32_t index, uint32_t k) const {
    return reinterpret_cast<mlx5_wqe_data_seg*>(requests_ + size_t{index & mask_} * stride_) + k;
  }
  std::byte* requests_;
  uint32_t stride_, mask_;
  __be32* record_;
};

}  // namespace vireo::mlx5
