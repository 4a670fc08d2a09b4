#include "tests/apparatus/softnic/mlx5_objects.h"

#include <algorithm>
#include <cerrno>

#include "tests/apparatus/softnic/clock.h"
#include "tests/apparatus/softnic/extended_cq.h"
#include "tests/apparatus/softnic/lacks.h"
#include "tests/apparatus/softnic/nic.h"
#include "tests/apparatus/softnic/pump.h"
#include "tests/apparatus/softnic/strict.h"

using namespace vireo::softnic;

namespace {

constexpr uint32_t kMaxCompressed = 64;

std::nullptr_t refuse(int error) {
  errno = error;
  return nullptr;
}

int give(ibv_qp* in, mlx5dv_qp& out) {
  auto& qp = *static_cast<Qp*>(in);
  Port& port = of(qp.context).nic->port;
  const std::lock_guard hold(port.lock);
  if (qp.direct == nullptr) {
    if (!qp.is_untouched()) {
      broken_rule("mlx5dv_init_obj: pair %u has requests posted", qp.qp_num);
      return EBUSY;
    }
    port.driven = start_driving();
    qp.give_rings();
    if (!port.driven.by_hand) qp.direct->sends.watch(&Port::rung, &port);
    port.note_direct(1);
  }
  out.dbrec = &qp.direct->record(0);
  qp.direct->sends.describe(out);
  qp.direct->receives.describe(out);
  if ((out.comp_mask & MLX5DV_QP_MASK_RAW_QP_HANDLES) != 0) {
    out.sqn = out.rqn = qp.qp_num;
    out.tirn = out.tisn = 0;
  }
  out.comp_mask &= MLX5DV_QP_MASK_RAW_QP_HANDLES;
  return 0;
}

int give(ibv_cq* in, mlx5dv_cq& out) {
  auto& cq = *static_cast<Cq*>(in);
  Port& port = of(cq.context).nic->port;
  const std::lock_guard hold(port.lock);
  if (cq.direct == nullptr) {
    if (!cq.empty()) {
      broken_rule("mlx5dv_init_obj: completion queue %u has completions to be polled", cq.handle);
      return EBUSY;
    }
    port.driven = start_driving();
    cq.direct = std::make_unique<CompletionRing>(static_cast<uint32_t>(cq.ring.size()), cq.handle,
                                                 cq.compresses);
    if (!port.driven.by_hand) cq.direct->watch(&Port::rung, &port);
    port.attach(cq);
  }
  cq.direct->describe(out);
  out.comp_mask = 0;
  return 0;
}

}  // namespace

extern "C" {

bool softnic_mlx5_is_supported(ibv_device* device) {
  return in_this_process(*static_cast<Nic*>(device)) != nullptr;
}

int softnic_mlx5_query_device(ibv_context*, mlx5dv_context* out) {
  const uint64_t asked = out->comp_mask;
  out->version = 0;
  out->flags = MLX5DV_CONTEXT_FLAGS_CQE_V1;
  out->comp_mask = 0;
  if ((asked & MLX5DV_CONTEXT_MASK_CQE_COMPRESION) != 0) {
    out->cqe_comp_caps = {kMaxCompressed, MLX5DV_CQE_RES_FORMAT_HASH};
    out->comp_mask |= MLX5DV_CONTEXT_MASK_CQE_COMPRESION;
  }
  if ((asked & MLX5DV_CONTEXT_MASK_STRIDING_RQ) != 0 && !lacks("striding")) {
    using R = StridingRing;
    out->striding_rq_caps = {R::kMinBytes, R::kMaxBytes,
                             lacks("shortruns") ? R::kMinStridesOfOld : R::kMinStrides,
                             R::kMaxStrides, 1U << IBV_QPT_RAW_PACKET};
    out->comp_mask |= MLX5DV_CONTEXT_MASK_STRIDING_RQ;
  }
  if ((asked & MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE) != 0) {
    out->max_clock_info_update_nsec = uint64_t{1} << (kClockBits - 2);
    out->comp_mask |= MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE;
  }
  return 0;
}

int softnic_mlx5_init_obj(mlx5dv_obj* obj, uint64_t types) {
  constexpr uint64_t kKnown = MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | MLX5DV_OBJ_RWQ | MLX5DV_OBJ_PD;
  if ((types & ~kKnown) != 0) return EOPNOTSUPP;
  if (are_rings_refused()) return EOPNOTSUPP;
  int error = 0;
  if ((types & MLX5DV_OBJ_QP) != 0) error = give(obj->qp.in, *obj->qp.out);
  if (error == 0 && (types & MLX5DV_OBJ_CQ) != 0) error = give(obj->cq.in, *obj->cq.out);
  if (error == 0 && (types & MLX5DV_OBJ_RWQ) != 0)
    static_cast<Wq*>(obj->rwq.in)->ring.describe(*obj->rwq.out);
  if (error == 0 && (types & MLX5DV_OBJ_PD) != 0) {
    obj->pd.out->pdn = obj->pd.in->handle;
    obj->pd.out->comp_mask = 0;
  }
  return error;
}

ibv_cq_ex* softnic_mlx5_create_cq(ibv_context* context, const ibv_cq_init_attr_ex* attr,
                                  const mlx5dv_cq_init_attr* mlx5) {
  if ((attr->comp_mask & ~uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS}) != 0) return refuse(EOPNOTSUPP);
  if ((mlx5->comp_mask &
       ~uint64_t{MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE | MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE}) != 0)
    return refuse(EOPNOTSUPP);
  const bool compresses = (mlx5->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE) != 0;
  if (compresses && mlx5->cqe_comp_res_format != MLX5DV_CQE_RES_FORMAT_HASH)
    return refuse(EOPNOTSUPP);
  if ((mlx5->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE) != 0 &&
      mlx5->cqe_size != sizeof(mlx5_cqe64))
    return refuse(EOPNOTSUPP);
  ibv_cq* cq = ibv_create_cq(context, static_cast<int>(attr->cqe), attr->cq_context, attr->channel,
                             static_cast<int>(attr->comp_vector));
  if (cq == nullptr) return nullptr;
  Cq& made = *static_cast<Cq*>(cq);
  made.compresses = compresses;
  extend(made, attr->wc_flags);
  return &made.ex();
}

ibv_wq* softnic_mlx5_create_wq(ibv_context* context, const ibv_wq_init_attr* attr,
                               const mlx5dv_wq_init_attr* mlx5) {
  return create_wq(context, *attr, mlx5 != nullptr ? *mlx5 : mlx5dv_wq_init_attr{});
}

ibv_qp* softnic_mlx5_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                               const mlx5dv_qp_init_attr* mlx5) {
  constexpr uint32_t kMeaningless =  // for raw packets
      MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;
  if (mlx5 != nullptr &&
      ((mlx5->comp_mask & ~uint64_t{MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS}) != 0 ||
       (mlx5->create_flags & ~kMeaningless) != 0))
    return refuse(EOPNOTSUPP);
  return ibv_create_qp_ex(context, attr);
}

int softnic_mlx5_get_clock_info(ibv_context*, mlx5dv_clock_info* out) {
  *out = {};
  out->mask = kClockMask;
  out->last_cycles = ticks_now();
  out->nsec = wall_now();
  out->mult = kNsPerTick;
  out->shift = 0;
  return 0;
}

}  // extern "C"
