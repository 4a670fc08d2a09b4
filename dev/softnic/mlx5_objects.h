// What libmlx5.so.1 asks of the devices in libibverbs.so.1, as rdma-core's asks by its private
// symbols. Each is the mlx5dv call of that name. Owner: none. Thread: any.
#pragma once

#include <infiniband/mlx5dv.h>

extern "C" {
bool softnic_mlx5_is_supported(ibv_device* device);
int softnic_mlx5_query_device(ibv_context* context, mlx5dv_context* out);
/// EOPNOTSUPP for other objects than pairs, work and completion queues and protection domains:
/// there are no others. EBUSY: requests are posted already.
int softnic_mlx5_init_obj(mlx5dv_obj* obj, uint64_t types);
ibv_cq_ex* softnic_mlx5_create_cq(ibv_context* context, const ibv_cq_init_attr_ex* attr,
                                  const mlx5dv_cq_init_attr* mlx5);
ibv_wq* softnic_mlx5_create_wq(ibv_context* context, const ibv_wq_init_attr* attr,
                               const mlx5dv_wq_init_attr* mlx5);
ibv_qp* softnic_mlx5_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                               const mlx5dv_qp_init_attr* mlx5);
int softnic_mlx5_get_clock_info(ibv_context* context, mlx5dv_clock_info* out);
}
