// Raw-packet queue pairs: their two rings of work requests.
// Owner: Nic. Thread: holder of the port's lock. Source: ibv_create_qp(3), ibv_post_send(3),
// ibv_post_recv(3).
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <vector>

#include "tests/apparatus/softnic/coalescing.h"
#include "tests/apparatus/softnic/completion.h"
#include "tests/apparatus/softnic/receive_ring.h"
#include "tests/apparatus/softnic/send_ring.h"
#include "tests/apparatus/softnic/work_queue.h"

namespace vireo::softnic {

/// A ring of requests with their segments beside it; indices only grow. A slot is taken from push()
/// until the program has polled a completion that frees it.
template <class Request>
class WorkRing {
 public:
  WorkRing(uint32_t entries, uint32_t segments, uint32_t bytes)
      : requests_(entries),
        segments_(size_t{entries} * segments),
        bytes_(size_t{entries} * bytes),
        segments_each_(segments),
        bytes_each_(bytes) {}
  /// True if the device has done all that was posted.
  bool idle() const { return done_ == posted_; }
  uint64_t waiting() const { return posted_ - done_; }
  bool full() const { return posted_ - freed_ == requests_.size(); }
  Request& front() { return requests_[done_ % requests_.size()]; }
  Request& free_slot() { return requests_[posted_ % requests_.size()]; }
  ibv_sge* segments_of(const Request& r) { return &segments_[row(r) * segments_each_]; }
  std::byte* bytes_of(const Request& r) { return bytes_.data() + row(r) * bytes_each_; }
  void push() { ++posted_; }
  void pop() { ++done_; }
  /// The completion of the request that was popped last.
  Cqe completion(const ibv_wc& wc) { return {wc, &freed_, done_}; }
  void clear() { freed_ = done_ = posted_ = 0; }

 private:
  size_t row(const Request& r) const { return static_cast<size_t>(&r - requests_.data()); }
  std::vector<Request> requests_;
  std::vector<ibv_sge> segments_;
  std::vector<std::byte> bytes_;
  size_t segments_each_, bytes_each_;
  uint64_t freed_ = 0, done_ = 0, posted_ = 0;
};

struct SendRequest {
  uint64_t wr_id = 0;
  unsigned flags = 0;  ///< IBV_SEND_*
  uint32_t segments = 0;
  uint32_t inline_bytes = 0;  ///< in bytes_of(): the frame, or the header of what is segmented
  uint16_t mss = 0;           ///< > 0: IBV_WR_TSO
  uint32_t sent_bytes = 0;    ///< of a payload that is being segmented
  // Of an element of a SendRing:
  uint32_t blocks = 0;
  uint8_t opcode = MLX5_OPCODE_SEND;
  ibv_wc_status refused = IBV_WC_SUCCESS;  ///< else it cannot be done
};

struct ReceiveRequest {
  uint64_t wr_id;
  uint32_t segments;
};

/// The rings of a pair that mlx5dv_init_obj(3) gave to the program. The work rings beside them hold
/// just the request that the device does now.
struct DirectRings {
  SharedPages records{2 * sizeof(__be32), 0};
  SendRing sends;
  ReceiveRing receives;

  DirectRings(uint32_t blocks, uint32_t entries, uint32_t segments)
      : sends(blocks, record(MLX5_SND_DBR)), receives(entries, segments, record(MLX5_RCV_DBR)) {}
  __be32& record(int which) { return reinterpret_cast<__be32*>(records.data())[which]; }
};

struct Qp : ibv_qp {
  ibv_qp_init_attr init;
  uint16_t most_header;  ///< of IBV_WR_TSO
  WorkRing<SendRequest> sends;
  WorkRing<ReceiveRequest> receives;
  std::unique_ptr<DirectRings> direct;
  Table* table = nullptr;  ///< then it has no rings, and frames for it are the queue's there
  std::unique_ptr<Coalescing> coalescing;  ///< of a TIR with LRO

  Qp(const ibv_qp_init_attr& attr, uint16_t tso_header)
      : ibv_qp{},
        init(attr),
        most_header(tso_header),
        sends(attr.cap.max_send_wr, attr.cap.max_send_sge,
              std::max<uint32_t>(attr.cap.max_inline_data, tso_header)),
        receives(attr.cap.max_recv_wr, attr.cap.max_recv_sge, 0) {}
  bool can_receive() const { return table != nullptr || init.cap.max_recv_wr > 0; }
  bool is_untouched() const { return sends.idle() && receives.idle(); }
  void give_rings();
  Cq& sent() const { return *static_cast<Cq*>(send_cq); }
  Cq& received() const { return *static_cast<Cq*>(recv_cq); }
};

/// As large as rdma-core makes them for the same capabilities.
inline void Qp::give_rings() {
  constexpr uint32_t kOverhead = sizeof(mlx5_wqe_ctrl_seg) + sizeof(mlx5_wqe_eth_seg), kUnit = 16;
  const auto aligned = [](uint32_t n) { return (n + kUnit - 1) / kUnit * kUnit; };
  const uint32_t gather = init.cap.max_send_sge * kUnit + aligned(most_header);
  const uint32_t inlined =
      aligned(static_cast<uint32_t>(sizeof(mlx5_wqe_inl_data_seg)) + init.cap.max_inline_data);
  const uint32_t bytes = kOverhead + std::max(gather, inlined);
  const uint32_t each = (bytes + MLX5_SEND_WQE_BB - 1) / MLX5_SEND_WQE_BB;
  direct = std::make_unique<DirectRings>(std::bit_ceil(std::max(1U, init.cap.max_send_wr) * each),
                                         std::bit_ceil(std::max(1U, init.cap.max_recv_wr)),
                                         std::max(1U, init.cap.max_recv_sge));
  sends = WorkRing<SendRequest>(1, SendRing::kMaxSegments, SendRing::kMaxBytes);
  receives = WorkRing<ReceiveRequest>(1, std::bit_ceil(std::max(1U, init.cap.max_recv_sge)), 0);
}

}  // namespace vireo::softnic
