// The segment size that a path of a given MTU carries (RFC 9293 §3.7.1, RFC 6691).
// Owner: none. Thread: any.
#pragma once

#include <algorithm>
#include <cstdint>

namespace vireo {

/// Payload and options of a TCP segment that fits an IP packet of `mtu` bytes.
constexpr uint16_t mss_of(uint32_t mtu, bool v6) {
  const uint32_t headers = (v6 ? 40 : 20) + 20;
  return static_cast<uint16_t>(std::clamp<uint32_t>(mtu, headers + 48, 65'535) - headers);
}

}  // namespace vireo
