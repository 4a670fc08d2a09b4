// Recognises checksums that were never computed. A kernel leaves TCP and UDP checksums to the
// sending NIC; until then the field holds the sum of the pseudo-header, from which the NIC
// continues. If frames stay on one host (veth, bridges, virtio), there is no such NIC and no wire
// that could corrupt them, so they are good as they are. Frames from a wire are never unfinished,
// so the check applies only to drivers without a wire (Interface::is_virtual). One finished frame
// in 65,535 looks unfinished by chance; corruption on a wire behind a bridge then goes undetected.
// Owner: none. Thread: any. Source: Linux's skbuff.h, CHECKSUM_PARTIAL; virtio 1.2 §5.1.6.2,
// VIRTIO_NET_HDR_F_NEEDS_CSUM.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/byteorder.h"
#include "core/checksum.h"

namespace vireo::xdp {

namespace detail {
inline constexpr uint32_t kEthernetBytes = 14;
inline constexpr uint32_t kIp4Bytes = 20;

/// `addresses`: their sum. `at`: offset of the TCP or UDP header.
inline bool is_pseudo_sum(const std::byte* frame, uint32_t bytes, uint32_t at, uint8_t proto,
                          uint16_t l4_bytes, uint64_t addresses) noexcept {
  constexpr uint8_t kTcp = 6;
  constexpr uint8_t kUdp = 17;
  const uint32_t field_at = at + (proto == kTcp ? 16 : 6);
  if ((proto != kTcp && proto != kUdp) || field_at + 2 > bytes) return false;
  const uint64_t sum =
      checksum::add(addresses, uint64_t{checksum::word(proto)} + checksum::word(l4_bytes));
  return checksum::fold(sum) == checksum::detail::load<uint16_t>(frame + field_at);
}
/// Frames with VLAN tags or options, and IPv6.
bool is_unfinished_else(const std::byte* frame, uint32_t bytes) noexcept;
}  // namespace detail

/// True if the TCP or UDP checksum of the frame is unfinished. For a packet in several buffers,
/// pass the first. Never reads beyond `bytes`; false for malformed frames.
inline bool is_unfinished(const std::byte* frame, uint32_t bytes) noexcept {
  using checksum::detail::load;
  constexpr uint32_t kIpAt = detail::kEthernetBytes;
  constexpr uint32_t kL4At = kIpAt + detail::kIp4Bytes;
  if (bytes < kL4At || load<uint16_t>(frame + kIpAt - 2) != be16(uint16_t{0x0800}).raw() ||
      frame[kIpAt] != std::byte{0x45}) [[unlikely]]
    return detail::is_unfinished_else(frame, bytes);
  const std::byte* const ip = frame + kIpAt;
  const uint32_t l4_bytes = std::byteswap(load<uint16_t>(ip + 2)) - detail::kIp4Bytes;
  return detail::is_pseudo_sum(frame, bytes, kL4At, static_cast<uint8_t>(ip[9]),
                               static_cast<uint16_t>(l4_bytes), load<uint64_t>(ip + 12));
}

}  // namespace vireo::xdp
