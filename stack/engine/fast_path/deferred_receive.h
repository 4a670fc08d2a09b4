// Work of receiving that a call left to whoever takes the engine's lock next: an answer went
// straight to the program (receive_awaited.h), and its connection is as it is afterwards but for
// what nobody looks at who sends on it: the acknowledged segment is still in the queue.
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
  /// Of an answer that `f` answers right now.
  void finish_answered(TcpFlow& f) noexcept;
  /// Of one that is not answered yet.
  void finish() noexcept;
  void finish_if_left() noexcept {
    if (is_left()) [[unlikely]]
      finish();
  }
  /// `f` ends.
  void forget(const TcpFlow& f) noexcept {
    if (flow_ == &f) flow_ = nullptr;
  }

 private:
  Hub& hub() const noexcept;
  TcpFlow* flow_ = nullptr;
  tcp::AwaitedAnswer answer_;
};

}  // namespace vireo
