// An interface in use: its device, and the queues that the engine polls.
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
  QueueLosses losses;         ///< of all queues, at the last look
  QueueLosses losses_before;  ///< of the queues of its earlier device (move_port.cpp)
  tcp::BurstLimits burst;     ///< limits of what one call of the device sends
  bool segments = false;      ///< sends a burst in one frame, which the device cuts (TSO)
  bool joins = false;         ///< sends a burst as one longer segment in one frame, where the path
                              ///< carries it
  bool corks = false;         ///< a doorbell is a system call: doorbell_policy.h
  bool dead = false;
  bool has_copies = false;  ///< the last queue is that of Device::open_copies()

  Queue& queue() { return *queues.front(); }
};

/// The interface whose device receives the link's frames.
inline IfIndex carrier_of(const net::Link& l) {
  return l.kind == net::LinkKind::kVlan ? l.lower : l.index;
}

}  // namespace vireo
