// An interface in use: its device and the queues that the engine polls.
// Owner: Ports. Guard: the engine's lock.
#pragma once

#include <memory>
#include <vector>

#include "dev/device.h"
#include "stack/net/links.h"
#include "stack/tcp/burst.h"

namespace vireo {

struct Port {
  net::Link link;
  std::unique_ptr<Device> device;
  std::vector<std::unique_ptr<Queue>> queues;
  QueueLosses losses;         ///< of all queues at the last look
  QueueLosses losses_before;  ///< of the queues that it had before (move_port.cpp)
  tcp::BurstLimits burst;     ///< what may leave at once
  bool segments = false;      ///< in one frame, for the device cuts it
  bool joins = false;         ///< in one frame, as one segment, where the path takes so long a one
  bool corks = false;         ///< a doorbell is a system call: doorbell_policy.h
  bool dead = false;

  Queue& queue() { return *queues.front(); }
};

/// Whose device brings the link's frames.
inline IfIndex carrier_of(const net::Link& l) {
  return l.kind == net::LinkKind::kVlan ? l.lower : l.index;
}

}  // namespace vireo
