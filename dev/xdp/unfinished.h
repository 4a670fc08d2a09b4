// Recognises checksums that nobody has computed. A kernel leaves those of TCP and UDP to the NIC
// that is to send the frame: until then the field holds the sum of the pseudo-header, from which
// the NIC goes on. Where frames stay on one host (veth, bridges, virtio) there is no such NIC, and
// no wire that could harm them: the frame is good as it is. Between hosts no frame may be
// unfinished, so this is asked only where the driver knows of no wire (Interface::is_virtual). One
// finished frame in 65,535 looks so by chance; if a bridge brings it from a wire that has harmed
// it, nothing shows that. Owner: none. Thread: any. Source: Linux's skbuff.h, CHECKSUM_PARTIAL;
// virtio 1.2 §5.1.6.2, VIRTIO_NET_HDR_F_NEEDS_CSUM.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/byteorder.h"
#include "core/checksum.h"

namespace vireo::xdp {

namespace detail {
inline constexpr uint32_t kEthernetBytes = 14;
inline constexpr uint32_t kIp4Bytes = 20;

/// `addresses`: their sum. `at`: of the TCP or UDP header in the frame.
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
/// What has VLAN tags or options, or is not IPv4.
bool is_unfinished_else(const std::byte* frame, uint32_t bytes) noexcept;
}  // namespace detail

/// True if the checksum of the TCP or UDP frame is unfinished. Of a packet that lies in several
/// buffers the first tells it. Reads nothing behind `bytes`; false for what is malformed.
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
