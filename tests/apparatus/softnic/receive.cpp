// Port's receiving half: frames from the wire go where the rules say, into the requests of queue
// pairs, the strides of striding queues, or a session of LRO.
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "tests/apparatus/softnic/port.h"
#include "tests/apparatus/softnic/strict.h"

namespace vireo::softnic {
namespace {

constexpr unsigned kReceiveBurst = 64;
constexpr unsigned kRoundsPerLook = 4096;
// The length that a striding queue's completions bear.
constexpr uint32_t kFiller = 1U << 31;
constexpr unsigned kStridesAt = 16;

/// What mlx5's completions say of a frame; checksums that hold are `good`.
Seen seen_of(std::span<const std::byte> frame, const Headers& h, bool good) {
  enum : uint8_t { kL4None, kTcp, kUdp, kTcpAck, kTcpAckAndData };
  Seen s;
  s.vlan_tag = h.vlan_tag;
  s.checksums = MLX5_CQE_L2_OK;
  if (ip_checksum_holds(frame, h)) s.checksums |= MLX5_CQE_L3_OK;
  if (good) s.checksums |= MLX5_CQE_L4_OK;
  uint8_t l3 = MLX5_CQE_L3_HDR_TYPE_NONE, l4 = kL4None;
  if (h.ip != Ip::kNone)
    l3 = h.ip == Ip::k4 ? MLX5_CQE_L3_HDR_TYPE_IPV4 : MLX5_CQE_L3_HDR_TYPE_IPV6;
  if (h.l4_bytes > 0 && h.proto == IPPROTO_UDP) l4 = kUdp;
  if (h.l4_bytes > 0 && h.proto == IPPROTO_TCP) {
    const auto header = (std::to_integer<size_t>(frame[h.l4_at + 12]) >> 4) * 4;
    const bool ack = (frame[h.l4_at + 13] & std::byte(0x10)) != std::byte(0);
    l4 = !ack ? kTcp : h.l4_bytes > header ? kTcpAckAndData : kTcpAck;
  }
  s.types = static_cast<uint8_t>(l4 << 4 | l3 << 2);
  return s;
}

}  // namespace

bool Port::receive() {
  if (wire_ == nullptr || faults.held) return false;
  const unsigned n = take_in(kReceiveBurst);
  if (n == 0 && rejoin && ++idle_rounds_ > kRoundsPerLook) watch_peer();
  return n > 0;
}

/// At most `most` frames from the wire. @return how many.
unsigned Port::take_in(unsigned most) {
  unsigned n = 0;
  for (; n < most; ++n) {
    const auto frame = wire_->front();
    if (frame.empty() || !deliver(harmed(frame))) break;
    wire_->pop();
  }
  end_sessions();
  flush_direct();
  return n;
}

/// The frame, or a copy in which one byte is another.
std::span<const std::byte> Port::harmed(std::span<const std::byte> frame) {
  if (faults.corruptions == 0) [[likely]]
    return frame;
  --faults.corruptions;
  const auto draw = [this](size_t below) {
    harm_ = harm_ * 1'664'525 + 1'013'904'223;  // low bits repeat soon
    return (harm_ >> 8) % below;
  };
  harmed_.assign(frame.begin(), frame.end());
  harmed_[draw(harmed_.size())] ^= static_cast<std::byte>(1 + draw(255));
  return harmed_;
}

bool Port::is_only_receiver() const {
  const void* only = nullptr;
  for (const Qp* q : qps_) {
    if (!q->can_receive()) continue;
    const void* const queue = q->table != nullptr ? static_cast<const void*>(q->table->wq) : q;
    if (only != nullptr && only != queue) return false;
    only = queue;
  }
  return only != nullptr;
}

/// @return false: the frame must wait on the wire.
bool Port::deliver(std::span<const std::byte> frame) {
  const auto drop = [&](uint64_t& count) {
    ++count;
    return true;
  };
  if (faults.drops > 0) {
    --faults.drops;
    return true;
  }
  const Headers h = parse(frame);
  const Receivers to = flows.receivers(h);
  if (to.count == 0) return drop(counts.rx_no_rule);
  const bool good = checksums_hold(frame, h);
  Seen seen{.vlan_tag = h.vlan_tag};
  if (is_direct()) seen = seen_of(frame, h, good);
  for (size_t i = 0; i < to.count; ++i) {
    Qp& qp = *to.qp[i];
    Wq* const wq = qp.table != nullptr ? qp.table->wq : nullptr;
    const bool is_ready = wq != nullptr ? wq->state == IBV_WQS_RDY
                                        : qp.state == IBV_QPS_RTR || qp.state == IBV_QPS_RTS;
    seen.flow_tag = to.tag[i];
    seen.lro.segments = qp.coalescing != nullptr ? 1 : 0;
    if (!is_ready) {
      drop(counts.rx_no_rule);
    } else if (qp.coalescing != nullptr && collect(qp, frame, h, good, seen)) {
      continue;
    } else if (!(wq != nullptr ? has_receive(*wq, frame.size()) : has_receive(qp))) {
      // Beside other queue pairs it is lost, as on a NIC: they shall not wait for this one.
      const bool can_wait = peer_ == nullptr || (is_direct() && !driven.by_hand);
      if (can_wait && is_only_receiver()) return false;
      drop(counts.rx_no_receive);
    } else {
      const bool whole = wq != nullptr ? scatter(*wq, frame, seen) : scatter(qp, frame, good, seen);
      if (whole) ++counts.rx_frames;
    }
  }
  return true;
}

/// @return false: the request failed, and the queue pair with it (only if lenient).
bool Port::scatter(Qp& qp, std::span<const std::byte> frame, bool good, const Seen& seen) {
  ReceiveRequest& r = qp.receives.front();
  const ibv_sge* sge = qp.receives.segments_of(r);
  ibv_wc wc{};
  wc.wr_id = r.wr_id;
  wc.opcode = IBV_WC_RECV;
  wc.qp_num = qp.qp_num;
  wc.byte_len = static_cast<uint32_t>(frame.size());
  if (good) wc.wc_flags = IBV_WC_IP_CSUM_OK;
  size_t at = 0;
  for (uint32_t i = 0; i < r.segments; ++i) {
    Mr* mr = memory.region_of(sge[i], qp.pd, true, "receive");
    if (mr == nullptr) {
      wc.status = IBV_WC_LOC_PROT_ERR;
      break;
    }
    memory.note_posted(*mr, sge[i], false);
    const size_t part = std::min<size_t>(sge[i].length, frame.size() - at);
    std::memcpy(reinterpret_cast<void*>(sge[i].addr), frame.data() + at, part);
    at += part;
  }
  if (wc.status == IBV_WC_SUCCESS && at < frame.size()) {
    broken_rule("receive: a frame of %zu bytes comes to a request with room for %zu", frame.size(),
                at);
    wc.status = IBV_WC_LOC_LEN_ERR;
  }
  qp.receives.pop();
  Cqe cqe = qp.receives.completion(wc);
  cqe.seen = seen;
  complete(qp.received(), cqe);
  if (wc.status != IBV_WC_SUCCESS) enter_error(qp);
  return wc.status == IBV_WC_SUCCESS;
}

/// Makes room for a frame at the front: what is left of an element may be too short, and is filler.
bool Port::has_receive(Wq& wq, size_t bytes) {
  if (!wq.ring.has_front(wq, memory)) return false;
  const uint32_t wanted = wq.ring.strides_for(bytes), left = wq.ring.left();
  if (wanted <= left || left == wq.ring.strides()) return true;
  Cqe cqe{};
  cqe.wc.wr_id = wq.ring.front_stride();
  cqe.wc.opcode = IBV_WC_RECV;
  cqe.wc.byte_len = kFiller | left << kStridesAt;
  cqe.wc.qp_num = wq.wq_num;
  cqe.freed = &wq.freed;
  cqe.seen.wqe_id = wq.ring.front_index();
  wq.ring.use(left, memory);
  complete(wq.received(), cqe);
  return wq.ring.has_front(wq, memory);
}

/// As scatter(Qp&), into the front element's next strides.
bool Port::scatter(Wq& wq, std::span<const std::byte> frame, const Seen& seen) {
  const uint32_t strides = wq.ring.strides_for(frame.size());
  Cqe cqe{};
  cqe.seen = seen;
  cqe.seen.wqe_id = wq.ring.front_index();
  cqe.freed = &wq.freed;
  ibv_wc& wc = cqe.wc;
  wc.opcode = IBV_WC_RECV;
  wc.qp_num = wq.wq_num;
  wc.wr_id = wq.ring.front_stride();
  if (strides > wq.ring.left()) {
    broken_rule("striding queue %u: a frame of %zu bytes is longer than an element", wq.wq_num,
                frame.size());
    wc.status = IBV_WC_LOC_LEN_ERR;
  } else if (memory.region_of(wq.ring.place(strides), wq.pd, true, "striding queue") == nullptr) {
    wc.status = IBV_WC_LOC_PROT_ERR;
  } else {
    std::memcpy(reinterpret_cast<void*>(wq.ring.place(strides).addr), frame.data(), frame.size());
    wc.byte_len = strides << kStridesAt | static_cast<uint32_t>(frame.size());
  }
  wq.ring.use(wc.status == IBV_WC_SUCCESS ? strides : wq.ring.left(), memory);
  complete(wq.received(), cqe);
  if (wc.status != IBV_WC_SUCCESS) enter_error(wq);
  return wc.status == IBV_WC_SUCCESS;
}

/// LRO. @return true: the frame is in a session; else it is to be delivered as it is, and the
/// session of its connection has been.
bool Port::collect(Qp& qp, std::span<const std::byte> frame, const Headers& h, bool good,
                   const Seen& seen) {
  Coalescing& c = *qp.coalescing;
  Wq& wq = *qp.table->wq;
  const bool is_fit = c.is_fit(frame, h, good);
  const size_t at = c.find(h);
  if (at < c.sessions().size()) {
    if (is_fit && c.extend(c.sessions()[at], frame, h, seen)) {
      ++counts.rx_frames;
      ++counts.rx_coalesced;
      return true;
    }
    hand_over(qp, at);
  }
  if (c.sessions().size() == Coalescing::kMaxSessions) hand_over(qp, 0);
  // Each may grow to its most, with as much filler before it.
  (void)wq.ring.look(wq, memory);
  const uint64_t wanted = (c.sessions().size() + 1) * 2 * wq.ring.strides_for(c.most());
  const bool has_room = wq.ring.waiting() >= wanted && c.most() <= wq.ring.bytes();
  if (is_fit && has_room) {
    c.begin(frame, h, seen);
    return true;
  }
  if (!has_room)
    while (!c.sessions().empty()) hand_over(qp, 0);
  return false;
}

void Port::hand_over(Qp& qp, size_t session) {
  auto& sessions = qp.coalescing->sessions();
  Coalescing::Session s = std::move(sessions[session]);
  sessions.erase(sessions.begin() + static_cast<ptrdiff_t>(session));
  s.seen.lro = s.told;
  Wq& wq = *qp.table->wq;
  if (wq.state != IBV_WQS_RDY || !has_receive(wq, s.bytes.size()))
    ++counts.rx_no_receive;
  else if (scatter(wq, s.bytes, s.seen))
    ++counts.rx_frames;
}

void Port::end_sessions() {
  for (Qp* qp : qps_)
    if (qp->coalescing != nullptr)
      while (!qp->coalescing->sessions().empty()) hand_over(*qp, 0);
}

}  // namespace vireo::softnic
