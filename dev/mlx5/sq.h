// A send queue, written in place: a ring of 64-byte blocks. A WQE is a control segment, an Ethernet
// segment that ends with the inline bytes of the frame, and pointers to the rest. It fills whole
// blocks and here never wraps around the end of the ring.
//
//   |control 16|Ethernet 14|inline frame bytes ...|pointer 16|pointer 16|...|
//
// Owner: Mlx5Queue. Thread: holder of the engine's lock; the device reads concurrently.
// Source: mlx5dv.h (mlx5_wqe_ctrl_seg, mlx5_wqe_eth_seg, mlx5_wqe_data_seg), mlx5dv_set_ctrl_seg.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/assert.h"
#include "core/packet.h"
#include "dev/mlx5/doorbell.h"

namespace vireo::mlx5 {

class Sq {
 public:
  static constexpr uint32_t kBlock = MLX5_SEND_WQE_BB, kOctoword = 16;
  static constexpr uint32_t kInlineAt = 16 + 14;  ///< from the start of the WQE
  static constexpr uint32_t kMaxBlocks = 16;      ///< the size field has six bits, in octowords
  static constexpr uint32_t kMaxInline = 63 * kOctoword - kInlineAt;
  /// The inline bytes that ConnectX-4 requires in every WQE: Ethernet header and a VLAN tag.
  static constexpr uint32_t kMinInline = 18;

  Sq(const mlx5dv_qp& qp, uint32_t number)
      : blocks_(static_cast<std::byte*>(qp.sq.buf)),
        mask_(qp.sq.wqe_cnt - 1),
        number_(number << 8),
        record_(&qp.dbrec[MLX5_SND_DBR]),
        register_(static_cast<std::byte*>(qp.bf.reg)),
        buffer_bytes_(qp.bf.size),
        buffer_blocks_(qp.bf.size / kBlock) {}

  /// WQEs of any size that fit, padding at the end of the ring included, while all blocks from
  /// `freed` on are in use.
  uint32_t room(uint32_t freed) const {
    const uint32_t free = mask_ + 1 - (produced_ - freed);
    return free < kMaxBlocks ? 0 : free / kMaxBlocks - 1;
  }
  uint32_t produced() const { return produced_; }
  /// The QP was reset: the device counts from 0 again.
  void begin_anew() { produced_ = 0; }

  /// The place of the next WQE, which has `octowords` in all.
  std::byte* claim(uint32_t octowords) {
    if ((produced_ & mask_) + blocks_of(octowords) > mask_ + 1) [[unlikely]]
      pad();
    return blocks_ + size_t{produced_ & mask_} * kBlock;
  }
  /// Copies the inline bytes of the frame into the WQE.
  [[gnu::always_inline]] static void copy_inline(std::byte* wqe, std::span<const std::byte> head,
                                                 std::span<const PacketSlice> body) {
    std::byte* to = wqe + kInlineAt;
    std::memcpy(to, head.data(), head.size());
    to += head.size();
    for (const PacketSlice& s : body) {
      std::memcpy(to, s.packet->frame + s.at, s.length);
      to += s.length;
    }
  }
  [[gnu::always_inline]] static void write_pointer(std::byte* wqe, uint32_t octoword,
                                                   const PacketSlice& s, uint32_t lkey) {
    mlx5dv_set_data_seg(reinterpret_cast<mlx5_wqe_data_seg*>(wqe + size_t{octoword} * kOctoword),
                        s.length, lkey, reinterpret_cast<uintptr_t>(s.packet->frame + s.at));
  }
  /// Completes the WQE at `wqe`: all but its inline bytes and pointers.
  void finish(std::byte* wqe, uint8_t opcode, uint32_t octowords, uint8_t checksums, uint16_t mss,
              uint32_t inline_bytes) {
    write_control(wqe, opcode, octowords);
    mlx5_wqe_eth_seg eth;
    eth.rsvd0 = 0;
    eth.cs_flags = checksums;
    eth.rsvd1 = 0;
    eth.mss = htobe16(mss);
    eth.rsvd2 = 0;
    eth.inline_hdr_sz = htobe16(static_cast<uint16_t>(inline_bytes));
    std::memcpy(wqe + sizeof(mlx5_wqe_ctrl_seg), &eth,
                offsetof(mlx5_wqe_eth_seg, inline_hdr_start));
    last_ = wqe;
    last_blocks_ = blocks_of(octowords);
    produced_ += last_blocks_;
  }
  /// Requests a completion for the last finished WQE.
  void signal_last() {
    reinterpret_cast<mlx5_wqe_ctrl_seg*>(last_)->fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
  }
  /// Rings the doorbell. `alone`: the last WQE is the only one since the last doorbell and is
  /// wholly in the ring.
  void ring(bool alone) {
    publish_to_device();
    __atomic_store_n(record_, htobe32(produced_ & 0xffff), __ATOMIC_RELEASE);
    if (alone && last_blocks_ <= buffer_blocks_) {
      write_blocks(register_ + buffer_, last_, last_blocks_);
    } else {
      uint64_t first;
      std::memcpy(&first, last_, sizeof first);
      write_register(register_ + buffer_, first);
    }
    buffer_ ^= buffer_bytes_;  // alternates, as this one may still be in transit
  }
  static constexpr uint32_t blocks_of(uint32_t octowords) { return (octowords + 3) / 4; }

 private:
  void write_control(std::byte* wqe, uint8_t opcode, uint32_t octowords) {
    const uint64_t first =
        htobe64(uint64_t{(produced_ & 0xffff) << 8 | opcode} << 32 | (number_ | octowords));
    const uint64_t rest = 0;
    std::memcpy(wqe, &first, sizeof first);
    std::memcpy(wqe + sizeof first, &rest, sizeof rest);
  }
  /// Fills the ring up to its end with NOPs.
  [[gnu::noinline]] void pad() {
    for (; (produced_ & mask_) != 0; ++produced_)
      write_control(blocks_ + size_t{produced_ & mask_} * kBlock, MLX5_OPCODE_NOP, 1);
  }

  std::byte* blocks_;
  uint32_t mask_;
  uint32_t number_;        ///< of the QP, shifted to its place in the control segment
  uint32_t produced_ = 0;  ///< blocks
  uint32_t last_blocks_ = 0;
  std::byte* last_ = nullptr;
  __be32* record_;
  std::byte* register_;
  uint32_t buffer_bytes_, buffer_blocks_;
  uint32_t buffer_ = 0;
};

}  // namespace vireo::mlx5
