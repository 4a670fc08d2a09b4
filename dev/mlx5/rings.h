// The rings of a QP and its completion queues, from mlx5dv_init_obj(3).
// Owner: none (values that point into the QP's memory). Thread: any.
#pragma once

#include <infiniband/mlx5dv.h>

#include "core/result.h"
#include "dev/verbs/pair.h"

namespace vireo::mlx5 {

struct Rings {
  mlx5dv_qp pair;
  mlx5dv_cq sent, received;
};

/// From now on neither ibv_post_send(3), ibv_post_recv(3) nor ibv_poll_cq(3) may be called on them.
/// Errors: ENOTSUP (where names the unknown layout).
Result<Rings> rings_of(const verbs::Pair& pair);

}  // namespace vireo::mlx5
