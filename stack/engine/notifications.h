// Reports to the socket layer: one per flow and burst, with all that happened in it.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include "stack/engine/flow.h"
#include "stack/engine/part.h"

namespace vireo {

struct Hub;

class Notifications : Part {
 public:
  /// `e` happened to `f`: queues it for output if it has something to send, and for delivery at the
  /// end of the turn.
  void note(TcpFlow& f, tcp::Effects e) noexcept;
  /// Its queue grew, or it has an error.
  void note(UdpFlow& u) noexcept;
  /// Delivers all reports.
  void deliver(Instant now) noexcept;
  bool empty() const noexcept { return tcp_.empty() && udp_.empty(); }
  /// Connections with a report to deliver.
  size_t connections() const noexcept { return tcp_.size(); }

 private:
  Hub& hub() const noexcept;
  FlowList<TcpFlow, &TcpFlow::notify_hook> tcp_;
  FlowList<UdpFlow, &UdpFlow::notify_hook> udp_;
};

}  // namespace vireo
