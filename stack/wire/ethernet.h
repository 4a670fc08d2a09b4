// Ethernet II header and 802.1Q tags. Layouts over packet memory, alignment 1.
// Owner: none (values). Thread: any. Source: IEEE 802.3 §3.2, 802.1Q §9.6.
#pragma once

#include <array>
#include <cstdint>

#include "core/byteorder.h"

namespace vireo::wire {

/// 48-bit address, in wire order.
using MacAddr = std::array<uint8_t, 6>;
inline constexpr MacAddr kBroadcastMac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
constexpr bool is_group(const MacAddr& a) { return (a[0] & 1) != 0; }  ///< multicast or broadcast

/// The group address that carries an IPv4 (RFC 1112 §6.4) or IPv6 (RFC 2464 §7) multicast
/// destination.
constexpr MacAddr multicast_mac_v4(be32 group) {
  const uint32_t g = group;
  return {0x01,
          0x00,
          0x5e,
          static_cast<uint8_t>((g >> 16) & 0x7f),
          static_cast<uint8_t>(g >> 8),
          static_cast<uint8_t>(g)};
}
constexpr MacAddr multicast_mac_v6(const std::array<uint8_t, 16>& group) {
  return {0x33, 0x33, group[12], group[13], group[14], group[15]};
}

enum class EtherType : uint16_t {
  kIpv4 = 0x0800,
  kArp = 0x0806,
  kVlan = 0x8100,  ///< 802.1Q customer tag
  kIpv6 = 0x86dd,
  kServiceVlan = 0x88a8,  ///< 802.1ad
};

struct EthernetHeader {
  MacAddr dst;
  MacAddr src;
  be16 ether_type;

  EtherType type() const { return static_cast<EtherType>(static_cast<uint16_t>(ether_type)); }
};
static_assert(sizeof(EthernetHeader) == 14 && alignof(EthernetHeader) == 1);

/// What follows an EtherType that says "tag".
struct VlanTag {
  be16 tci;         ///< priority 3, DEI 1, VID 12
  be16 ether_type;  ///< of what follows

  uint16_t vid() const { return tci & 0x0fff; }
  uint8_t priority() const { return static_cast<uint8_t>(tci >> 13); }
};
static_assert(sizeof(VlanTag) == 4 && alignof(VlanTag) == 1);

}  // namespace vireo::wire
