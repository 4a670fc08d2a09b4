// Reads an interface's name, driver, MTU, address and queues, by ioctl(2), without netlink. Owner:
// none (values). Thread: any; setup only. Source: netdevice(7), linux/ethtool.h.
#pragma once

#include <net/if.h>

#include <array>
#include <cstdint>

#include "core/result.h"
#include "core/types.h"

namespace vireo::xdp {

struct Interface {
  char name[IFNAMSIZ] = "";
  uint32_t mtu = 1500;  ///< largest IP packet
  uint32_t queues = 1;  ///< RX/TX queue pairs
  std::array<uint8_t, 6> mac{};
  /// VLAN tags come beside the frames, where XDP does not see them: DeviceCaps::hides_tags.
  const char* hides_tags = nullptr;
  bool is_virtual = false;  ///< a peer may be on this host, with no wire between: unfinished.h
  bool is_tap = false;      ///< tun(4): its native XDP is generic for what a sender has joined
};

/// @return ENODEV if there is no such interface in the current network namespace.
Result<Interface> describe(IfIndex ifindex);

}  // namespace vireo::xdp
