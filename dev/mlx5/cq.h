// A completion queue read in place.
//
// An entry is ours when its owner bit equals the parity of the round we are in. The queue starts
// with every bit against us (set here: the driver leaves them with us and tells by an opcode), so
// the one bit decides.
// Owner: Mlx5Queue. Thread: holder of the engine's lock; the device writes at the same time.
// Source: mlx5dv.h (mlx5_cqe64, mlx5_err_cqe).
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>

#include "dev/device.h"
#include "dev/mlx5/barrier.h"
#include "dev/mlx5/doorbell.h"

namespace vireo::mlx5 {

/// One of eight in an array that takes the place of an entry: a compressed completion.
struct MiniCqe {
  __be32 rx_hash_result;
  __be32 byte_cnt;
};
static_assert(sizeof(MiniCqe[8]) == sizeof(mlx5_cqe64));

// ---- what the good completion of a receive tells

/// Found good by the device; the bits lie as ours do.
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
  return FlowTag(be32toh(cqe.sop_drop_qpn) & 0xffffff);  // above it: the opcode, for sends
}

class Cq {
 public:
  static constexpr uint8_t kReceived = MLX5_CQE_RESP_SEND << 4;
  static constexpr uint8_t kSent = MLX5_CQE_REQ << 4;
  static constexpr uint8_t kCompressed = 3;  ///< format: both bits, which else tell of inline data

  explicit Cq(const mlx5dv_cq& cq)
      // Of 128 bytes, the second half is the entry.
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

  /// `index` counts as consumed() does.
  mlx5_cqe64* at(uint32_t index) const {
    return reinterpret_cast<mlx5_cqe64*>(entries_ + size_t{index & (count_ - 1)} * stride_);
  }
  mlx5_cqe64* front() const { return reinterpret_cast<mlx5_cqe64*>(next_); }
  /// The last byte of the front entry as it is once written, for opcode and format `what`.
  uint8_t expected(uint8_t what) const { return what | turn_; }
  /// What follows reads of the entry only what was written before its last byte.
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
  /// The `n` entries of a compressed session are done: the device left most of them as they were
  /// a round ago, or wrote lengths where the owner bit is.
  void pop_session(uint32_t n) {
    for (; n > 0; --n, pop()) front()->op_own = turn_;
  }
  /// Takes all that is there, unread.
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
    publish_to_device();  // we have read what the device may write over now
    __atomic_store_n(&record_[0], htobe32(consumed_ & kIndexMask), __ATOMIC_RELEASE);
  }
  /// Asks for an event at the next completion, at once if there is one behind consumed().
  void arm() {
    const uint32_t request = (events_ & 3) << 28 | MLX5_CQ_DB_REQ_NOT | (consumed_ & kIndexMask);
    publish_to_device();
    __atomic_store_n(&record_[1], htobe32(request), __ATOMIC_RELEASE);
    write_register(register_, htobe64(uint64_t{request} << 32 | number_));
  }
  /// An event was got; the device counts them too, and ignores a request that is a count behind.
  void count_event() { ++events_; }

 private:
  static constexpr uint32_t kIndexMask = 0xffffff;

  std::byte *entries_, *end_, *next_;
  uint32_t stride_;
  uint32_t count_;  ///< a power of two
  uint32_t consumed_ = 0;
  uint8_t turn_ = 0;  ///< the owner bit of entries that are ours
  __be32* record_;
  std::byte* register_;
  uint32_t number_;
  uint32_t events_ = 0;
};

}  // namespace vireo::mlx5
