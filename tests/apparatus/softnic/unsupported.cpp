// What this device does not have, refused as a device without it would: address handles, shared
// receive queues, InfiniBand multicast, imported objects. Programs that link against the real
// library find every name. Source: the manual page of each.
#include <infiniband/verbs.h>

#include <cerrno>

namespace {
std::nullptr_t nothing() {
  errno = EOPNOTSUPP;
  return nullptr;
}
}  // namespace

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd*, ibv_ah_attr*) { return nothing(); }
ibv_ah* ibv_create_ah_from_wc(ibv_pd*, ibv_wc*, ibv_grh*, uint8_t) { return nothing(); }
int ibv_init_ah_from_wc(ibv_context*, uint8_t, ibv_wc*, ibv_grh*, ibv_ah_attr*) {
  return EOPNOTSUPP;
}
int ibv_destroy_ah(ibv_ah*) { return EOPNOTSUPP; }
int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, uint8_t[ETHERNET_LL_SIZE], uint16_t*) {
  return EOPNOTSUPP;
}

ibv_srq* ibv_create_srq(ibv_pd*, ibv_srq_init_attr*) { return nothing(); }
int ibv_modify_srq(ibv_srq*, ibv_srq_attr*, int) { return EOPNOTSUPP; }
int ibv_query_srq(ibv_srq*, ibv_srq_attr*) { return EOPNOTSUPP; }
int ibv_destroy_srq(ibv_srq*) { return EOPNOTSUPP; }

int ibv_attach_mcast(ibv_qp*, const union ibv_gid*, uint16_t) { return EOPNOTSUPP; }
int ibv_detach_mcast(ibv_qp*, const union ibv_gid*, uint16_t) { return EOPNOTSUPP; }
int ibv_resize_cq(ibv_cq*, int) { return EOPNOTSUPP; }
int ibv_rereg_mr(ibv_mr*, int, ibv_pd*, void*, size_t, int) { return EOPNOTSUPP; }
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) { return nothing(); }

ibv_context* ibv_import_device(int) { return nothing(); }
ibv_pd* ibv_import_pd(ibv_context*, uint32_t) { return nothing(); }
void ibv_unimport_pd(ibv_pd*) {}
ibv_mr* ibv_import_mr(ibv_pd*, uint32_t) { return nothing(); }
void ibv_unimport_mr(ibv_mr*) {}
ibv_dm* ibv_import_dm(ibv_context*, uint32_t) { return nothing(); }
void ibv_unimport_dm(ibv_dm*) {}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp*) { return nothing(); }
int ibv_set_ece(ibv_qp*, ibv_ece*) { return EOPNOTSUPP; }
int ibv_query_ece(ibv_qp*, ibv_ece*) { return EOPNOTSUPP; }
int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) { return 0; }

}  // extern "C"
