// The TCP segment size that fits a path MTU (RFC 9293 §3.7.1, RFC 6691).
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
/// `mss`, at most what the path carries; `mtu` 0: not known.
constexpr uint16_t mss_within(uint16_t mss, uint32_t mtu, bool v6) {
  return mtu == 0 ? mss : std::min(mss, mss_of(mtu, v6));
}

}  // namespace vireo
