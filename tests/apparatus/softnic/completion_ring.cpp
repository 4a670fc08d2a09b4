#include "tests/apparatus/softnic/completion_ring.h"

#include <algorithm>
#include <cstring>

#include "tests/apparatus/softnic/clock.h"
#include "tests/apparatus/softnic/completion.h"
#include "tests/apparatus/softnic/strict.h"

namespace vireo::softnic {
namespace {

constexpr uint32_t kIndexMask = 0xffffff;
constexpr uint8_t kCompressed = 3;  // of the two format bits
constexpr size_t kMaxTogether = 64;

uint8_t syndrome(ibv_wc_status s) {
  switch (s) {
    case IBV_WC_LOC_LEN_ERR:
      return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
    case IBV_WC_LOC_QP_OP_ERR:
      return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    case IBV_WC_LOC_PROT_ERR:
      return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
    case IBV_WC_WR_FLUSH_ERR:
      return MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
    case IBV_WC_LOC_ACCESS_ERR:
      return MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR;
    default:
      return MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR;
  }
}

mlx5_cqe64 error_of(const Cqe& e, bool is_receive) {
  mlx5_cqe64 c{};
  auto& err = reinterpret_cast<mlx5_err_cqe&>(c);
  err.syndrome = syndrome(e.wc.status);
  err.s_wqe_opcode_qpn = htobe32(uint32_t{e.seen.wqe_opcode} << 24 | e.wc.qp_num);
  err.op_own = static_cast<uint8_t>((is_receive ? MLX5_CQE_RESP_ERR : MLX5_CQE_REQ_ERR) << 4);
  return c;
}

/// Bytes that mlx5dv.h has no names for; Linux: lro_tcppsh_abort_dupack, lro_min_ttl, lro_tcp_win,
/// lro_ack_seq_num. The timestamps of several segments take the place of the device's time.
void tell_lro(const Lro& lro, mlx5_cqe64& c) {
  constexpr uint8_t kPush = 1 << 6, kStamps = 1 << 7;
  c.srqn_uidx = htobe32(uint32_t{lro.segments} << 24);
  if (lro.segments == 1) return;
  c.rsvd4[0] = static_cast<uint8_t>((lro.push ? kPush : 0) | (lro.has_stamps ? kStamps : 0));
  c.rsvd4[1] = lro.least_ttl;
  std::memcpy(&c.rsvd4[2], &lro.window, sizeof lro.window);
  std::memcpy(&c.rsvd4[4], &lro.ack, sizeof lro.ack);
  if (lro.has_stamps) std::memcpy(&c.timestamp, lro.stamps, sizeof c.timestamp);
}

mlx5_cqe64 received(const Cqe& e) {
  mlx5_cqe64 c{};
  c.hds_ip_ext = e.seen.checksums;
  c.l4_hdr_type_etc = e.seen.types;
  c.vlan_info = htobe16(e.seen.vlan_tag);
  c.byte_cnt = htobe32(e.wc.byte_len);
  c.sop_drop_qpn = htobe32(e.seen.flow_tag);
  c.wqe_id = htobe16(e.seen.wqe_id);
  c.timestamp = htobe64(ticks_now());
  c.op_own = MLX5_CQE_RESP_SEND << 4;
  if (e.seen.lro.segments > 0) tell_lro(e.seen.lro, c);
  return c;
}

/// True if `b` can follow in the compressed form of `a`.
bool alike(const mlx5_cqe64& a, const mlx5_cqe64& b) {
  return a.op_own == b.op_own && a.op_own >> 4 == MLX5_CQE_RESP_SEND &&
         a.hds_ip_ext == b.hds_ip_ext && a.l4_hdr_type_etc == b.l4_hdr_type_etc &&
         a.vlan_info == b.vlan_info && a.sop_drop_qpn == b.sop_drop_qpn;
}

}  // namespace

CompletionRing::CompletionRing(uint32_t entries, uint32_t number, bool compresses)
    : pages_(size_t{entries} * sizeof(mlx5_cqe64), 0),
      records_(2 * sizeof(__be32), 0),
      armer_(uar_.device_side() + MLX5_CQ_DOORBELL),
      entries_(entries),
      number_(number),
      compresses_(compresses) {
  for (uint32_t i = 0; i < entries; ++i) entry(i)->op_own = MLX5_CQE_INVALID << 4;
}

void CompletionRing::describe(mlx5dv_cq& out) const {
  out.buf = pages_.data();
  out.dbrec = reinterpret_cast<__be32*>(records_.data());
  out.cqe_cnt = entries_;
  out.cqe_size = sizeof(mlx5_cqe64);
  out.cq_uar = uar_.data();
  out.cqn = number_;
}

bool CompletionRing::is_full() const {
  const uint32_t consumed = load(*reinterpret_cast<const __be32*>(records_.data()));
  return ((produced_ + held_.size() - consumed) & kIndexMask) >= entries_;
}

bool CompletionRing::write(const Cqe& e) {
  if (is_full()) {
    broken_rule(
        "completion queue of %u entries overflows: its consumer index is %u, %lu were "
        "written",
        entries_, load(*reinterpret_cast<const __be32*>(records_.data())),
        static_cast<unsigned long>(produced_));
    return false;
  }
  const bool is_receive = e.wc.opcode == IBV_WC_RECV;
  mlx5_cqe64 c;
  if (e.wc.status != IBV_WC_SUCCESS) {
    c = error_of(e, is_receive);
  } else if (is_receive) {
    c = received(e);
  } else {
    c = {};
    c.sop_drop_qpn = htobe32(uint32_t{e.seen.wqe_opcode} << 24 | e.wc.qp_num);
    c.op_own = MLX5_CQE_REQ << 4;
  }
  c.wqe_counter = htobe16(static_cast<uint16_t>(e.wc.wr_id));
  if (!compresses_) {
    put(c, 0);
    return true;
  }
  if (!held_.empty() && (held_.size() == kMaxTogether || !alike(held_.front().cqe, c))) flush();
  held_.push_back({c});
  return true;
}

void CompletionRing::put(mlx5_cqe64 cqe, uint8_t format) {
  mlx5_cqe64* to = entry(produced_);
  const auto op_own = static_cast<uint8_t>(cqe.op_own | format << 2 | owner(produced_));
  std::memcpy(to, &cqe, offsetof(mlx5_cqe64, op_own));
  // Pairs with the program's barrier behind its look at the owner bit.
  __atomic_store_n(&to->op_own, op_own, __ATOMIC_RELEASE);
  ++produced_;
}

void CompletionRing::flush() {
  if (held_.empty()) return;
  if (held_.size() == 1) {
    put(held_.front().cqe, 0);
    held_.clear();
    return;
  }
  // The arrays first: the title gives all of them away.
  const uint64_t title = produced_;
  for (size_t i = 0; i < held_.size(); i += 8) {
    MiniCqe minis[8] = {};
    for (size_t k = i; k < std::min(i + 8, held_.size()); ++k)
      minis[k - i].byte_cnt = held_[k].cqe.byte_cnt;
    // The last byte of an array is where an entry has its owner bit.
    std::memcpy(entry(i == 0 ? title + 1 : title + i), minis, sizeof minis);
  }
  mlx5_cqe64 c = held_.front().cqe;
  c.byte_cnt = htobe32(static_cast<uint32_t>(held_.size()));
  put(c, kCompressed);
  produced_ = title + held_.size();
  held_.clear();
}

bool CompletionRing::look(bool& at_once) {
  uint64_t word;
  if (!armer_.take(word)) return false;
  const auto request = static_cast<uint32_t>(word >> 32);
  if (static_cast<uint32_t>(word) != number_ ||
      request != load(reinterpret_cast<const __be32*>(records_.data())[1])) {
    broken_rule("completion queue %u is armed by %016lx, its record says %08x: the record first",
                number_, static_cast<unsigned long>(word),
                load(reinterpret_cast<const __be32*>(records_.data())[1]));
    return false;
  }
  const uint32_t serial = request >> 28 & 3;
  if (serial == ((events_ - 1) & 3)) return false;  // answered by an event not yet read
  if (serial != (events_ & 3)) {
    broken_rule("completion queue %u is armed with serial number %u after %u events", number_,
                serial, events_);
    return false;
  }
  at_once = ((produced_ ^ request) & kIndexMask) != 0;
  return true;
}

}  // namespace vireo::softnic
