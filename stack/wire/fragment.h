// The fragment fields of a packet. Owner: none; borrows the frame. Thread: any. Source: RFC 791
// §3.1, RFC 8200 §4.5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/byteorder.h"
#include "stack/wire/parse.h"

namespace vireo::wire {

/// IPv6's Fragment header.
struct Ipv6FragmentHeader {
  uint8_t next_header;
  uint8_t reserved;
  be16 fragment;  ///< offset 13 in units of 8 bytes, reserved 2, more-fragments 1
  be32 id;

  static constexpr uint16_t kMoreFragments = 1;
  static constexpr uint16_t kOffsetMask = 0xfff8;  ///< gives the offset in bytes
};
static_assert(sizeof(Ipv6FragmentHeader) == 8 && alignof(Ipv6FragmentHeader) == 1);

struct Fragment {
  uint32_t id = 0;
  uint8_t proto = 0;     ///< of the data: IPv4's protocol, or the Fragment header's next header
  bool more = false;     ///< not the last fragment
  uint16_t offset = 0;   ///< offset of its data in the packet, bytes
  uint16_t bytes = 0;    ///< data bytes
  uint16_t data_at = 0;  ///< offset of its data in the frame

  uint32_t end() const { return uint32_t{offset} + bytes; }
};

/// Parses a frame that parse_frame() refused with ParseError::kFragment. nullopt: it is malformed,
/// or other extension headers precede IPv6's Fragment header.
std::optional<Fragment> parse_fragment(const ParsedFrame& f) noexcept;

}  // namespace vireo::wire
