// Completion queues and the channels through which they tell of completions.
// Owner: Nic. Thread: holder of the port's lock. Source: ibv_create_cq(3), ibv_req_notify_cq(3),
// ibv_get_cq_event(3).
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/fd.h"
#include "tests/apparatus/softnic/completion_ring.h"

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

/// What the completion of a packet tells that several segments became. In network order, as they
/// had it.
struct Lro {
  uint8_t segments = 0;
  uint8_t least_ttl = 0;
  bool push = false;
  uint16_t window = 0;
  uint32_t ack = 0;
  bool has_stamps = false;
  uint32_t stamps[2] = {};  ///< of the last
};

/// What ibv_wc does not tell: extended completion queues and the entries of mlx5 do.
struct Seen {
  uint32_t flow_tag = 0;   ///< of the rule that matched; 0: none
  uint16_t vlan_tag = 0;   ///< of the frame
  uint64_t ticks = 0;      ///< of the device's counter, where the queue tells it
  uint64_t wall_ns = 0;    ///< the same
  uint8_t checksums = 0;   ///< MLX5_CQE_L3_OK and so on
  uint8_t types = 0;       ///< of the headers, as l4_hdr_type_etc
  uint8_t wqe_opcode = 0;  ///< of what was sent
  uint16_t wqe_id = 0;     ///< of a striding queue: the element, whose stride is wc.wr_id
  Lro lro = {};
};

/// A completion, and the slots of the work ring that are free again once it was polled: all up to
/// `posted`, as a driver learns it no earlier.
struct Cqe {
  ibv_wc wc;
  uint64_t* freed;
  uint64_t posted;
  Seen seen = {};
};

/// Where the program is in a batch (ibv_start_poll(3)).
enum class Batch : uint8_t { kNone, kAtOne, kPast };

/// A program may hold it as the longer ibv_cq_ex, which begins alike (ibv_create_cq_ex(3),
/// mlx5dv_create_cq(3)).
struct Cq : ibv_cq {
  std::byte extended[sizeof(ibv_cq_ex) - sizeof(ibv_cq)] = {};
  Channel* to = nullptr;
  std::unique_ptr<CompletionRing> direct;  ///< then the ring is the program's, and `ring` unused
  bool compresses = false;
  std::vector<Cqe> ring;  ///< a power of two
  uint64_t head = 0;      ///< from here on entries are in use: a batch frees them at its end
  uint64_t next = 0;      ///< to be polled
  uint64_t tail = 0;      ///< next to be written
  uint64_t fields = 0;    ///< IBV_WC_EX_WITH_*
  bool tells_time = false;
  Batch batch = Batch::kNone;
  Cqe current = {};  ///< of the batch
  Armed armed = Armed::kNo;
  uint32_t events_given = 0;  ///< by ibv_get_cq_event()
  unsigned users = 0;         ///< queue pairs, each direction counted

  ibv_cq_ex& ex() { return *reinterpret_cast<ibv_cq_ex*>(static_cast<ibv_cq*>(this)); }
  bool empty() const { return next == tail; }
  void tell();
  /// @return false: it is full (only if lenient); the completion is lost.
  bool push(const Cqe& e, bool lose_event);
  unsigned poll(std::span<ibv_wc> out);
  /// The next completion is `current`. @return false: there is none.
  bool advance();
  void release() { head = next; }
  /// Takes out the completions of a queue pair that ends.
  void purge(uint32_t qp_num);
};

static_assert(sizeof(ibv_cq) == offsetof(ibv_cq_ex, comp_mask));

}  // namespace vireo::softnic
