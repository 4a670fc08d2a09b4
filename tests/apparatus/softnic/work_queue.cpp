#include "tests/apparatus/softnic/work_queue.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "tests/apparatus/softnic/lacks.h"
#include "tests/apparatus/softnic/nic.h"
#include "tests/apparatus/softnic/strict.h"

namespace vireo::softnic {
namespace {

constexpr uint8_t kHashKeyBytes = 40;

std::nullptr_t refuse(int error) {
  errno = error;
  return nullptr;
}

Port& port_of(ibv_context* c) { return of(c).nic->port; }

/// The program has the ring.
int post_recv(ibv_wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  broken_rule("ibv_post_wq_recv: queue %u strides", wq->wq_num);
  *bad = wr;
  return EINVAL;
}

bool may_go(ibv_wq_state from, ibv_wq_state to) {
  return to == IBV_WQS_RESET || (from == IBV_WQS_RESET && to == IBV_WQS_RDY) ||
         (from == IBV_WQS_RDY && to == IBV_WQS_ERR);
}

int modify_wq(ibv_wq* wq, ibv_wq_attr* attr) {
  Port& port = port_of(wq->context);
  const std::lock_guard hold(port.lock);
  Wq& own = *static_cast<Wq*>(wq);
  if ((attr->attr_mask & ~uint32_t{IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE}) != 0) return EINVAL;
  if ((attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) != 0 && attr->curr_wq_state != own.state)
    return EINVAL;
  if ((attr->attr_mask & IBV_WQ_ATTR_STATE) == 0) return 0;
  if (!may_go(own.state, attr->wq_state)) return EINVAL;
  if (port.faults.removed && attr->wq_state == IBV_WQS_RDY) return EIO;
  if (attr->wq_state == IBV_WQS_RESET) own.ring.clear(port.memory);
  if (attr->wq_state == IBV_WQS_ERR) port.enter_error(own);
  own.state = attr->wq_state;
  return 0;
}

int destroy_wq(ibv_wq* wq) {
  Context& c = of(wq->context);
  const std::lock_guard hold(c.nic->port.lock);
  Wq& own = *static_cast<Wq*>(wq);
  if (own.users > 0) return EBUSY;
  own.ring.clear(c.nic->port.memory);
  c.nic->port.detach(own);
  --static_cast<Pd*>(own.pd)->users;
  --own.received().users;
  std::erase_if(c.wqs, [&](const auto& w) { return w.get() == &own; });
  return 0;
}

ibv_rwq_ind_table* create_table(ibv_context* context, ibv_rwq_ind_table_init_attr* attr) {
  if (lacks("tables")) return refuse(EOPNOTSUPP);
  if (attr->comp_mask != 0 || attr->log_ind_tbl_size != 0) return refuse(EOPNOTSUPP);
  Context& c = of(context);
  const std::lock_guard hold(c.nic->port.lock);
  Table& t = *c.tables.emplace_back(std::make_unique<Table>());
  t.context = context;
  t.ind_tbl_num = t.ind_tbl_handle = static_cast<int>(c.tables.size());
  t.wq = static_cast<Wq*>(attr->ind_tbl[0]);
  ++t.wq->users;
  return &t;
}

int destroy_table(ibv_rwq_ind_table* table) {
  Context& c = of(table->context);
  const std::lock_guard hold(c.nic->port.lock);
  Table& own = *static_cast<Table*>(table);
  if (own.users > 0) return EBUSY;
  --own.wq->users;
  std::erase_if(c.tables, [&](const auto& t) { return t.get() == &own; });
  return 0;
}

}  // namespace

ibv_wq* create_wq(ibv_context* context, const ibv_wq_init_attr& attr,
                  const mlx5dv_wq_init_attr& mlx5) {
  const mlx5dv_striding_rq_init_attr& shape = mlx5.striding_rq_attrs;
  if (lacks("striding") || mlx5.comp_mask != MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ ||
      shape.two_byte_shift_en != 0 || attr.wq_type != IBV_WQT_RQ || attr.comp_mask != 0)
    return refuse(EOPNOTSUPP);
  if (lacks("rights")) return refuse(EPERM);
  ibv_device_attr limits;
  ibv_query_device(context, &limits);
  const uint32_t least_strides =
      lacks("shortruns") ? StridingRing::kMinStridesOfOld : StridingRing::kMinStrides;
  const auto is_in = [](uint32_t v, uint32_t least, uint32_t most) {
    return v >= least && v <= most;
  };
  if (attr.pd == nullptr || attr.cq == nullptr ||
      !is_in(attr.max_wr, 1, static_cast<uint32_t>(limits.max_qp_wr)) ||
      attr.max_sge > static_cast<uint32_t>(limits.max_sge) ||
      !is_in(shape.single_stride_log_num_of_bytes, StridingRing::kMinBytes,
             StridingRing::kMaxBytes) ||
      !is_in(shape.single_wqe_log_num_of_strides, least_strides, StridingRing::kMaxStrides))
    return refuse(EINVAL);
  Context& c = of(context);
  const std::lock_guard hold(c.nic->port.lock);
  if (c.nic->port.faults.removed) return refuse(EIO);
  if (static_cast<Cq*>(attr.cq)->compresses) return refuse(EOPNOTSUPP);  // arrays name no stride
  Wq& wq = *c.wqs.emplace_back(
      std::make_unique<Wq>(std::bit_ceil(attr.max_wr), std::max(1U, attr.max_sge), shape));
  wq.context = context;
  wq.wq_context = attr.wq_context;
  wq.pd = attr.pd;
  wq.cq = attr.cq;
  wq.wq_num = wq.handle = ++c.nic->last_qp;
  wq.state = IBV_WQS_RESET;
  wq.wq_type = IBV_WQT_RQ;
  wq.post_recv = post_recv;
  ++static_cast<Pd*>(wq.pd)->users;
  ++wq.received().users;
  c.nic->port.attach(wq);
  return &wq;
}

ibv_qp* create_hash_pair(ibv_context* context, const ibv_qp_init_attr_ex& attr) {
  constexpr uint32_t kAsked =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
  const ibv_qp_cap& cap = attr.cap;
  if (attr.comp_mask != kAsked || attr.qp_type != IBV_QPT_RAW_PACKET || lacks("pairs"))
    return refuse(EOPNOTSUPP);
  if (lacks("rights")) return refuse(EPERM);
  if (attr.pd == nullptr || attr.rwq_ind_tbl == nullptr || attr.recv_cq != nullptr ||
      attr.srq != nullptr || cap.max_send_wr != 0 || cap.max_recv_wr != 0 ||
      attr.rx_hash_conf.rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ ||
      attr.rx_hash_conf.rx_hash_key_len != kHashKeyBytes ||
      attr.rx_hash_conf.rx_hash_key == nullptr)
    return refuse(EINVAL);
  Context& c = of(context);
  const std::lock_guard hold(c.nic->port.lock);
  if (c.nic->port.faults.removed) return refuse(EIO);
  if (const int error = c.nic->plug(); error != 0) return refuse(error);
  Qp& qp = *c.qps.emplace_back(std::make_unique<Qp>(ibv_qp_init_attr{}, uint16_t{0}));
  qp.context = context;
  qp.qp_context = attr.qp_context;
  qp.pd = attr.pd;
  qp.qp_num = qp.handle = ++c.nic->last_qp;
  qp.state = IBV_QPS_RESET;  // for good: it has no rings
  qp.qp_type = attr.qp_type;
  qp.table = static_cast<Table*>(attr.rwq_ind_tbl);
  ++static_cast<Pd*>(qp.pd)->users;
  ++qp.table->users;
  c.nic->port.attach(qp);
  return &qp;
}

void fill_work_queue_operations(Context& c) {
  c.modify_wq = modify_wq;
  c.destroy_wq = destroy_wq;
  c.create_rwq_ind_table = create_table;
  c.destroy_rwq_ind_table = destroy_table;
}

}  // namespace vireo::softnic
