// What mlx5dv_init_obj(3) gives of a pair and its completion queues.
// Owner: none (values that point into memory of the pair). Thread: any.
#pragma once

#include <infiniband/mlx5dv.h>

#include "core/result.h"
#include "dev/verbs/pair.h"

namespace vireo::mlx5 {

struct Rings {
  mlx5dv_qp pair;
  mlx5dv_cq sent, received;
};

/// From now on neither ibv_post_send(3) and its kin nor ibv_poll_cq(3) may be called on them.
/// Errors: ENOTSUP (where says which layout is not ours).
Result<Rings> rings_of(const verbs::Pair& pair);

}  // namespace vireo::mlx5
