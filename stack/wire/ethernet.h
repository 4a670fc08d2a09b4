// Ethernet II header and 802.1Q tags. Layouts over packet memory, alignment 1.
// Owner: none (values). Thread: any. Source: IEEE 802.3 §3.2, 802.1Q §9.6.
#pragma once

#include <array>
#include <cstdint>

#include "core/byteorder.h"

namespace vireo::wire {

/// 48-bit address, in wire order.
using MacAddr = std::array<uint8_t, 6>;
constexpr bool is_group(const MacAddr& a) { return (a[0] & 1) != 0; }  ///< multicast or broadcast

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

/// An 802.1Q tag, after an EtherType of kVlan or kServiceVlan.
struct VlanTag {
  be16 tci;         ///< priority 3, DEI 1, VID 12
  be16 ether_type;  ///< type of what follows

  uint8_t priority() const { return static_cast<uint8_t>(tci >> 13); }
};
static_assert(sizeof(VlanTag) == 4 && alignof(VlanTag) == 1);

}  // namespace vireo::wire
