// How a flow's frames leave: the next hop and the header that they share. Looked up once; each send
// compares the generation only. Owner: the flow. Thread: holder of the engine's lock.
#pragma once

#include <cstdint>

#include "stack/net/lookup.h"
#include "stack/wire/template.h"

namespace vireo {

struct Port;

struct CachedRoute {
  wire::HeaderTemplate header;
  Port* port = nullptr;
  uint32_t generation = 0;  ///< of the snapshot it was resolved from; 0 = not resolved
  uint32_t mtu = 0;         ///< largest IP packet, after ICMP reports
  uint32_t link_mtu = 0;    ///< of the route or interface
  IfIndex ifindex{};        ///< of the route, for IP_PKTINFO and confirmations
  Instant asked{};          ///< when the kernel was last asked to resolve or confirm it
};

}  // namespace vireo
