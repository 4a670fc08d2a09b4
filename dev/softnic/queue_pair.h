// Raw-packet queue pairs: their two rings of work requests.
// Owner: Nic. Thread: holder of the port's lock. Source: ibv_create_qp(3), ibv_post_send(3),
// ibv_post_recv(3).
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "dev/softnic/completion.h"

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
  uint64_t wr_id;
  unsigned flags;  ///< IBV_SEND_*
  uint32_t segments;
  uint32_t inline_bytes;  ///< in bytes_of(): the frame, or the header of what is to be segmented
  uint16_t mss;           ///< > 0: IBV_WR_TSO
  uint32_t sent_bytes;    ///< of a payload that is being segmented
};

struct ReceiveRequest {
  uint64_t wr_id;
  uint32_t segments;
};

struct Qp : ibv_qp {
  ibv_qp_init_attr init;
  uint16_t most_header;  ///< of IBV_WR_TSO
  WorkRing<SendRequest> sends;
  WorkRing<ReceiveRequest> receives;

  Qp(const ibv_qp_init_attr& attr, uint16_t tso_header)
      : ibv_qp{},
        init(attr),
        most_header(tso_header),
        sends(attr.cap.max_send_wr, attr.cap.max_send_sge,
              std::max<uint32_t>(attr.cap.max_inline_data, tso_header)),
        receives(attr.cap.max_recv_wr, attr.cap.max_recv_sge, 0) {}
  Cq& sent() const { return *static_cast<Cq*>(send_cq); }
  Cq& received() const { return *static_cast<Cq*>(recv_cq); }
};

}  // namespace vireo::softnic
