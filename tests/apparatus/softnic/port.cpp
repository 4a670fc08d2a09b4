#include "tests/apparatus/softnic/port.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tests/apparatus/softnic/clock.h"
#include "tests/apparatus/softnic/kernel_calls.h"

namespace vireo::softnic {
namespace {

constexpr long kBacklogNs = 50'000;
// Of the thread's turns: it shares the processor with the program, to which a switch there and back
// costs as much as some frames.
constexpr long kNapNs = 10'000, kCalmNapNs = 50'000;
constexpr unsigned kCalm = 256, kToldEach = 2, kFalseAlarms = 8;
constexpr long kIdleNs = 1'000'000;
constexpr unsigned kTurnsPerLook = 16;

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

int Port::want(const Flow& rule) {
  if (wire_ == nullptr || !wire_->is_selective()) return 0;
  const auto key = key_of(rule);
  return key && !asks_vlan(rule) ? wire_->want(*key) : EOPNOTSUPP;
}

void Port::unwant(const Flow& rule) {
  if (wire_ == nullptr || !wire_->is_selective()) return;
  if (const auto key = key_of(rule)) wire_->unwant(*key);
}

void Port::detach(Qp& qp) { std::erase(qps_, &qp); }

void Port::attach(Channel& c) {
  channels_.push_back(&c);
  c.watch(timer_.get());
  c.watched_bell = wire_ != nullptr ? wire_->bell_fd() : -1;
  if (c.watched_bell >= 0) c.watch(c.watched_bell);
}

void Port::detach(Channel& c) { std::erase(channels_, &c); }

void Port::detach(Cq& cq) { std::erase(direct_cqs_, &cq); }

void Port::complete(Cq& cq, Cqe e) {
  if (cq.tells_time) {
    e.seen.ticks = ticks_now();
    e.seen.wall_ns = wall_now();
  }
  const bool lose = faults.lost_events > 0 && cq.armed != Armed::kNo;
  if (lose) --faults.lost_events;
  cq.push(e, lose);
}

bool Port::work() {
  if (wire_ == nullptr || faults.held) return false;
  const bool rung = look();
  if (backlog_ || rung) {
    backlog_ = false;
    for (Qp* qp : qps_) send_some(*qp, UINT32_MAX);
  }
  const bool received = receive();
  return received || rung;
}

/// The doorbells of rings that programs drive themselves. @return true: one has rung.
bool Port::look() {
  if (!is_direct()) return false;
  bool any = false;
  for (Qp* qp : qps_) {
    if (qp->direct == nullptr || qp->state == IBV_QPS_RESET) continue;
    if (qp->direct->sends.look(*qp, driven.each_doorbell)) {
      any = true;
      ++answers_;
    }
    if (qp->state == IBV_QPS_ERR) enter_error(*qp);
  }
  for (Wq* wq : wqs_)
    if (wq->state == IBV_WQS_ERR) enter_error(*wq);
  for (Cq* cq : direct_cqs_) {
    bool at_once = false;
    if (!cq->direct->look(at_once)) continue;
    any = true;
    cq->armed = Armed::kAny;
    if (at_once) cq->tell();
  }
  return any;
}

/// Is there a request to do? One that lies in the program's ring is fetched.
bool Port::has_send(Qp& qp) {
  return !qp.sends.idle() || (qp.direct != nullptr && qp.direct->sends.fetch(qp));
}

bool Port::has_receive(Qp& qp) {
  return !qp.receives.idle() || (qp.direct != nullptr && qp.direct->receives.fetch(qp, memory));
}

void Port::flush_direct() {
  for (Cq* cq : direct_cqs_) cq->direct->flush();
}

bool Port::anyone_is_armed() const {
  const auto is_armed = [](const Qp* q) {
    return q->table == nullptr &&
           (q->sent().armed != Armed::kNo || q->received().armed != Armed::kNo);
  };
  return std::any_of(qps_.begin(), qps_.end(), is_armed) ||
         std::any_of(wqs_.begin(), wqs_.end(),
                     [](const Wq* w) { return w->received().armed != Armed::kNo; });
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

void Port::rung(void* port) {
  Port& p = *static_cast<Port*>(port);
  const std::atomic<uint32_t>* to_wake;
  {
    const std::lock_guard hold(p.lock);
    p.rung_on_ = sched_getcpu();
    p.wakes_later_ = true;
    p.work();
    p.wakes_later_ = false;
    to_wake = std::exchange(p.to_wake_, nullptr);
    if (p.backlog_) kernel::set_timer(p.timer_.get(), kBacklogNs);
  }
  // Last: who is woken goes before us on this core, and brings an answer before we go on, which our
  // own device's thread is to find the lock free for.
  if (to_wake != nullptr) kernel::wake_word(to_wake);
}

bool Port::is_watched() const {
  const auto pair = [](const Qp* q) {
    return q->direct == nullptr || q->direct->sends.is_watched();
  };
  const auto queue = [](const Cq* c) { return c->direct->is_watched(); };
  return std::all_of(qps_.begin(), qps_.end(), pair) &&
         std::all_of(direct_cqs_.begin(), direct_cqs_.end(), queue);
}

Port::Rest Port::tend(bool told, bool by_word) {
  if (wire_ == nullptr || faults.held) return {kIdleNs};
  if (told && !by_word) {
    (void)kernel::read_counter(timer_.get());
    wire_->clear_bell();
  }
  if (answers_ != answers_before_) brought_ = 0;
  const bool found = work();
  answers_before_ = answers_;
  calm_ = found ? 0 : calm_ + 1;
  brought_ = found ? brought_ + 1 : 0;
  const long nap = calm_ < kCalm ? kNapNs : kCalmNapNs;
  if (!is_watched()) return {nap, false};
  // To one who answers each frame at once, each is brought at once; to others, many together.
  if (brought_ > kToldEach) return {kCalmNapNs, false};
  // A word tells of frames alone.
  if (!found && (by_word ? calm_ % kTurnsPerLook == 0 : told)) watch_peer();
  if (wire_ == nullptr) return {kIdleNs};
  // A descriptor may tell of nothing for ever.
  if (told && calm_ > kFalseAlarms) return {kCalmNapNs, false};
  // Nobody tells of a receive that is posted.
  if (!wire_->front().empty()) return {found ? 0 : nap, false};
  if (backlog_ && !by_word) kernel::set_timer(timer_.get(), kBacklogNs);
  if (by_word ? !wire_->arm_word() : !wire_->arm()) return {0};
  return {backlog_ ? kBacklogNs : kIdleNs, true, true};
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

unsigned Port::posted_receives() {
  uint64_t n = 0;
  for (Qp* qp : qps_) {
    n += qp->receives.waiting();
    if (qp->direct == nullptr) continue;
    qp->direct->receives.look(*qp, memory);
    n += qp->direct->receives.waiting();
  }
  for (Wq* wq : wqs_) {
    wq->ring.look(*wq, memory);
    n += wq->ring.waiting();
  }
  return static_cast<unsigned>(n);
}

/// Every element comes back.
void Port::enter_error(Wq& wq) {
  wq.state = IBV_WQS_ERR;
  while (wq.ring.has_front(wq, memory)) {
    Cqe cqe{};
    cqe.wc.status = IBV_WC_WR_FLUSH_ERR;
    cqe.wc.opcode = IBV_WC_RECV;
    cqe.wc.qp_num = wq.wq_num;
    cqe.wc.wr_id = wq.ring.front_index();
    cqe.freed = &wq.freed;
    wq.ring.use(wq.ring.left(), memory);
    complete(wq.received(), cqe);
  }
  flush_direct();
}

void Port::enter_error(Qp& qp) {
  qp.state = IBV_QPS_ERR;
  ibv_wc wc{};
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.qp_num = qp.qp_num;
  while (has_send(qp)) {
    const SendRequest r = qp.sends.front();
    wc.wr_id = r.wr_id;
    qp.sends.pop();
    if (qp.direct != nullptr) qp.direct->sends.told(static_cast<uint16_t>(r.wr_id), r.blocks);
    Cqe cqe = qp.sends.completion(wc);
    cqe.seen.wqe_opcode = r.opcode;
    complete(qp.sent(), cqe);
  }
  wc.opcode = IBV_WC_RECV;
  while (has_receive(qp)) {
    const ReceiveRequest& r = qp.receives.front();
    const ibv_sge* sge = qp.receives.segments_of(r);
    for (uint32_t i = 0; i < r.segments; ++i)
      if (Mr* mr = memory.find(sge[i].lkey)) memory.note_posted(*mr, sge[i], false);
    wc.wr_id = r.wr_id;
    qp.receives.pop();
    complete(qp.received(), qp.receives.completion(wc));
  }
  flush_direct();
}

void Port::enter_all_errors() {
  for (Qp* qp : qps_)
    if (qp->state != IBV_QPS_RESET) enter_error(*qp);
  for (Wq* wq : wqs_)
    if (wq->state != IBV_WQS_RESET) enter_error(*wq);
}

}  // namespace vireo::softnic
