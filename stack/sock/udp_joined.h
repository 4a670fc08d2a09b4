// UDP_GRO: equal datagrams of one peer that lie in the queue are given to the program as one, with
// the size of each (udp(7)). On Linux the device and the moment decide which are joined, so a
// program takes them either way. Here those are joined that fit into the program's buffer.
// Owner: none (functions). Guard: the engine's lock.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "stack/engine/flow.h"

namespace vireo {

/// Datagrams from the front of a queue.
struct Joined {
  unsigned datagrams = 1;
  uint32_t segment = 0;  ///< bytes of each but the last, which may have fewer
  size_t bytes = 0;      ///< of all
};

/// The first alone. The queue is not empty.
inline Joined first_alone(const UdpFlow& u) noexcept {
  Joined one;
  for (const PacketBuf* p = u.queue.front();; p = p->next) {
    one.bytes += p->length;
    if (p->offset == 0) break;  // 1: the datagram continues in the next buffer
  }
  one.segment = static_cast<uint32_t>(one.bytes);
  return one;
}

/// The first, and those behind it that may be joined to it.
Joined join_alike(const UdpFlow& u, const msghdr& msg) noexcept;

}  // namespace vireo
