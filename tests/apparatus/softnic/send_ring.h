// The send queue of a pair as the hardware has it: a ring of 64-byte basic blocks in the program's
// memory, its doorbell record and its doorbell register with two BlueFlame buffers.
//
// The device fetches one work-queue element at a time, when the doorbell has rung and its record
// covers it, and makes the request of it that any other send is. Strict where hardware would send
// rubbish: an index that is not the producer's, a size that reaches beyond the record or that the
// segments do not add up to, a doorbell of something else.
// Owner: Qp. Thread: holder of the port's lock; the memory is the program's at the same time.
// Source: mlx5dv.h (mlx5_wqe_ctrl_seg, mlx5_wqe_eth_seg, mlx5_wqe_data_seg), mlx5dv_wr_post(3).
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstdint>

#include "tests/apparatus/softnic/register.h"
#include "tests/apparatus/softnic/shared_pages.h"

namespace vireo::softnic {

struct Qp;

class SendRing {
 public:
  static constexpr uint32_t kMaxSegments = 64;  ///< of an element: its size has six bits
  static constexpr uint32_t kMaxBytes = 1024;
  static constexpr uint32_t kBlueFlame = 256;  ///< bytes of one buffer
  static constexpr uint16_t kMinInline = 18;   ///< Ethernet and a tag: what ConnectX-4 asks for

  /// `record` is the pair's second doorbell record.
  SendRing(uint32_t blocks, __be32& record);
  void describe(mlx5dv_qp& out) const;
  /// As DoorbellPage::watch(). Then there is no BlueFlame: each store of a block would be a fault.
  void watch(void (*call)(void*), void* of) { has_blue_flame_ = !uar_.watch(call, of); }
  bool is_watched() const { return uar_.is_watched(); }
  /// Takes note of the doorbell. `exact`: the program stands still meanwhile, so that what it wrote
  /// can be compared to the bit. @return true: it has rung.
  bool look(const Qp& qp, bool exact);
  /// Decodes the next element into the one slot of qp.sends. @return false: nothing is there.
  bool fetch(Qp& qp);
  /// The element at `index` and all before it are known to the program to be done.
  void told(uint16_t index, uint32_t blocks);
  void clear();

 private:
  bool check_doorbell(const Qp& qp, uint64_t word, const std::byte* reg, bool exact) const;
  const std::byte* block(uint64_t at) const {
    return pages_.data() + (at & (blocks_ - 1)) * MLX5_SEND_WQE_BB;
  }
  /// Copies out of the ring, around its end.
  void copy(std::byte* to, uint64_t from_byte, size_t bytes) const;
  bool decode(Qp& qp, unsigned octowords);
  bool decode_data(Qp& qp, uint64_t at, uint64_t end);

  SharedPages pages_;
  DoorbellPage uar_;
  Register buffers_[2];
  __be32& record_;
  uint32_t blocks_;
  bool has_blue_flame_ = true;
  // Blocks; they only grow, the program sees 16 bits of them.
  uint64_t produced_ = 0;  ///< by the doorbell record, when last rung
  uint64_t taken_ = 0;
  uint64_t told_ = 0;  ///< free for reuse
};

}  // namespace vireo::softnic
