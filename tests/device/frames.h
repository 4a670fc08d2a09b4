// Valid Ethernet frames for tests, built without the code under test: IPv4 or IPv6, UDP or TCP,
// with true checksums. Owner: none (values). Thread: any. RFC 791, 8200, 768, 9293.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/address.h"

namespace vireo::test {

using Bytes = std::vector<std::byte>;
using Mac = std::array<uint8_t, 6>;

struct FrameSpec {
  Mac from_mac{2, 0, 0, 0, 0, 1};
  Mac to_mac{2, 0, 0, 0, 0, 2};
  std::optional<uint16_t> vlan = {};  ///< 802.1Q TCI
  IpProto proto = IpProto::kUdp;
  Endpoint from;  ///< its family is the frame's
  Endpoint to;
  uint8_t tos = 0;
  uint8_t ttl = 64;
  uint16_t ip_id = 0;  ///< IPv4
  uint32_t seq = 0;    ///< TCP
  uint32_t ack = 0;
  uint8_t flags = 0x18;  ///< PSH ACK
  uint16_t window = 65535;
};

Bytes build_frame(const FrameSpec& spec, std::span<const std::byte> payload);
/// Bytes of the headers of build_frame(spec, ...).
size_t header_bytes(const FrameSpec& spec);
/// `size` bytes that start with `number` and go on with a pattern of it.
Bytes numbered_payload(uint32_t number, size_t size);
/// The number of a frame whose payload is numbered_payload() and starts at `header_bytes`.
uint32_t number_of(std::span<const std::byte> frame, size_t header_bytes);
/// RFC 1071, not complemented, over big-endian words.
uint32_t ones_sum(std::span<const std::byte> bytes, uint32_t start = 0);
/// True if the IPv4 header checksum (if any) and the TCP/UDP checksum hold.
bool checksums_hold(std::span<const std::byte> frame);

}  // namespace vireo::test
