// Reads an interface's name, driver, MTU, MAC address and queues by ioctl(2), without netlink.
// Owner: none (values). Thread: any; setup only. Source: netdevice(7), linux/ethtool.h.
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
  /// Set if XDP does not see VLAN tags: DeviceCaps::hides_tags.
  const char* hides_tags = nullptr;
  bool is_virtual = false;  ///< the peer may be on this host, without a wire between: unfinished.h
  bool is_tap = false;      ///< tun(4): its native XDP handles merged packets as generic XDP does
};

/// Errors: ENODEV if there is no such interface in the current network namespace.
Result<Interface> describe(IfIndex ifindex);

}  // namespace vireo::xdp
