// Neighbours: the Ethernet address of an IP address on a link (RTM_NEWNEIGH; arp(7),
// linux/neighbour.h). Owner: the snapshot that contains the table. Thread: any; a published table
// never changes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/address.h"
#include "core/types.h"
#include "stack/net/links.h"

namespace vireo::net {

/// NUD_*, with the kernel's values. kNone also means that the kernel has no entry.
enum class NeighbourState : uint8_t {
  kNone = 0,
  kIncomplete = 0x01,
  kReachable = 0x02,
  kStale = 0x04,
  kDelay = 0x08,
  kProbe = 0x10,
  kFailed = 0x20,
  kNoArp = 0x40,
  kPermanent = 0x80,
};

/// Its Ethernet address may be used (NUD_VALID).
constexpr bool is_usable(NeighbourState s) { return (static_cast<uint8_t>(s) & 0xde) != 0; }
/// Its use should request confirmation by the kernel (request_neighbour).
constexpr bool wants_kick(NeighbourState s) { return s == NeighbourState::kStale || !is_usable(s); }

struct Neighbour {
  IfIndex ifindex{};
  IpAddr addr{};
  Mac mac{};
  NeighbourState state = NeighbourState::kNone;

  bool operator==(const Neighbour&) const = default;
};

/// Sorted by interface, then address.
struct Neighbours {
  std::vector<Neighbour> all;
  const Neighbour* find(IfIndex ifindex, const IpAddr& addr) const;
};

}  // namespace vireo::net
