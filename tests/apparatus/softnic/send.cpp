// The sending half of a port, and the acceptance of what is posted.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/apparatus/softnic/kernel_calls.h"
#include "tests/apparatus/softnic/port.h"
#include "tests/apparatus/softnic/segmentation.h"
#include "tests/apparatus/softnic/strict.h"

namespace vireo::softnic {
namespace {
constexpr uint32_t kFraming = 22;  // Ethernet header and two VLAN tags
constexpr uint32_t kMin = 14;
}  // namespace

int Port::post(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    error = accept(qp, *wr);
    if (error != 0) {
      *bad = wr;
      break;
    }
  }
  if (qp.state == IBV_QPS_ERR)
    enter_error(qp);
  else if (!faults.held)
    send_some(qp, UINT32_MAX);
  return error;
}

int Port::accept(Qp& qp, const ibv_send_wr& wr) {
  const bool is_tso = wr.opcode == IBV_WR_TSO;
  if (qp.direct != nullptr) {
    broken_rule("ibv_post_send: mlx5dv_init_obj gave the send queue of pair %u away", qp.qp_num);
    return EINVAL;
  }
  if (qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_ERR) {
    broken_rule("ibv_post_send: queue pair %u is in state %d, not RTS", qp.qp_num, qp.state);
    return EINVAL;
  }
  if (qp.sends.full()) {
    broken_rule(
        "ibv_post_send: send queue of %u overflows: a slot is free again only once a "
        "signaled completion at or behind it was polled",
        qp.init.cap.max_send_wr);
    return ENOMEM;
  }
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > qp.init.cap.max_send_sge) {
    broken_rule("ibv_post_send: %d segments, the queue pair has %u", wr.num_sge,
                qp.init.cap.max_send_sge);
    return EINVAL;
  }
  if (wr.opcode != IBV_WR_SEND && !is_tso) {
    broken_rule("ibv_post_send: opcode %d on a raw-packet queue pair", wr.opcode);
    return EINVAL;
  }
  SendRequest& r = qp.sends.free_slot();
  r = {};
  r.wr_id = wr.wr_id;
  r.flags = wr.send_flags;
  if (qp.init.sq_sig_all != 0) r.flags |= IBV_SEND_SIGNALED;
  std::byte* bytes = qp.sends.bytes_of(r);
  if (is_tso) {
    const auto* header = static_cast<const std::byte*>(wr.tso.hdr);
    if (wr.tso.hdr_sz > qp.most_header || wr.tso.mss == 0 ||
        (wr.send_flags & IBV_SEND_INLINE) != 0 || !can_segment({header, wr.tso.hdr_sz})) {
      broken_rule("ibv_post_send: IBV_WR_TSO with a header of %u bytes (at most %u), MSS %u",
                  wr.tso.hdr_sz, qp.most_header, wr.tso.mss);
      return EINVAL;
    }
    std::memcpy(bytes, header, wr.tso.hdr_sz);
    r.inline_bytes = wr.tso.hdr_sz;
    r.mss = wr.tso.mss;
  }
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) {
    std::copy_n(wr.sg_list, wr.num_sge, qp.sends.segments_of(r));
    r.segments = static_cast<uint32_t>(wr.num_sge);
    qp.sends.push();
    return 0;
  }
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& s = wr.sg_list[i];
    if (s.length > qp.init.cap.max_inline_data - r.inline_bytes) {
      broken_rule("ibv_post_send: inline data is longer than the queue pair's %u bytes",
                  qp.init.cap.max_inline_data);
      return ENOMEM;
    }
    std::memcpy(bytes + r.inline_bytes, reinterpret_cast<const void*>(s.addr), s.length);
    r.inline_bytes += s.length;
  }
  qp.sends.push();
  return 0;
}

int Port::post(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    error = accept(qp, *wr);
    if (error != 0) {
      *bad = wr;
      break;
    }
  }
  if (qp.state == IBV_QPS_ERR) enter_error(qp);
  return error;
}

int Port::accept(Qp& qp, const ibv_recv_wr& wr) {
  if (qp.state == IBV_QPS_RESET) {
    broken_rule("ibv_post_recv: queue pair %u is in state RESET", qp.qp_num);
    return EINVAL;
  }
  if (qp.direct != nullptr ? qp.direct->receives.full() : qp.receives.full()) {
    broken_rule("ibv_post_recv: receive queue of %u overflows", qp.init.cap.max_recv_wr);
    return ENOMEM;
  }
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > qp.init.cap.max_recv_sge) {
    broken_rule("ibv_post_recv: %d segments, the queue pair has %u", wr.num_sge,
                qp.init.cap.max_recv_sge);
    return EINVAL;
  }
  if (qp.direct != nullptr) {
    qp.direct->receives.post(wr);
    qp.direct->receives.look(qp, memory);
    return 0;
  }
  ReceiveRequest& r = qp.receives.free_slot();
  r = {wr.wr_id, static_cast<uint32_t>(wr.num_sge)};
  std::copy_n(wr.sg_list, wr.num_sge, qp.receives.segments_of(r));
  for (int i = 0; i < wr.num_sge; ++i)
    if (Mr* mr = memory.region_of(wr.sg_list[i], qp.pd, true, "ibv_post_recv"))
      memory.note_posted(*mr, wr.sg_list[i], true);
  qp.receives.push();
  return 0;
}

unsigned Port::step(unsigned most) {
  unsigned n = 0;
  look();
  for (Qp* qp : qps_) n += send_some(*qp, most - n);
  if (wire_ != nullptr) take_in(most);
  return n;
}

