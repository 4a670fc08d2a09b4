#include "dev/mlx5/striding_wq.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "dev/mlx5/late_libmlx5.h"
#include "dev/verbs/late_libibverbs.h"

namespace vireo::mlx5 {
namespace {

constexpr uint32_t kLogStrides = 6;   // preferred: 64 frames per WQE
constexpr uint32_t kMinElements = 4;  // one may be read while others are filled
constexpr uint32_t kMaxShare = 4;     // of a WQE: a rest too short for a packet is unused
constexpr uint32_t kLinkOverhead = 14 + 2 * 4;

uint32_t log2_of(uint32_t power) { return static_cast<uint32_t>(std::countr_zero(power)); }

}  // namespace

Result<StridingShape> striding_shape_of(const verbs::Context& context, const PacketPool& pool,
                                        uint32_t mtu, const verbs::QueueShape& shape) {
  mlx5dv_context c{};
  c.comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ;
  const mlx5dv_striding_rq_caps& can = c.striding_rq_caps;
  if (library().create_wq == nullptr) return fail(ENOTSUP, "no mlx5dv_create_wq");
  if (library().query_device(context.get(), &c) != 0 ||
      (c.comp_mask & MLX5DV_CONTEXT_MASK_STRIDING_RQ) == 0 ||
      !ibv_is_qpt_supported(can.supported_qpts, IBV_QPT_RAW_PACKET))
    return fail(ENOTSUP, "the device has none");
  StridingShape s{};
  s.log_stride_bytes = log2_of(pool.frame_bytes());
  if (s.log_stride_bytes < can.min_single_stride_log_num_of_bytes ||
      s.log_stride_bytes > can.max_single_stride_log_num_of_bytes)
    return fail(ENOTSUP, "a frame is no stride of the device");
  const uint32_t longest = (mtu + kLinkOverhead + pool.frame_bytes() - 1) / pool.frame_bytes();
  const uint32_t slots = shape.rx_slots * shape.rx_segments;
  const uint32_t most = std::min(can.max_single_wqe_log_num_of_strides,
                                 log2_of(std::bit_floor(std::max(1U, slots / kMinElements))));
  s.log_strides = std::max(std::min(kLogStrides, most), can.min_single_wqe_log_num_of_strides);
  if (s.log_strides > most || longest * kMaxShare > 1U << s.log_strides)
    return fail(ENOTSUP, "too few frames for requests as long as the device asks for");
  s.elements = slots >> s.log_strides;
  s.runs = std::max(s.elements, pool.size() / 2 >> s.log_strides);
  return s;
}

Result<StridingWq> StridingWq::create(std::shared_ptr<verbs::Context> context, ibv_cq* received,
                                      const StridingShape& shape) {
  StridingWq w(std::move(context));
  if (auto ok = w.create_queue(received, shape); !ok) return std::unexpected(ok.error());
  if (auto ok = w.create_pair(); !ok) return std::unexpected(ok.error());
  if (auto ok = w.make_ready(); !ok) return std::unexpected(ok.error());
  return w;
}

StridingWq::StridingWq(StridingWq&& o) noexcept
    : context_(o.context_),
      queue_(std::exchange(o.queue_, nullptr)),
      table_(std::exchange(o.table_, nullptr)),
      pair_(std::exchange(o.pair_, nullptr)),
      ring_(o.ring_) {}

StridingWq::~StridingWq() {
  if (!context_->is_ours()) return;
  if (pair_ != nullptr) verbs::library().destroy_qp(pair_);
  if (table_ != nullptr) ibv_destroy_rwq_ind_table(table_);
  if (queue_ != nullptr) ibv_destroy_wq(queue_);
}

Result<void> StridingWq::create_queue(ibv_cq* received, const StridingShape& shape) {
  ibv_wq_init_attr attr{};
  attr.wq_type = IBV_WQT_RQ;
  attr.max_wr = shape.elements;
  attr.max_sge = 1;
  attr.pd = context_->domain();
  attr.cq = received;
  mlx5dv_wq_init_attr mlx5{};
  mlx5.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ;
  mlx5.striding_rq_attrs = {shape.log_stride_bytes, shape.log_strides, 0};
  queue_ = library().create_wq(context_->get(), &attr, &mlx5);
  if (queue_ == nullptr) return fail_errno("mlx5dv_create_wq");
  mlx5dv_obj obj{};
  obj.rwq = {queue_, &ring_};
  if (library().init_obj(&obj, MLX5DV_OBJ_RWQ) != 0) return fail(ENOTSUP, "mlx5dv_init_obj");
  if (ring_.stride != sizeof(mlx5_wqe_srq_next_seg) + sizeof(mlx5_wqe_data_seg) ||
      ring_.wqe_cnt < shape.elements)
    return fail(ENOTSUP, "layout of the striding queue");
  return {};
}

Result<void> StridingWq::create_pair() {
  ibv_rwq_ind_table_init_attr of_one{0, &queue_, 0};
  table_ = ibv_create_rwq_ind_table(context_->get(), &of_one);
  if (table_ == nullptr) return fail_errno("ibv_create_rwq_ind_table");
  uint8_t key[40] = {};  // the device requires a key of this length
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_RAW_PACKET;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
  attr.pd = context_->domain();
  attr.rwq_ind_tbl = table_;
  attr.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, sizeof key, key, 0};
  const verbs_context* extended = verbs_get_ctx_op(context_->get(), create_qp_ex);
  if (extended == nullptr) return fail(ENOTSUP, "ibv_create_qp_ex");
  pair_ = extended->create_qp_ex(context_->get(), &attr);
  if (pair_ == nullptr) return fail_errno("ibv_create_qp_ex");
  return {};
}

Result<void> StridingWq::go(ibv_wq_state to) {
  ibv_wq_attr attr{};
  attr.attr_mask = IBV_WQ_ATTR_STATE;
  attr.wq_state = to;
  if (const int error = ibv_modify_wq(queue_, &attr); error != 0)
    return fail(error, "ibv_modify_wq");
  return {};
}

}  // namespace vireo::mlx5
