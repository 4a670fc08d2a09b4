// The calls of libmlx5 that this device has; what they do is in libibverbs.so.1, where the devices
// are. Source: mlx5dv.h and the manual page of each.
#include <infiniband/mlx5dv.h>

#include "tests/apparatus/softnic/mlx5_objects.h"

extern "C" {

bool mlx5dv_is_supported(ibv_device* device) { return softnic_mlx5_is_supported(device); }

ibv_context* mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr* attr) {
  return softnic_mlx5_open_device(device, attr);
}

int mlx5dv_query_device(ibv_context* context, mlx5dv_context* out) {
  return softnic_mlx5_query_device(context, out);
}

int mlx5dv_init_obj(mlx5dv_obj* obj, uint64_t types) { return softnic_mlx5_init_obj(obj, types); }

ibv_cq_ex* mlx5dv_create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr,
                            mlx5dv_cq_init_attr* mlx5) {
  return softnic_mlx5_create_cq(context, attr, mlx5);
}

ibv_qp* mlx5dv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                         mlx5dv_qp_init_attr* mlx5) {
  return softnic_mlx5_create_qp(context, attr, mlx5);
}

ibv_wq* mlx5dv_create_wq(ibv_context* context, ibv_wq_init_attr* attr, mlx5dv_wq_init_attr* mlx5) {
  return softnic_mlx5_create_wq(context, attr, mlx5);
}

int mlx5dv_get_clock_info(ibv_context* context, mlx5dv_clock_info* out) {
  return softnic_mlx5_get_clock_info(context, out);
}

int mlx5dv_devx_general_cmd(ibv_context* context, const void* in, size_t in_bytes, void* out,
                            size_t out_bytes) {
  return softnic_mlx5_general_cmd(context, in, in_bytes, out, out_bytes);
}

mlx5dv_devx_obj* mlx5dv_devx_obj_create(ibv_context* context, const void* in, size_t in_bytes,
                                        void* out, size_t out_bytes) {
  return softnic_mlx5_obj_create(context, in, in_bytes, out, out_bytes);
}

int mlx5dv_devx_obj_destroy(mlx5dv_devx_obj* obj) { return softnic_mlx5_obj_destroy(obj); }

mlx5dv_flow_matcher* mlx5dv_create_flow_matcher(ibv_context* context,
                                                mlx5dv_flow_matcher_attr* attr) {
  return softnic_mlx5_create_matcher(context, attr);
}

int mlx5dv_destroy_flow_matcher(mlx5dv_flow_matcher* matcher) {
  return softnic_mlx5_destroy_matcher(matcher);
}

ibv_flow* mlx5dv_create_flow(mlx5dv_flow_matcher* matcher, mlx5dv_flow_match_parameters* value,
                             size_t actions, mlx5dv_flow_action_attr* attr) {
  return softnic_mlx5_create_flow(matcher, value, actions, attr);
}

}  // extern "C"
