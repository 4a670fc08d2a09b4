// A striding receive queue as the driver creates it: a work queue, an indirection table with only
// that queue, and a QP with that table, to which flow rules lead. No hashing takes place.
// Owner: Mlx5Queue. Thread: setup any, then holder of the engine's lock.
// Source: mlx5dv_create_wq (mlx5dv.h), ibv_create_wq(3), ibv_create_rwq_ind_table(3),
// ibv_create_qp_ex(3).
#pragma once

#include <infiniband/mlx5dv.h>

#include <memory>

#include "core/packet.h"
#include "core/result.h"
#include "dev/verbs/context.h"
#include "dev/verbs/shape.h"

namespace vireo::mlx5 {

struct StridingShape {
  uint32_t log_stride_bytes;  ///< one frame
  uint32_t log_strides;       ///< frames per WQE
  uint32_t elements;
  uint32_t runs;  ///< most runs lent: those posted and those with packets in use
};
/// Chooses the shape from pool, MTU and device, for about as many frames as `shape` has receives.
/// Errors: ENOTSUP (where names what is missing).
Result<StridingShape> striding_shape_of(const verbs::Context& context, const PacketPool& pool,
                                        uint32_t mtu, const verbs::QueueShape& shape);

class StridingWq {
 public:
  /// Creates a queue that is ready to receive, with completions in `received`, which must outlive
  /// it.
  /// Errors: those of the driver; ENOTSUP for an unknown layout.
  static Result<StridingWq> create(std::shared_ptr<verbs::Context> context, ibv_cq* received,
                                   const StridingShape& shape);
  StridingWq(StridingWq&& o) noexcept;
  StridingWq& operator=(StridingWq&&) = delete;
  ~StridingWq();

  ibv_qp* pair() const { return pair_; }
  uint32_t number() const { return queue_->wq_num; }
  const mlx5dv_rwq& ring() const { return ring_; }
  /// Forgets all posted WQEs; the device no longer writes to them. Rules stay.
  /// Errors: as ibv_modify_wq(3).
  Result<void> reset() { return go(IBV_WQS_RESET); }
  Result<void> make_ready() { return go(IBV_WQS_RDY); }

 private:
  explicit StridingWq(std::shared_ptr<verbs::Context> context) : context_(std::move(context)) {}
  Result<void> create_queue(ibv_cq* received, const StridingShape& shape);
  Result<void> create_pair();
  Result<void> go(ibv_wq_state to);

  std::shared_ptr<verbs::Context> context_;
  ibv_wq* queue_ = nullptr;
  ibv_rwq_ind_table* table_ = nullptr;
  ibv_qp* pair_ = nullptr;
  mlx5dv_rwq ring_{};
};

}  // namespace vireo::mlx5
