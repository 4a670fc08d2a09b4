#include "tests/apparatus/softnic/completion.h"

#include <algorithm>
#include <cstring>

#include "dev/shm/kernel_calls.h"
#include "tests/apparatus/softnic/kernel_calls.h"
#include "tests/apparatus/softnic/strict.h"

namespace vireo::softnic {

bool Channel::watch(int of) noexcept {
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.fd = of;
  return kernel::epoll_ctl(fd, EPOLL_CTL_ADD, of, &e) == 0;
}

void Channel::forget(int of) noexcept {
  epoll_event e{};
  (void)kernel::epoll_ctl(fd, EPOLL_CTL_DEL, of, &e);
}

void Channel::tell(Cq& cq) {
  if (events.empty()) kernel::add_to_counter(counter.get());
  events.push_back(&cq);
}

void Cq::tell() {
  armed = Armed::kNo;
  if (direct != nullptr) direct->fired();
  if (to != nullptr) to->tell(*this);
}

bool Cq::push(const Cqe& e, bool lose_event) {
  if (direct != nullptr) {
    if (!direct->write(e)) return false;
    *e.freed = e.posted;
  } else if (tail - head == ring.size()) {
    broken_rule("completion queue of %zu entries overflows: nobody polls it often enough",
                ring.size());
    return false;
  } else {
    ring[tail++ & (ring.size() - 1)] = e;
  }
  // Raw packets are never solicited; an error counts as if it were.
  if (armed == Armed::kNo || (armed == Armed::kSolicited && e.wc.status == IBV_WC_SUCCESS))
    return true;
  if (lose_event)
    armed = Armed::kNo;
  else
    tell();
  return true;
}

unsigned Cq::poll(std::span<ibv_wc> out) {
  const size_t n = std::min<size_t>(out.size(), tail - next);
  for (size_t i = 0; i < n; ++i) {
    const Cqe& e = ring[next++ & (ring.size() - 1)];
    out[i] = e.wc;
    *e.freed = e.posted;
  }
  release();
  return static_cast<unsigned>(n);
}

bool Cq::advance() {
  if (empty()) return false;
  current = ring[next++ & (ring.size() - 1)];
  *current.freed = current.posted;
  ex().status = current.wc.status;
  ex().wr_id = current.wc.wr_id;
  return true;
}

void Cq::purge(uint32_t qp_num) {
  uint64_t to_at = next;
  for (uint64_t at = next; at != tail; ++at) {
    const Cqe e = ring[at & (ring.size() - 1)];
    if (e.wc.qp_num != qp_num) ring[to_at++ & (ring.size() - 1)] = e;
  }
  tail = to_at;
}

}  // namespace vireo::softnic
