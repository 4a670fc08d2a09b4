#include "dev/verbs/pair.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/own_fds.h"
#include "dev/verbs/late_libibverbs.h"

namespace vireo::verbs {
namespace {
constexpr uint16_t kMaxHeader = 128;  // Ethernet with a VLAN tag, IPv6, TCP with all options: 118

/// ibv_create_qp_ex() without the inline wrapper of verbs.h, which links against the library.
ibv_qp* create_pair_ex(ibv_context* context, ibv_qp_init_attr_ex& attr) {
  if (attr.comp_mask == IBV_QP_INIT_ATTR_PD)  // the shorter structure is a prefix of it
    return library().create_qp(attr.pd, reinterpret_cast<ibv_qp_init_attr*>(&attr));
  const verbs_context* extended = verbs_get_ctx_op(context, create_qp_ex);
  if (extended != nullptr) return extended->create_qp_ex(context, &attr);
  errno = EOPNOTSUPP;
  return nullptr;
}

}  // namespace

Result<Pair> Pair::create(std::shared_ptr<Context> context, const PairShape& shape) {
  Pair p(std::move(context));
  if (auto ok = p.create_completion_queues(shape); !ok) return std::unexpected(ok.error());
  if (auto ok = p.create_pair(shape); !ok) return std::unexpected(ok.error());
  if (auto ok = p.make_ready(); !ok) return std::unexpected(ok.error());
  return p;
}

Pair::Pair(Pair&& o) noexcept
    : context_(o.context_),
      channel_(std::exchange(o.channel_, nullptr)),
      sent_(std::exchange(o.sent_, nullptr)),
      received_(std::exchange(o.received_, nullptr)),
      told_(o.told_),
      pair_(std::exchange(o.pair_, nullptr)),
      granted_(o.granted_),
      segments_(o.segments_) {}

Pair::~Pair() {
  if (channel_ != nullptr) remove_own_fd(channel_->fd);
  if (!context_->is_ours()) return;
  if (pair_ != nullptr) library().destroy_qp(pair_);
  if (received_ != nullptr) library().destroy_cq(received_);
  if (sent_ != nullptr) library().destroy_cq(sent_);
  if (channel_ != nullptr) library().destroy_comp_channel(channel_);
}

Result<void> Pair::create_completion_queues(const PairShape& shape) {
  channel_ = library().create_comp_channel(context_->get());
  if (channel_ == nullptr) return fail_errno("ibv_create_comp_channel");
  add_own_fd(channel_->fd);
  const long flags = syscall(SYS_fcntl, channel_->fd, F_GETFL, 0);
  syscall(SYS_fcntl, channel_->fd, F_SETFL, flags | O_NONBLOCK);
  received_ = create_received(shape);
  if (received_ == nullptr) return fail_errno("ibv_create_cq");
  // In the error state every WQE completes, also the NOPs at a ring's end (dev/mlx5).
  constexpr uint32_t kMaxFill = 16;
  sent_ = library().create_cq(context_->get(), static_cast<int>(shape.sends + kMaxFill), nullptr,
                              nullptr, 0);
  if (sent_ == nullptr) return fail_errno("ibv_create_cq");
  return {};
}

ibv_cq* Pair::create_received(const PairShape& shape) {
  ibv_context* const context = context_->get();
  if (shape.create_received != nullptr)
    return shape.create_received(context, shape.receives, channel_);
  for (const uint64_t told : shape.told) {
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = shape.receives;
    wanted.channel = channel_;
    wanted.wc_flags = told;
    wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    wanted.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;  // the engine's lock serialises access
    if (ibv_cq_ex* cq = ibv_create_cq_ex(context, &wanted); cq != nullptr) {
      told_ = told;
      return ibv_cq_ex_to_cq(cq);
    }
  }
  return library().create_cq(context, static_cast<int>(shape.receives), nullptr, channel_, 0);
}

Result<void> Pair::create_pair(const PairShape& shape) {
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_RAW_PACKET;
  attr.pd = context_->domain();
  attr.send_cq = sent_;
  attr.recv_cq = received_;
  const auto is_refusal = [] { return errno == EINVAL || errno == ENOMEM; };
  // A device may report TSO but not support it for raw-packet QPs.
  for (const bool segments : {shape.segments, false}) {
    segments_ = segments;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (segments) attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    attr.max_tso_header = segments ? kMaxHeader : 0;
    // A device with less room for inline data refuses instead of granting less.
    for (uint32_t inline_bytes = shape.inline_bytes;; inline_bytes /= 2) {
      attr.cap = {shape.sends, shape.receives, shape.send_segments, shape.receive_segments,
                  inline_bytes};
      if (shape.only_sends) attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
      pair_ = create_pair_ex(context_->get(), attr);
      if (pair_ != nullptr || inline_bytes == 0 || !is_refusal()) break;
    }
    if (pair_ != nullptr || !segments || (!is_refusal() && errno != EOPNOTSUPP)) break;
  }
  granted_ = attr.cap;
  if (pair_ != nullptr) return {};
  if (errno == EPERM) return fail(EPERM, "raw-packet queue pair: CAP_NET_RAW");
  if (errno == EOPNOTSUPP || errno == ENOSYS) return fail(ENOTSUP, "raw-packet queue pair");
  return fail_errno("ibv_create_qp");
}

Result<void> Pair::reset() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  if (const int error = library().modify_qp(pair_, &attr, IBV_QP_STATE); error != 0)
    return fail(error, "ibv_modify_qp");
  return {};
}

Result<void> Pair::make_ready() {
  ibv_qp_attr attr{};
  attr.port_num = context_->port();
  for (const ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    attr.qp_state = to;
    const int mask = to == IBV_QPS_INIT ? IBV_QP_STATE | IBV_QP_PORT : IBV_QP_STATE;
    if (const int error = library().modify_qp(pair_, &attr, mask); error != 0)
      return fail(error, "ibv_modify_qp");
  }
  return {};
}

}  // namespace vireo::verbs
