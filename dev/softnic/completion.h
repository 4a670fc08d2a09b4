// Completion queues and the channels through which they tell of completions.
// Owner: Nic. Thread: holder of the port's lock. Source: ibv_create_cq(3), ibv_req_notify_cq(3),
// ibv_get_cq_event(3).
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <span>
#include <vector>

#include "core/fd.h"

namespace vireo::softnic {

struct Cq;
struct Qp;

/// fd is an epoll set: the counter of its own events, the bell of the port's wire, and the timer by
/// which a port comes back to frames that a full wire did not take.
struct Channel : ibv_comp_channel {
  UniqueFd set;
  UniqueFd counter;
  std::deque<Cq*> events;
  int watched_bell = -1;

  bool watch(int of) noexcept;
  void forget(int of) noexcept;
  void tell(Cq& cq);
};

enum class Armed : uint8_t { kNo, kSolicited, kAny };

/// A completion, and the slots of the work ring that are free again once it was polled: all up to
/// `posted`, as a driver learns it no earlier.
struct Cqe {
  ibv_wc wc;
  uint64_t* freed;
  uint64_t posted;
};

struct Cq : ibv_cq {
  Channel* to = nullptr;
  std::vector<Cqe> ring;  ///< a power of two
  uint64_t head = 0;      ///< next to be polled
  uint64_t tail = 0;      ///< next to be written
  Armed armed = Armed::kNo;
  uint32_t events_given = 0;  ///< by ibv_get_cq_event()
  unsigned users = 0;         ///< queue pairs, each direction counted

  bool empty() const { return head == tail; }
  /// @return false: it is full (only if lenient); the completion is lost.
  bool push(const Cqe& e, bool lose_event);
  unsigned poll(std::span<ibv_wc> out);
  /// Takes out the completions of a queue pair that ends.
  void purge(uint32_t qp_num);
};

}  // namespace vireo::softnic
