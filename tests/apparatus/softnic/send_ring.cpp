#include "tests/apparatus/softnic/send_ring.h"

#include <algorithm>

#include "tests/apparatus/softnic/queue_pair.h"
#include "tests/apparatus/softnic/segmentation.h"
#include "tests/apparatus/softnic/strict.h"

namespace vireo::softnic {
namespace {

constexpr size_t kOctoword = 16;
constexpr size_t kRegisterAt = 0x800;  // of the page, as the driver's first BlueFlame register
constexpr size_t kInlineAt = offsetof(mlx5_wqe_eth_seg, inline_hdr_start);

uint32_t blocks_of(unsigned octowords) { return (octowords + 3) / 4; }

}  // namespace

SendRing::SendRing(uint32_t blocks, __be32& record)
    : pages_(size_t{blocks} * MLX5_SEND_WQE_BB, 0),
      buffers_{Register(uar_.device_side() + kRegisterAt),
               Register(uar_.device_side() + kRegisterAt + kBlueFlame)},
      record_(record),
      blocks_(blocks) {}

void SendRing::describe(mlx5dv_qp& out) const {
  out.sq = {pages_.data(), blocks_, MLX5_SEND_WQE_BB};
  out.bf = {uar_.data() + kRegisterAt, has_blue_flame_ ? kBlueFlame : 0};
}

void SendRing::clear() {
  produced_ = taken_ = told_ = 0;
  store(record_, 0);
  for (Register& r : buffers_) r.clear();
}

void SendRing::told(uint16_t index, uint32_t blocks) {
  told_ += static_cast<uint16_t>(index + blocks - static_cast<uint16_t>(told_));
}

void SendRing::copy(std::byte* to, uint64_t from_byte, size_t bytes) const {
  const size_t size = size_t{blocks_} * MLX5_SEND_WQE_BB;
  const size_t at = from_byte % size, first = std::min(bytes, size - at);
  std::memcpy(to, pages_.data() + at, first);
  std::memcpy(to + first, pages_.data(), bytes - first);
}

bool SendRing::look(const Qp& qp, bool exact) {
  bool rung = false;
  for (Register& r : buffers_) {
    uint64_t word;
    if (!r.take(word)) continue;
    rung = true;
    // The record is written before the register, so it covers at least what rang.
    produced_ += static_cast<uint16_t>(load(record_) - static_cast<uint16_t>(produced_));
    if (produced_ - told_ > blocks_)
      broken_rule(
          "send queue %u of %u blocks overflows: %lu are not known to be done; a block is free "
          "again only once a completion at or behind it was written",
          qp.qp_num, blocks_, static_cast<unsigned long>(produced_ - told_));
    check_doorbell(qp, word, r.data(), exact);
  }
  return rung;
}

bool SendRing::check_doorbell(const Qp& qp, uint64_t word, const std::byte* reg, bool exact) const {
  const auto index = static_cast<uint16_t>(word >> 40);
  const auto number = static_cast<uint32_t>(word) >> 8;
  const auto size = static_cast<unsigned>(word & 0x3f);
  if (number != qp.qp_num) {
    broken_rule("doorbell of pair %u is rung with an element of pair %u", qp.qp_num, number);
    return false;
  }
  const auto behind = static_cast<uint16_t>(static_cast<uint16_t>(produced_) - index);
  if (behind < blocks_of(size) || behind > blocks_ || (exact && behind != blocks_of(size))) {
    broken_rule(
        "doorbell of pair %u: the element at %u, %u blocks, is not the last that the doorbell "
        "record (%u) covers: write the element, then the record, then ring",
        qp.qp_num, index, blocks_of(size), static_cast<uint16_t>(produced_));
    return false;
  }
  if (!exact) return true;
  const std::byte* wqe = block(produced_ - behind);
  uint64_t first;
  std::memcpy(&first, wqe, sizeof first);
  if (be64toh(first) != word) {
    broken_rule("doorbell of pair %u: %016lx was rung, the element at %u begins with %016lx",
                qp.qp_num, static_cast<unsigned long>(word), index,
                static_cast<unsigned long>(be64toh(first)));
    return false;
  }
  // BlueFlame: whole blocks were written, and the same as lie in the ring.
  constexpr std::byte kUntouched{DoorbellPage::kFill};
  auto* rest = const_cast<std::byte*>(reg) + sizeof word;
  const auto* end = rest + kBlueFlame - sizeof word;
  if (std::all_of<const std::byte*>(rest, end, [](std::byte b) { return b == kUntouched; }))
    return true;
  const size_t bytes = std::min<size_t>(blocks_of(size) * size_t{MLX5_SEND_WQE_BB}, kBlueFlame);
  std::byte same[kBlueFlame];
  copy(same, (produced_ - behind) * MLX5_SEND_WQE_BB, bytes);
  if (std::memcmp(same + sizeof word, rest, bytes - sizeof word) != 0)
    broken_rule("BlueFlame of pair %u: the register has other bytes than the element at %u",
                qp.qp_num, index);
  std::memset(rest, DoorbellPage::kFill, kBlueFlame - sizeof word);
  return true;
}

bool SendRing::fetch(Qp& qp) {
  if (taken_ == produced_) return false;
  mlx5_wqe_ctrl_seg ctrl;
  std::memcpy(&ctrl, block(taken_), sizeof ctrl);
  const uint32_t what = be32toh(ctrl.opmod_idx_opcode), whose = be32toh(ctrl.qpn_ds);
  const unsigned octowords = whose & 0x3f;
  const uint32_t blocks = blocks_of(octowords);
  SendRequest& r = qp.sends.free_slot();
  r = {};
  r.wr_id = static_cast<uint16_t>(taken_);
  r.opcode = static_cast<uint8_t>(what);
  r.blocks = std::max(1U, blocks);
  if ((ctrl.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) != 0) r.flags |= IBV_SEND_SIGNALED;
  bool good = true;
  if (static_cast<uint16_t>(what >> 8) != static_cast<uint16_t>(taken_) ||
      whose >> 8 != qp.qp_num) {
    broken_rule(
        "send queue: the element at %u bears the index %u and the pair %u, of pair %u: not "
        "written when the doorbell record was",
        static_cast<uint16_t>(taken_), static_cast<uint16_t>(what >> 8), whose >> 8, qp.qp_num);
    good = false;
  } else if (octowords == 0 || blocks > produced_ - taken_) {
    broken_rule("send queue %u: the element at %u has %u octowords, the record covers %lu blocks",
                qp.qp_num, static_cast<uint16_t>(taken_), octowords,
                static_cast<unsigned long>(produced_ - taken_));
    good = false;
  } else {
    good = decode(qp, octowords);
  }
  if (!good) r.refused = IBV_WC_LOC_QP_OP_ERR;
  taken_ += std::min<uint64_t>(r.blocks, produced_ - taken_);
  qp.sends.push();
  return true;
}

bool SendRing::decode(Qp& qp, unsigned octowords) {
  SendRequest& r = qp.sends.free_slot();
  const uint64_t start = taken_ * MLX5_SEND_WQE_BB, end = start + octowords * kOctoword;
  if (r.opcode == MLX5_OPCODE_NOP) return true;
  if (r.opcode != MLX5_OPCODE_SEND && r.opcode != MLX5_OPCODE_TSO) {
    broken_rule("send queue %u: opcode 0x%02x on a raw-packet pair", qp.qp_num, r.opcode);
    return false;
  }
  if (octowords < 2) {
    broken_rule("send queue %u: an element without an Ethernet segment", qp.qp_num);
    return false;
  }
  mlx5_wqe_eth_seg eth;
  copy(reinterpret_cast<std::byte*>(&eth), start + kOctoword, kOctoword);
  constexpr unsigned kBoth = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;
  if ((eth.cs_flags & kBoth) == kBoth) {
    r.flags |= IBV_SEND_IP_CSUM;
  } else if (eth.cs_flags != 0) {
    broken_rule("send queue %u: checksum flags 0x%02x: both or none here", qp.qp_num, eth.cs_flags);
    return false;
  }
  r.inline_bytes = be16toh(eth.inline_hdr_sz);
  const uint64_t header_at = start + kOctoword + kInlineAt;
  if (r.inline_bytes < kMinInline || header_at + r.inline_bytes > end) {
    broken_rule("send queue %u: %u bytes of header inline, at least %u are, in %u octowords",
                qp.qp_num, r.inline_bytes, kMinInline, octowords);
    return false;
  }
  std::byte* bytes = qp.sends.bytes_of(r);
  copy(bytes, header_at, r.inline_bytes);
  r.mss = be16toh(eth.mss);
  if ((r.opcode == MLX5_OPCODE_TSO) != (r.mss > 0) ||
      (r.mss > 0 && !can_segment({bytes, r.inline_bytes}))) {
    broken_rule("send queue %u: opcode 0x%02x with an MSS of %u and %u bytes of header", qp.qp_num,
                r.opcode, r.mss, r.inline_bytes);
    return false;
  }
  const uint64_t data_at = (header_at + r.inline_bytes + kOctoword - 1) / kOctoword * kOctoword;
  return decode_data(qp, data_at, end);
}

/// Pointers and inline data behind the Ethernet segment, up to the size that the element says.
bool SendRing::decode_data(Qp& qp, uint64_t at, uint64_t end) {
  SendRequest& r = qp.sends.free_slot();
  while (at < end) {
    mlx5_wqe_data_seg seg;
    copy(reinterpret_cast<std::byte*>(&seg), at, sizeof seg);
    const uint32_t count = be32toh(seg.byte_count);
    if ((count & MLX5_INLINE_SEG) == 0) {
      if (count == 0) {
        broken_rule("send queue %u: a data segment of no bytes (hardware takes it for 2 GiB)",
                    qp.qp_num);
        return false;
      }
      qp.sends.segments_of(r)[r.segments++] = {be64toh(seg.addr), count, be32toh(seg.lkey)};
      at += sizeof seg;
      continue;
    }
    const uint32_t bytes = count & ~uint32_t{MLX5_INLINE_SEG};
    const uint64_t data = at + sizeof(mlx5_wqe_inl_data_seg);
    if (r.segments > 0 || data + bytes > end || r.mss > 0) {
      broken_rule(
          "send queue %u: %u bytes of inline data behind a pointer, beyond the element, or "
          "to be segmented",
          qp.qp_num, bytes);
      return false;
    }
    copy(qp.sends.bytes_of(r) + r.inline_bytes, data, bytes);
    r.inline_bytes += bytes;
    at = (data + bytes + kOctoword - 1) / kOctoword * kOctoword;
  }
  return true;
}

}  // namespace vireo::softnic
