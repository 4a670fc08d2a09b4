// libmlx5, loaded when the first device is opened, like libibverbs: no program needs rdma-core.
// Owner: process, never unloaded. Thread: any. Source: dlopen(3), mlx5dv(7).
#pragma once

#include <infiniband/mlx5dv.h>

#include "core/result.h"

namespace vireo::mlx5 {

struct Libmlx5 {
  decltype(&::mlx5dv_is_supported) is_supported;
  decltype(&::mlx5dv_query_device) query_device;
  decltype(&::mlx5dv_init_obj) init_obj;
  decltype(&::mlx5dv_create_cq) create_cq;
  /// Null in libraries older than rdma-core 16.
  decltype(&::mlx5dv_create_wq) create_wq;
  /// Null in libraries older than rdma-core 25.
  decltype(&::mlx5dv_open_device) open_device;
  decltype(&::mlx5dv_devx_general_cmd) general_cmd;
  decltype(&::mlx5dv_devx_obj_create) obj_create;
  decltype(&::mlx5dv_devx_obj_destroy) obj_destroy;
  decltype(&::mlx5dv_create_flow_matcher) create_matcher;
  decltype(&::mlx5dv_destroy_flow_matcher) destroy_matcher;
  decltype(&::mlx5dv_create_flow) create_flow;
  /// Null in libraries older than rdma-core 18.
  decltype(&::mlx5dv_get_clock_info) get_clock_info;
};

/// Must succeed before library() is called. Errors: ENOENT.
Result<void> load_libmlx5();
const Libmlx5& library();

}  // namespace vireo::mlx5
