// IPv4 header, laid over packet memory. Owner: none. Thread: any. Source: RFC 791 §3.1; ECN bits
// RFC 3168.
#pragma once

#include <cstdint>

#include "core/address.h"
#include "core/byteorder.h"

namespace vireo::wire {

/// Congestion field of the traffic class, both families (RFC 3168 §5).
enum class Ecn : uint8_t { kNotEct = 0, kEct1 = 1, kEct0 = 2, kCe = 3 };

struct Ipv4Header {
  uint8_t version_ihl;
  uint8_t tos;
  be16 total_length;
  be16 id;
  be16 fragment;  ///< flags 3, offset 13 in units of 8 bytes
  uint8_t ttl;
  uint8_t protocol;
  be16 checksum;
  be32 src;
  be32 dst;

  static constexpr uint16_t kDontFragment = 0x4000;
  static constexpr uint16_t kMoreFragments = 0x2000;
  static constexpr uint16_t kOffsetMask = 0x1fff;

  unsigned version() const { return version_ihl >> 4; }
  unsigned header_bytes() const { return (version_ihl & 0x0fU) * 4; }
  bool is_fragment() const { return (fragment & (kMoreFragments | kOffsetMask)) != 0; }
  Ecn ecn() const { return static_cast<Ecn>(tos & 3); }
};
static_assert(sizeof(Ipv4Header) == 20 && alignof(Ipv4Header) == 1);

}  // namespace vireo::wire
