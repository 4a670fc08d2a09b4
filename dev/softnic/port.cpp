#include "dev/softnic/port.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dev/softnic/kernel_calls.h"
#include "dev/softnic/strict.h"

namespace vireo::softnic {
namespace {

constexpr unsigned kReceiveBurst = 64;
constexpr unsigned kRoundsPerLook = 4096;
constexpr long kBacklogNs = 50'000;

}  // namespace

Port::Port(std::mutex& m) : lock(m), timer_(kernel::timerfd()) {}

void Port::plug(std::unique_ptr<Wire> wire, Port* peer, uint32_t mtu) {
  wire_ = std::move(wire);
  peer_ = peer;
  mtu_ = mtu;
  for (Channel* c : channels_) {
    c->watched_bell = wire_->bell_fd();
    if (c->watched_bell >= 0) c->watch(c->watched_bell);
  }
}

void Port::unplug() {
  for (Channel* c : channels_)
    if (c->watched_bell >= 0) c->forget(std::exchange(c->watched_bell, -1));
  wire_.reset();
  peer_ = nullptr;
}

void Port::detach(Qp& qp) { std::erase(qps_, &qp); }

void Port::attach(Channel& c) {
  channels_.push_back(&c);
  c.watch(timer_.get());
  c.watched_bell = wire_ != nullptr ? wire_->bell_fd() : -1;
  if (c.watched_bell >= 0) c.watch(c.watched_bell);
}

void Port::detach(Channel& c) { std::erase(channels_, &c); }

void Port::complete(Cq& cq, const Cqe& e) {
  const bool lose = faults.lost_events > 0 && cq.armed != Armed::kNo;
  if (lose) --faults.lost_events;
  cq.push(e, lose);
}

void Port::work() {
  if (wire_ == nullptr || faults.held) return;
  if (backlog_) {
    backlog_ = false;
    for (Qp* qp : qps_) send_some(*qp, UINT32_MAX);
  }
  receive();
}

bool Port::anyone_is_armed() const {
  return std::any_of(qps_.begin(), qps_.end(), [](const Qp* q) {
    return q->sent().armed != Armed::kNo || q->received().armed != Armed::kNo;
  });
}

void Port::arm() {
  work();
  if (wire_ == nullptr) return;
  for (uint64_t before = ~uint64_t{0}; before != counts.rx_frames && !wire_->arm();) {
    before = counts.rx_frames;
    receive();
  }
  if (backlog_) kernel::set_timer(timer_.get(), kBacklogNs);
}

void Port::woken() {
  (void)kernel::read_counter(timer_.get());
  if (wire_ == nullptr) return;
  wire_->clear_bell();
  work();
  watch_peer();
  if (wire_ != nullptr && anyone_is_armed()) arm();
}

/// The other end of a shared wire has left: what it sent is read, then the port waits for another.
void Port::watch_peer() {
  idle_rounds_ = 0;
  if (!rejoin || !wire_->peer_is_gone() || !wire_->front().empty()) return;
  const uint32_t mtu = mtu_;
  unplug();
  tell(IBV_EVENT_PORT_ERR);
  if (auto wire = rejoin()) {
    plug(std::move(wire), nullptr, mtu);
    tell(IBV_EVENT_PORT_ACTIVE);
  }
}

void Port::receive() {
  if (wire_ == nullptr || faults.held) return;
  unsigned n = 0;
  for (; n < kReceiveBurst; ++n) {
    const auto frame = wire_->front();
    if (frame.empty() || !deliver(frame)) break;
    wire_->pop();
  }
  if (n == 0 && rejoin && ++idle_rounds_ > kRoundsPerLook) watch_peer();
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
  for (size_t i = 0; i < to.count; ++i) {
    Qp& qp = *to.qp[i];
    if (qp.state != IBV_QPS_RTR && qp.state != IBV_QPS_RTS) {
      drop(counts.rx_no_rule);
    } else if (qp.receives.idle()) {
      // Beside other queue pairs it is lost, as on a NIC: they shall not wait for this one.
      if (peer_ == nullptr && qps_.size() == 1) return false;
      drop(counts.rx_no_receive);
    } else if (scatter(qp, frame, good)) {
      ++counts.rx_frames;
    }
  }
  return true;
}

/// @return false: the request failed, and the queue pair with it (only if lenient).
bool Port::scatter(Qp& qp, std::span<const std::byte> frame, bool good) {
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
  complete(qp.received(), qp.receives.completion(wc));
  if (wc.status != IBV_WC_SUCCESS) enter_error(qp);
  return wc.status == IBV_WC_SUCCESS;
}

void Port::enter_error(Qp& qp) {
  qp.state = IBV_QPS_ERR;
  ibv_wc wc{};
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.qp_num = qp.qp_num;
  while (!qp.sends.idle()) {
    wc.wr_id = qp.sends.front().wr_id;
    qp.sends.pop();
    complete(qp.sent(), qp.sends.completion(wc));
  }
  wc.opcode = IBV_WC_RECV;
  while (!qp.receives.idle()) {
    const ReceiveRequest& r = qp.receives.front();
    const ibv_sge* sge = qp.receives.segments_of(r);
    for (uint32_t i = 0; i < r.segments; ++i)
      if (Mr* mr = memory.find(sge[i].lkey)) memory.note_posted(*mr, sge[i], false);
    wc.wr_id = r.wr_id;
    qp.receives.pop();
    complete(qp.received(), qp.receives.completion(wc));
  }
}

void Port::enter_all_errors() {
  for (Qp* qp : qps_)
    if (qp->state != IBV_QPS_RESET) enter_error(*qp);
}

}  // namespace vireo::softnic