unsigned Port::send_some(Qp& qp, unsigned most) {
  if (wire_ == nullptr) return 0;
  unsigned n = 0;
  for (; n < most && qp.state == IBV_QPS_RTS && has_send(qp); ++n) {
    const Sent sent = transmit(qp, qp.sends.front());
    if (sent == Sent::kWireFull) {
      backlog_ = true;
      break;
    }
    if (sent == Sent::kFailed) enter_error(qp);
  }
  if (const auto* const word = wire_->ring(); word != nullptr) {
    if (wakes_later_)
      to_wake_ = word;
    else
      kernel::wake_word(word);
  }
  if (peer_ != nullptr) peer_->receive();
  return n;
}

/// Room for a frame on the wire; empty: full.
std::span<std::byte> Port::room() {
  auto to = wire_->reserve();
  if (to.empty() && peer_ != nullptr) {
    peer_->receive();
    to = wire_->reserve();
  }
  return to;
}

/// Does the oldest request and completes it, unless the wire is full.
Port::Sent Port::transmit(Qp& qp, SendRequest& r) {
  if (faults.fail_sends > 0) {
    --faults.fail_sends;
    complete_send(qp, r, faults.fail_status);
    return Sent::kFailed;
  }
  if (r.refused != IBV_WC_SUCCESS) {
    complete_send(qp, r, r.refused);
    return Sent::kFailed;
  }
  if (r.opcode == MLX5_OPCODE_NOP) {
    complete_send(qp, r, IBV_WC_SUCCESS);
    return Sent::kDone;
  }
  if (r.mss > 0) return transmit_segments(qp, r);
  uint32_t bytes = r.inline_bytes;
  const ibv_sge* sge = qp.sends.segments_of(r);
  for (uint32_t i = 0; i < r.segments; ++i) {
    if (memory.region_of(sge[i], qp.pd, false, "send") == nullptr) {
      complete_send(qp, r, IBV_WC_LOC_PROT_ERR);
      return Sent::kFailed;
    }
    bytes += sge[i].length;
  }
  if (bytes < kMin || bytes > mtu_ + kFraming) {
    broken_rule("send: a frame of %u bytes; the port takes %u to %u", bytes, kMin, mtu_ + kFraming);
    complete_send(qp, r, IBV_WC_LOC_LEN_ERR);
    return Sent::kFailed;
  }
  if (faults.link_down) {
    ++counts.tx_unplugged;
    complete_send(qp, r, IBV_WC_SUCCESS);
    return Sent::kDone;
  }
  const auto to = room();
  if (to.empty()) return Sent::kWireFull;
  std::memcpy(to.data(), qp.sends.bytes_of(r), r.inline_bytes);
  std::byte* at = to.data() + r.inline_bytes;
  for (uint32_t i = 0; i < r.segments; ++i) {
    std::memcpy(at, reinterpret_cast<const void*>(sge[i].addr), sge[i].length);
    at += sge[i].length;
  }
  if ((r.flags & IBV_SEND_IP_CSUM) != 0) fill_checksums(to.first(bytes));
  wire_->publish(bytes);
  ++counts.tx_frames;
  complete_send(qp, r, IBV_WC_SUCCESS);
  return Sent::kDone;
}

Port::Sent Port::transmit_segments(Qp& qp, SendRequest& r) {
  payload_.clear();
  const ibv_sge* sge = qp.sends.segments_of(r);
  for (uint32_t i = 0; i < r.segments; ++i) {
    if (memory.region_of(sge[i], qp.pd, false, "send") == nullptr) {
      complete_send(qp, r, IBV_WC_LOC_PROT_ERR);
      return Sent::kFailed;
    }
    const auto* from = reinterpret_cast<const std::byte*>(sge[i].addr);
    payload_.insert(payload_.end(), from, from + sge[i].length);
  }
  const std::span<const std::byte> header(qp.sends.bytes_of(r), r.inline_bytes);
  if (payload_.size() > kMaxSegmented || header.size() + r.mss > mtu_ + kFraming) {
    broken_rule("send: IBV_WR_TSO of %zu bytes in segments of %u", payload_.size(), r.mss);
    complete_send(qp, r, IBV_WC_LOC_LEN_ERR);
    return Sent::kFailed;
  }
  while (r.sent_bytes < payload_.size()) {
    const auto part = std::span(payload_)
                          .subspan(r.sent_bytes)
                          .first(std::min<size_t>(r.mss, payload_.size() - r.sent_bytes));
    const bool is_last = r.sent_bytes + part.size() == payload_.size();
    if (faults.link_down) {
      ++counts.tx_unplugged;
    } else {
      const auto to = room();
      if (to.empty()) return Sent::kWireFull;
      wire_->publish(write_segment(to, header, part, r.sent_bytes, r.sent_bytes / r.mss, is_last));
      ++counts.tx_frames;
    }
    r.sent_bytes += static_cast<uint32_t>(part.size());
  }
  ++counts.tx_bursts;
  complete_send(qp, r, IBV_WC_SUCCESS);
  return Sent::kDone;
}

void Port::complete_send(Qp& qp, const SendRequest& r, ibv_wc_status status) {
  const uint8_t opcode = r.opcode;
  ibv_wc wc{};
  wc.wr_id = r.wr_id;
  wc.status = status;
  wc.opcode = r.mss > 0 ? IBV_WC_TSO : IBV_WC_SEND;
  wc.qp_num = qp.qp_num;
  const bool told = (r.flags & IBV_SEND_SIGNALED) != 0 || status != IBV_WC_SUCCESS;
  qp.sends.pop();
  if (!told) return;
  if (qp.direct != nullptr) qp.direct->sends.told(static_cast<uint16_t>(wc.wr_id), r.blocks);
  Cqe cqe = qp.sends.completion(wc);
  cqe.seen.wqe_opcode = opcode;
  complete(qp.sent(), cqe);
}

}  // namespace vireo::softnic
