// Receive queues that stand alone, and what leads frames to them: an indirection table of queues,
// and a queue pair that has the table instead of rings. Tables have one queue here, so that nothing
// is hashed; queues have striding elements, and the program drives their rings.
// Owner: Context. Thread: holder of the port's lock. Source: ibv_create_wq(3),
// ibv_create_rwq_ind_table(3), mlx5dv_create_wq (mlx5dv.h).
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "tests/apparatus/softnic/completion.h"
#include "tests/apparatus/softnic/striding_ring.h"

namespace vireo::softnic {

struct Wq : ibv_wq {
  StridingRing ring;
  unsigned users = 0;  ///< tables
  uint64_t freed = 0;  ///< for Cqe: the program sees by itself what is free

  Wq(uint32_t entries, uint32_t segments, const mlx5dv_striding_rq_init_attr& shape)
      : ibv_wq{}, ring(entries, segments, shape) {}
  Cq& received() const { return *static_cast<Cq*>(cq); }
};

struct Table : ibv_rwq_ind_table {
  Wq* wq = nullptr;
  unsigned users = 0;  ///< queue pairs
};

struct Context;

/// mlx5dv_create_wq(). Errors: EOPNOTSUPP it is not to stride, or to complete where completions are
/// compressed; EINVAL.
ibv_wq* create_wq(ibv_context* context, const ibv_wq_init_attr& attr,
                  const mlx5dv_wq_init_attr& mlx5);
/// The operations table's part.
void fill_work_queue_operations(Context& c);
/// The queue pair of ibv_create_qp_ex(3) with IBV_QP_INIT_ATTR_IND_TABLE.
ibv_qp* create_hash_pair(ibv_context* context, const ibv_qp_init_attr_ex& attr);

}  // namespace vireo::softnic
