// The kernel's tables of a made-up host: one interface, one router that all else lies behind.
// Owner: none (values). Thread: any.
#pragma once

#include <memory>

#include "stack/net/snapshot.h"

namespace vireo::test {

inline IpAddr ip(const char* text) { return *IpAddr::parse(text); }

/// Of the first host and its router.
inline constexpr net::Mac kHostMac{2, 0, 0, 0, 0, 1}, kRouterMac{2, 0, 0, 0, 0, 2};
inline constexpr IfIndex kEth0{2}, kVlan{3};

struct Place {
  const char* v4 = "10.0.0.1";
  const char* v6 = "fd00::1";
  net::Mac mac = kHostMac;
  net::Mac router_mac = kRouterMac;
  bool knows_router = true;  ///< false: its Ethernet address is still asked for
  uint16_t vlan = 0;         ///< if not 0, addresses and routes are those of a VLAN upon eth0
  uint32_t mtu = 1500;
  std::array<uint8_t, 16> egress_qos{};  ///< of the VLAN
};

std::unique_ptr<net::Snapshot> tables(const Place& at);

}  // namespace vireo::test
