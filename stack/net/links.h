// The kernel's network interfaces (RTM_NEWLINK; rtnetlink(7), linux/if_link.h).
// Owner: the snapshot that contains the table. Thread: any; a published table never changes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace vireo::net {

/// Ethernet address in wire order.
using Mac = std::array<uint8_t, 6>;

enum class LinkFlags : uint16_t {
  kNone = 0,
  kUp = 1,       ///< IFF_UP: administratively up
  kRunning = 2,  ///< IFF_RUNNING and carrier: frames can leave
  kLoopback = 4,
  kBroadcast = 8,
  kMulticast = 16,
  kPointToPoint = 32,
  kNoArp = 64,      ///< no neighbour resolution
  kEthernet = 128,  ///< ARPHRD_ETHER: frames begin with an Ethernet header
};

}  // namespace vireo::net

template <>
inline constexpr bool vireo::kIsFlags<vireo::net::LinkFlags> = true;

namespace vireo::net {

enum class LinkKind : uint8_t {
  kPhysical,  ///< has no IFLA_INFO_KIND: a NIC (or lo, see flags)
  kVeth,
  kVlan,
  kBond,
  kTeam,
  kBridge,
  kMacvlan,
  kIpvlan,
  kVrf,
  kTun,
  kDummy,
  kOther,
};

struct Link {
  IfIndex index{};
  std::string name{};
  Mac mac{};
  Mac broadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  uint32_t mtu = 0;   ///< largest IP packet
  uint32_t mtu6 = 0;  ///< the same for IPv6 if lower (router advertisement), else 0
  LinkFlags flags = LinkFlags::kNone;
  LinkKind kind = LinkKind::kPhysical;
  std::string kind_name{};   ///< IFLA_INFO_KIND, for messages
  VlanId vlan{};             ///< of a VLAN interface, else 0
  bool vlan_8021ad = false;  ///< its tag is 0x88a8, not 0x8100
  /// egress-qos-map of a VLAN interface: tag priority by socket priority (SO_PRIORITY); larger ones
  /// are not mapped.
  std::array<uint8_t, 16> egress_qos{};
  IfIndex lower{};        ///< VLAN, macvlan, ipvlan: the lower interface, if in this namespace
  IfIndex master{};       ///< bond, bridge or VRF that it belongs to
  uint8_t rp_filter = 0;  ///< effective sysctl net.ipv4.conf.*.rp_filter (RFC 3704)

  bool is_up() const { return has(flags, LinkFlags::kUp); }
  bool is_loopback() const { return has(flags, LinkFlags::kLoopback); }
  bool operator==(const Link&) const = default;
};

/// Sorted by index.
struct Links {
  std::vector<Link> all;

  const Link* find(IfIndex index) const;
  const Link* find(std::string_view name) const;
  bool has_vlans(IfIndex lower) const;  ///< VLAN interfaces on `lower`
  bool operator==(const Links&) const = default;
};

}  // namespace vireo::net
