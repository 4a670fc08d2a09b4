// A raw-packet QP with its completion queues and completion channel, ready to send.
// Owner: the queue. Thread: setup any, then holder of the engine's lock.
// Source: ibv_create_qp(3), ibv_modify_qp(3).
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <span>

#include "dev/verbs/context.h"

namespace vireo::verbs {

struct PairShape {
  uint32_t sends, send_segments, inline_bytes;
  uint32_t receives, receive_segments;  ///< receives: also the size of the receive CQ
  bool segments;                        ///< request IBV_WR_TSO
  /// If set, creates the CQ of receives.
  ibv_cq* (*create_received)(ibv_context*, uint32_t entries, ibv_comp_channel*) = nullptr;
  /// Else the fields wanted in its completions (IBV_WC_EX_WITH_*): the first set that the device
  /// grants. If it grants none, a plain CQ is used.
  std::span<const uint64_t> told = {};
  bool only_sends = false;  ///< received() serves a separate receive queue
};

class Pair {
 public:
  /// granted() and segments() tell what the device granted: not less than requested, except inline
  /// bytes and IBV_WR_TSO.
  /// Errors: EPERM CAP_NET_RAW is missing; ENOTSUP no raw-packet QPs; ENOMEM, EBUSY.
  static Result<Pair> create(std::shared_ptr<Context> context, const PairShape& shape);
  Pair(Pair&& o) noexcept;
  Pair& operator=(Pair&&) = delete;
  ~Pair();

  ibv_qp* get() const { return pair_; }
  ibv_cq* sent() const { return sent_; }
  ibv_cq* received() const { return received_; }
  /// The granted set of PairShape::told; 0: received() is plain, else it is an ibv_cq_ex.
  uint64_t told() const { return told_; }
  ibv_comp_channel* channel() const { return channel_; }  ///< of received()
  const ibv_qp_cap& granted() const { return granted_; }
  bool is_ours() const { return context_->is_ours(); }
  /// IBV_WR_TSO was granted.
  bool segments() const { return segments_; }
  /// Forgets all posted requests; the device no longer accesses their memory. Rules stay.
  /// Errors: EIO the device is gone.
  Result<void> reset();
  /// Moves from RESET to RTS. Errors: as reset().
  Result<void> make_ready();

 private:
  explicit Pair(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  Result<void> create_completion_queues(const PairShape& shape);
  ibv_cq* create_received(const PairShape& shape);
  Result<void> create_pair(const PairShape& shape);

  std::shared_ptr<Context> context_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* sent_ = nullptr;
  ibv_cq* received_ = nullptr;
  uint64_t told_ = 0;
  ibv_qp* pair_ = nullptr;
  ibv_qp_cap granted_{};
  bool segments_ = false;
};

}  // namespace vireo::verbs
