// What of libmlx5 this device does not have, refused as the real one refuses it on a device
// without: most of DevX, software steering, device memory, keys of several regions, cryptography,
// VFIO. Programs that link against the real library find every name. Declared without arguments,
// which none of them looks at: the header is not included. Source: the manual page of each.
#include <cerrno>

#define NUMBER(name) \
  int name() { return EOPNOTSUPP; }
#define POINTER(name)   \
  void* name() {        \
    errno = EOPNOTSUPP; \
    return nullptr;     \
  }
#define NOTHING(name) \
  void name() {}

extern "C" {

// clang-format off
NUMBER(_mlx5dv_mkey_check) NUMBER(_mlx5dv_query_port) NUMBER(mlx5dv_crypto_login)
NUMBER(mlx5dv_crypto_login_destroy) NUMBER(mlx5dv_crypto_login_query)
NUMBER(mlx5dv_crypto_login_query_state) NUMBER(mlx5dv_crypto_logout)
NUMBER(mlx5dv_dci_stream_id_reset) NUMBER(mlx5dv_dek_destroy) NUMBER(mlx5dv_dek_query)
NUMBER(mlx5dv_destroy_mkey)
NUMBER(mlx5dv_destroy_steering_anchor) NUMBER(mlx5dv_devx_cq_modify) NUMBER(mlx5dv_devx_cq_query)
NUMBER(mlx5dv_devx_destroy_eq) NUMBER(mlx5dv_devx_free_msi_vector)
NUMBER(mlx5dv_devx_get_async_cmd_comp) NUMBER(mlx5dv_devx_ind_tbl_modify)
NUMBER(mlx5dv_devx_ind_tbl_query) NUMBER(mlx5dv_devx_obj_modify)
NUMBER(mlx5dv_devx_obj_query) NUMBER(mlx5dv_devx_obj_query_async) NUMBER(mlx5dv_devx_qp_modify)
NUMBER(mlx5dv_devx_qp_query) NUMBER(mlx5dv_devx_query_eqn) NUMBER(mlx5dv_devx_srq_modify)
NUMBER(mlx5dv_devx_srq_query) NUMBER(mlx5dv_devx_subscribe_devx_event)
NUMBER(mlx5dv_devx_subscribe_devx_event_fd) NUMBER(mlx5dv_devx_umem_dereg)
NUMBER(mlx5dv_devx_wq_modify) NUMBER(mlx5dv_devx_wq_query) NUMBER(mlx5dv_dr_action_destroy)
NUMBER(mlx5dv_dr_action_modify_aso) NUMBER(mlx5dv_dr_action_modify_flow_meter)
NUMBER(mlx5dv_dr_aso_other_domain_link) NUMBER(mlx5dv_dr_aso_other_domain_unlink)
NUMBER(mlx5dv_dr_domain_destroy) NUMBER(mlx5dv_dr_domain_sync) NUMBER(mlx5dv_dr_matcher_destroy)
NUMBER(mlx5dv_dr_matcher_set_layout) NUMBER(mlx5dv_dr_rule_destroy) NUMBER(mlx5dv_dr_table_destroy)
NUMBER(mlx5dv_dump_dr_domain) NUMBER(mlx5dv_dump_dr_matcher) NUMBER(mlx5dv_dump_dr_rule)
NUMBER(mlx5dv_dump_dr_table) NUMBER(mlx5dv_map_ah_to_qp) NUMBER(mlx5dv_modify_qp_lag_port)
NUMBER(mlx5dv_modify_qp_sched_elem) NUMBER(mlx5dv_modify_qp_udp_sport)
NUMBER(mlx5dv_qp_cancel_posted_send_wrs) NUMBER(mlx5dv_query_qp_lag_port)
NUMBER(mlx5dv_reserved_qpn_alloc) NUMBER(mlx5dv_reserved_qpn_dealloc)
NUMBER(mlx5dv_sched_leaf_destroy) NUMBER(mlx5dv_sched_leaf_modify)
NUMBER(mlx5dv_sched_node_destroy) NUMBER(mlx5dv_sched_node_modify) NUMBER(mlx5dv_set_context_attr)
NUMBER(mlx5dv_vfio_get_events_fd) NUMBER(mlx5dv_vfio_process_events)

POINTER(mlx5dv_alloc_dm) POINTER(mlx5dv_alloc_var)
POINTER(mlx5dv_create_flow_action_esp) POINTER(mlx5dv_create_flow_action_modify_header)
POINTER(mlx5dv_create_flow_action_packet_reformat)
POINTER(mlx5dv_create_mkey) POINTER(mlx5dv_create_steering_anchor)
POINTER(mlx5dv_crypto_login_create) POINTER(mlx5dv_dek_create)
POINTER(mlx5dv_devx_alloc_msi_vector) POINTER(mlx5dv_devx_alloc_uar)
POINTER(mlx5dv_devx_create_cmd_comp) POINTER(mlx5dv_devx_create_eq)
POINTER(mlx5dv_devx_create_event_channel)
POINTER(mlx5dv_devx_umem_reg) POINTER(mlx5dv_devx_umem_reg_ex) POINTER(mlx5dv_dm_map_op_addr)
POINTER(mlx5dv_dr_action_create_aso) POINTER(mlx5dv_dr_action_create_default_miss)
POINTER(mlx5dv_dr_action_create_dest_array) POINTER(mlx5dv_dr_action_create_dest_devx_tir)
POINTER(mlx5dv_dr_action_create_dest_ib_port) POINTER(mlx5dv_dr_action_create_dest_ibv_qp)
POINTER(mlx5dv_dr_action_create_dest_root_table) POINTER(mlx5dv_dr_action_create_dest_table)
POINTER(mlx5dv_dr_action_create_dest_vport) POINTER(mlx5dv_dr_action_create_drop)
POINTER(mlx5dv_dr_action_create_flow_counter) POINTER(mlx5dv_dr_action_create_flow_meter)
POINTER(mlx5dv_dr_action_create_flow_sampler) POINTER(mlx5dv_dr_action_create_modify_header)
POINTER(mlx5dv_dr_action_create_packet_reformat) POINTER(mlx5dv_dr_action_create_pop_vlan)
POINTER(mlx5dv_dr_action_create_push_vlan) POINTER(mlx5dv_dr_action_create_tag)
POINTER(mlx5dv_dr_domain_create) POINTER(mlx5dv_dr_matcher_create) POINTER(mlx5dv_dr_rule_create)
POINTER(mlx5dv_dr_table_create) POINTER(mlx5dv_get_vfio_device_list) POINTER(mlx5dv_pp_alloc)
POINTER(mlx5dv_qp_ex_from_ibv_qp_ex) POINTER(mlx5dv_sched_leaf_create)
POINTER(mlx5dv_sched_node_create)

NOTHING(mlx5dv_devx_destroy_cmd_comp) NOTHING(mlx5dv_devx_destroy_event_channel)
NOTHING(mlx5dv_devx_free_uar) NOTHING(mlx5dv_dr_domain_allow_duplicate_rules)
NOTHING(mlx5dv_dr_domain_set_reclaim_device_memory) NOTHING(mlx5dv_free_var)
NOTHING(mlx5dv_pp_free)
    // clang-format on

    long mlx5dv_devx_get_event() {
  errno = EOPNOTSUPP;
  return -1;
}

}  // extern "C"
