// What the device sees of a frame: the headers that flow rules match and checksums cover.
// Owner: none; borrows the frame. Thread: any. Source: RFC 791, 8200, 768, 9293; IEEE 802.1Q.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace vireo::softnic {

enum class Ip : uint8_t { kNone, k4, k6 };

/// Ports and addresses stay in network order, as flow rules have them.
struct Headers {
  std::array<uint8_t, 6> dst_mac{};
  std::array<uint8_t, 6> src_mac{};
  uint16_t ether_type = 0;  ///< behind the VLAN tags
  uint16_t vlan_tag = 0;    ///< the outer one; 0: untagged
  Ip ip = Ip::kNone;
  std::array<uint8_t, 16> src{};  ///< IPv4: the first four bytes
  std::array<uint8_t, 16> dst{};
  uint8_t proto = 0;  ///< 0 for a fragment: it has no L4 header that may be matched
  uint8_t tos = 0;
  uint8_t ttl = 0;
  uint32_t flow_label = 0;
  uint16_t src_port = 0;
  uint16_t dst_port = 0;
  size_t l3_at = 0;
  size_t l4_at = 0;
  size_t l4_bytes = 0;  ///< header and payload; 0: no whole TCP or UDP header
  bool is_multicast() const { return (dst_mac[0] & 1) != 0; }
};

Headers parse(std::span<const std::byte> frame) noexcept;

/// True if the IPv4 header checksum and that of TCP or UDP hold; false for anything else than IP.
bool checksums_hold(std::span<const std::byte> frame, const Headers& h) noexcept;

/// True if the IPv4 header checksum holds, or the packet is IPv6, which has none.
bool ip_checksum_holds(std::span<const std::byte> frame, const Headers& h) noexcept;

/// Fills in what checksums_hold() looks at; leaves other frames alone.
void fill_checksums(std::span<std::byte> frame) noexcept;

}  // namespace vireo::softnic
