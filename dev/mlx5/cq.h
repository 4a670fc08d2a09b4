// A completion queue, read in place.
//
// A CQE is ours when its owner bit equals the parity of the current pass over the ring. The
// constructor sets every owner bit to "not ours" (the driver leaves them "ours" and marks unused
// CQEs by an opcode), so the owner bit alone decides.
// Owner: Mlx5Queue. Thread: holder of the engine's lock; the device writes concurrently.
// Source: mlx5dv.h (mlx5_cqe64, mlx5_err_cqe).
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>

#include "dev/device.h"
#include "dev/mlx5/barrier.h"
#include "dev/mlx5/doorbell.h"

namespace vireo::mlx5 {

/// A compressed CQE: one of the eight in an array that occupies one CQE.
struct MiniCqe {
  __be32 rx_hash_result;
  __be32 byte_cnt;
};
static_assert(sizeof(MiniCqe[8]) == sizeof(mlx5_cqe64));

// ---- decoding of a successful receive CQE

/// The checksums that the device found good; its bits have the order of ours.
constexpr RxFlags flags_of(uint8_t checksums) {
  static_assert(MLX5_CQE_L3_OK >> 1 == static_cast<int>(RxFlags::kIpOk) &&
                MLX5_CQE_L4_OK >> 1 == static_cast<int>(RxFlags::kL4Ok));
  return static_cast<RxFlags>((checksums & (MLX5_CQE_L3_OK | MLX5_CQE_L4_OK)) >> 1);
}
inline RxFlags with_tag(RxFlags flags, FlowTag tag) {
  return flags |
         static_cast<RxFlags>((tag.value() != 0 ? 1 : 0) * static_cast<uint16_t>(RxFlags::kHasTag));
}
inline FlowTag tag_of(const mlx5_cqe64& cqe) {
  return FlowTag(be32toh(cqe.sop_drop_qpn) & 0xffffff);  // bits above: the opcode, for sends
}

class Cq {
 public:
  static constexpr uint8_t kReceived = MLX5_CQE_RESP_SEND << 4;
  static constexpr uint8_t kSent = MLX5_CQE_REQ << 4;
  static constexpr uint8_t kCompressed = 3;  ///< format: both bits; else they describe inline data

  explicit Cq(const mlx5dv_cq& cq)
      // In CQEs of 128 bytes, the second half is the CQE.
      : entries_(static_cast<std::byte*>(cq.buf) + cq.cqe_size - sizeof(mlx5_cqe64)),
        end_(entries_ + size_t{cq.cqe_cnt} * cq.cqe_size),
        next_(entries_),
        stride_(cq.cqe_size),
        count_(cq.cqe_cnt),
        record_(cq.dbrec),
        register_(static_cast<std::byte*>(cq.cq_uar) + MLX5_CQ_DOORBELL),
        number_(cq.cqn) {
    for (uint32_t i = 0; i < count_; ++i) at(i)->op_own = MLX5_CQE_INVALID << 4 | 1;
  }

  /// `index` is on the scale of consumed().
  mlx5_cqe64* at(uint32_t index) const {
    return reinterpret_cast<mlx5_cqe64*>(entries_ + size_t{index & (count_ - 1)} * stride_);
  }
  mlx5_cqe64* front() const { return reinterpret_cast<mlx5_cqe64*>(next_); }
  /// The op_own byte that the front CQE has once it is written with opcode and format `what`.
  uint8_t expected(uint8_t what) const { return what | turn_; }
  /// Orders later reads of the CQE after the read of its last byte.
  static uint8_t look(const mlx5_cqe64* e) {
    const uint8_t op_own = __atomic_load_n(&e->op_own, __ATOMIC_ACQUIRE);
    acquire_from_device();
    return op_own;
  }
  bool is_ours(uint8_t op_own) const { return (op_own & MLX5_CQE_OWNER_MASK) == turn_; }
  bool has_front() const { return is_ours(look(front())); }
  void pop() {
    ++consumed_;
    next_ += stride_;
    if (next_ != end_) [[likely]]
      return;
    next_ = entries_;
    turn_ ^= 1;
  }
  /// Pops the `n` CQEs of a compressed session. Sets their owner bits: the device left most as they
  /// were one pass ago, or wrote lengths over them.
  void pop_session(uint32_t n) {
    for (; n > 0; --n, pop()) front()->op_own = turn_;
  }
  /// Pops all CQEs, unread.
  void skip_all() {
    while (has_front()) {
      const mlx5_cqe64& e = *front();
      const bool is_session =
          (e.op_own & 0xfc) == (kReceived | kCompressed << 2) && be32toh(e.byte_cnt) != 0;
      is_session ? pop_session(be32toh(e.byte_cnt)) : pop();
    }
    release();
  }
  uint32_t consumed() const { return consumed_; }
  /// Tells the device how far it may write.
  void release() {
    publish_to_device();  // our reads come before the device overwrites the CQEs
    __atomic_store_n(&record_[0], htobe32(consumed_ & kIndexMask), __ATOMIC_RELEASE);
  }
  /// Requests an event at the next completion, or at once if there is one beyond consumed().
  void arm() {
    const uint32_t request = (events_ & 3) << 28 | MLX5_CQ_DB_REQ_NOT | (consumed_ & kIndexMask);
    publish_to_device();
    __atomic_store_n(&record_[1], htobe32(request), __ATOMIC_RELEASE);
    write_register(register_, htobe64(uint64_t{request} << 32 | number_));
  }
  /// Counts an event received. The device counts too, and ignores a request with an old count.
  void count_event() { ++events_; }

 private:
  static constexpr uint32_t kIndexMask = 0xffffff;

  std::byte *entries_, *end_, *next_;
  uint32_t stride_;
  uint32_t count_;  ///< a power of two
  uint32_t consumed_ = 0;
  uint8_t turn_ = 0;  ///< the owner bit of CQEs that are ours
  __be32* record_;
  std::byte* register_;
  uint32_t number_;
  uint32_t events_ = 0;
};

}  // namespace vireo::mlx5
