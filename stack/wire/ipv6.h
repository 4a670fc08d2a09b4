// IPv6 header and the extension headers that we skip. Owner: none. Thread: any. Source: RFC 8200
// §3, §4.
#pragma once

#include <array>
#include <cstdint>

#include "core/byteorder.h"
#include "stack/wire/ipv4.h"

namespace vireo::wire {

struct Ipv6Header {
  be32 version_class_flow;  ///< version 4, traffic class 8, flow label 20
  be16 payload_length;      ///< bytes after this header
  uint8_t next_header;
  uint8_t hop_limit;
  std::array<uint8_t, 16> src;
  std::array<uint8_t, 16> dst;

  unsigned version() const { return version_class_flow >> 28; }
  uint8_t traffic_class() const { return static_cast<uint8_t>(version_class_flow >> 20); }
  uint32_t flow_label() const { return version_class_flow & 0xfffff; }
  Ecn ecn() const { return static_cast<Ecn>(traffic_class() & 3); }
};
static_assert(sizeof(Ipv6Header) == 40 && alignof(Ipv6Header) == 1);

/// Next Header values that are not an upper layer.
enum class Ipv6Extension : uint8_t {
  kHopByHop = 0,
  kRouting = 43,
  kFragment = 44,
  kNoNext = 59,
  kDestination = 60,
};

/// Common start of hop-by-hop, routing and destination options headers.
struct Ipv6ExtensionHeader {
  uint8_t next_header;
  uint8_t length;         ///< in units of 8 bytes, without the first 8
  uint8_t type;           ///< routing type, otherwise option data
  uint8_t segments_left;  ///< routing only

  unsigned bytes() const { return (length + 1U) * 8; }
};
static_assert(sizeof(Ipv6ExtensionHeader) == 4);

}  // namespace vireo::wire
