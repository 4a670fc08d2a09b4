// LRO: the device merges consecutive segments of a connection into one packet with the headers of
// the first. Here: the capabilities that it needs, the TIR that enables it on the striding queue,
// and the completion of the headers.
//
// A TIR can only be created by firmware commands (DevX), and only rules with the device's own match
// values lead to it (lro_rules.h). LRO is therefore optional: without it each segment is its own
// frame.
// Owner: Mlx5Queue. Thread: setup any, then holder of the engine's lock.
// Source: mlx5dv_devx_obj_create(3); Linux's mlx5_ifc.h (tirc,
// per_protocol_networking_offload_caps) and its mlx5e_lro_update_hdr; FreeBSD's mlx5 for
// timestamps.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/packet.h"
#include "core/result.h"
#include "dev/verbs/context.h"

namespace vireo::mlx5 {

struct LroShape {
  uint32_t most_bytes;  ///< per packet, as the device counts; a multiple of 256
  uint32_t period_us;   ///< after which the device hands over what it has
};
/// For packets of at most `room` bytes. Errors: ENOTSUP (where says what is missing).
Result<LroShape> lro_shape_of(const verbs::Context& context, uint32_t room);

/// Transport interface receive object: delivers matching frames to a queue, TCP with LRO.
class Tir {
 public:
  /// `queue_number` is the work queue's. Errors: those of the firmware.
  static Result<Tir> create(std::shared_ptr<verbs::Context> context, uint32_t queue_number,
                            const LroShape& shape);
  Tir(Tir&& o) noexcept
      : context_(o.context_),
        domain_(std::exchange(o.domain_, nullptr)),
        tir_(std::exchange(o.tir_, nullptr)) {}
  Tir& operator=(Tir&&) = delete;
  ~Tir();
  mlx5dv_devx_obj* get() const { return tir_; }

 private:
  explicit Tir(std::shared_ptr<verbs::Context> context) : context_(std::move(context)) {}
  std::shared_ptr<verbs::Context> context_;
  mlx5dv_devx_obj* domain_ = nullptr;
  mlx5dv_devx_obj* tir_ = nullptr;
};

/// Segments in the packet of this CQE; 0 or 1: not merged.
inline uint32_t lro_segments(const mlx5_cqe64& cqe) { return be32toh(cqe.srqn_uidx) >> 24; }

/// Updates the headers of `first`, the first frame of a merged packet of `bytes`, to describe the
/// whole: its length, and the last acknowledgement, window and TSecr. The TCP checksum stays the
/// first segment's and is not checked: the device reports that all were good.
void complete_headers(std::span<std::byte> first, uint32_t bytes, const mlx5_cqe64& cqe) noexcept;

}  // namespace vireo::mlx5
