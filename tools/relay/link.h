// One direction of a link: a bounded queue, a wire that drains it at its rate, then a delay that
// takes no space in the queue. It only computes times; the caller keeps the frames. Owner: a
// direction of the relay. Thread: the relay's only one.
//
//   arrival --> [ waits: frames, bytes ] --> wire, rate --> delay +- jitter --> due
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>

#include "impairments.h"

namespace relay {

class Link {
 public:
  static constexpr uint32_t kFrameOverhead = 24;  ///< bytes: FCS, preamble and inter-frame gap

  explicit Link(const Impairments& im)
      : bits_per_second_(im.bits_per_second),
        delay_(im.delay),
        limit_frames_(im.limit),
        limit_bytes_(im.queue_bytes) {}

  /// A frame of `bytes` arrives. `jitter` is added to the delay; it spreads the frames but keeps
  /// their order, because reordering is a separate impairment. @return when the frame leaves the
  /// far end; nullopt: the queue is full. A frame on the wire no longer waits; an idle wire needs
  /// no queue.
  std::optional<Nanos> admit(uint32_t bytes, Nanos arrival, Nanos jitter = 0) {
    arrival_ = std::max(arrival_, arrival);
    Nanos due = arrival_;
    if (bits_per_second_ > 0) {
      while (!waiting_.empty() && waiting_.front().start <= arrival_) {
        waiting_bytes_ -= waiting_.front().bytes;
        waiting_.pop_front();
      }
      if (wire_free_ > arrival_) {
        if (waiting_.size() >= limit_frames_ || waiting_bytes_ + bytes > limit_bytes_)
          return std::nullopt;
        waiting_.push_back({wire_free_, bytes});
        waiting_bytes_ += bytes;
        most_waiting_bytes_ = std::max(most_waiting_bytes_, waiting_bytes_);
      }
      const double bits = (bytes + double{kFrameOverhead}) * 8;
      wire_free_ =
          std::max(wire_free_, arrival_) + static_cast<Nanos>(bits * 1e9 / bits_per_second_);
      due = wire_free_;
    }
    last_due_ = std::max(last_due_, due + delay_ + jitter);
    return last_due_;
  }

  uint64_t waiting_bytes() const { return waiting_bytes_; }  ///< at the latest arrival
  uint64_t most_waiting_bytes() const { return most_waiting_bytes_; }

 private:
  struct Waiting {
    Nanos start;  ///< when its transmission starts
    uint32_t bytes;
  };

  double bits_per_second_;
  Nanos delay_;
  uint64_t limit_frames_, limit_bytes_;
  Nanos arrival_ = INT64_MIN;
  Nanos wire_free_ = INT64_MIN;
  Nanos last_due_ = INT64_MIN;
  std::deque<Waiting> waiting_;
  uint64_t waiting_bytes_ = 0;
  uint64_t most_waiting_bytes_ = 0;
};

}  // namespace relay
