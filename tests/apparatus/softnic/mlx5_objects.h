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
/// EOPNOTSUPP: another flag than MLX5DV_CONTEXT_FLAGS_DEVX.
ibv_context* softnic_mlx5_open_device(ibv_device* device, const mlx5dv_context_attr* attr);
/// QUERY_HCA_CAP of the Ethernet offloads. EINVAL: the context is without DevX; EREMOTEIO: refused
/// by the firmware, the answer says why.
int softnic_mlx5_general_cmd(ibv_context* context, const void* in, size_t in_bytes, void* out,
                             size_t out_bytes);
/// ALLOC_TRANSPORT_DOMAIN; CREATE_TIR of a striding queue. Errors: as above.
mlx5dv_devx_obj* softnic_mlx5_obj_create(ibv_context* context, const void* in, size_t in_bytes,
                                         void* out, size_t out_bytes);
/// EREMOTEIO: it is in use.
int softnic_mlx5_obj_destroy(mlx5dv_devx_obj* obj);
/// Of the outer headers. EOPNOTSUPP: anything else.
mlx5dv_flow_matcher* softnic_mlx5_create_matcher(ibv_context* context,
                                                 const mlx5dv_flow_matcher_attr* attr);
int softnic_mlx5_destroy_matcher(mlx5dv_flow_matcher* matcher);
/// To a TIR, with a tag or without. Errors: as ibv_create_flow(3).
ibv_flow* softnic_mlx5_create_flow(mlx5dv_flow_matcher* matcher,
                                   const mlx5dv_flow_match_parameters* value, size_t actions,
                                   const mlx5dv_flow_action_attr* attr);
int softnic_mlx5_get_clock_info(ibv_context* context, mlx5dv_clock_info* out);
}
