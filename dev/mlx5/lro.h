// LRO: the device joins segments that follow each other in one connection to one packet, whose
// headers are those of the first. Here: what the device must be for it, the object by which it does
// so (a TIR that leads to the striding queue), and how the headers are to be read.
//
// A TIR is made by commands to the firmware only (DevX), and only rules with the device's own match
// values lead there (lro_rules.h). So all of it is extra: without it frames come one by one.
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
  uint32_t most_bytes;  ///< of a packet, as the device counts; a multiple of 256
  uint32_t period_us;   ///< after which it hands over what it has
};
/// For packets of at most `room` bytes. Errors: ENOTSUP (where says what is missing).
Result<LroShape> lro_shape_of(const verbs::Context& context, uint32_t room);

/// Sends the frames of rules to a queue, those of connections by LRO.
class Tir {
 public:
  /// `queue_number`: of the work queue. Errors: those of the firmware.
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

/// Segments in the packet of a completion; 0 or 1: it is as it came.
inline uint32_t lro_segments(const mlx5_cqe64& cqe) { return be32toh(cqe.srqn_uidx) >> 24; }

/// Makes the headers of `first`, the first frame of a packet of `bytes`, those of the whole: its
/// length, the last acknowledgement, window and echo. TCP's sum stays the first segment's: it is
/// not looked at, for the device says that all were right.
void complete_headers(std::span<std::byte> first, uint32_t bytes, const mlx5_cqe64& cqe) noexcept;

}  // namespace vireo::mlx5
