// What the socket layer is told: once for each flow and burst, whatever happened in it.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include "stack/engine/flow.h"
#include "stack/engine/part.h"

namespace vireo {

struct Hub;

class Notifications : Part {
 public:
  /// `e` happened to `f`: what there is to send is sent, what there is to tell is told with the
  /// turn.
  void note(TcpFlow& f, tcp::Effects e) noexcept;
  /// Its queue grew, or an error came.
  void note(UdpFlow& u) noexcept;
  /// Tells all.
  void deliver(Instant now) noexcept;
  bool empty() const noexcept { return tcp_.empty() && udp_.empty(); }
  /// Connections of which something is to be told.
  size_t connections() const noexcept { return tcp_.size(); }

 private:
  Hub& hub() const noexcept;
  FlowList<TcpFlow, &TcpFlow::notify_hook> tcp_;
  FlowList<UdpFlow, &UdpFlow::notify_hook> udp_;
};

}  // namespace vireo
