// Receive work that a call left for the next holder of the engine's lock: an answer went straight
// to the program (receive_awaited.h). The connection is updated, except for state that a send does
// not read: the acknowledged segment is still in the queue.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include "stack/engine/flow.h"
#include "stack/engine/part.h"
#include "stack/tcp/fast_path/single_segment.h"

namespace vireo {

struct Hub;

class DeferredReceive : Part {
 public:
  bool is_left() const noexcept { return flow_ != nullptr; }
  bool is_left_of(const TcpFlow& f) const noexcept { return flow_ == &f; }
  void leave(TcpFlow& f, const tcp::AwaitedAnswer& answer) noexcept {
    flow_ = &f;
    answer_ = answer;
  }
  /// For an answer that `f` replies to in this call.
  void finish_answered(TcpFlow& f) noexcept;
  /// For an answer without a reply so far.
  void finish() noexcept;
  void finish_if_left() noexcept {
    if (is_left()) [[unlikely]]
      finish();
  }
  /// The life of `f` ends.
  void forget(const TcpFlow& f) noexcept {
    if (flow_ == &f) flow_ = nullptr;
  }

 private:
  Hub& hub() const noexcept;
  TcpFlow* flow_ = nullptr;
  tcp::AwaitedAnswer answer_;
};

}  // namespace vireo
