// Segments to IP packets and back, without an Ethernet header, as a tun device carries them.
// Owner: none (functions). Thread: any. Source: RFC 791, RFC 8200, RFC 9293 §3.1.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tests/script/host.h"

namespace vireo::packetdrill {

/// An address and port; IPv4 in the first four bytes.
struct Place {
  bool v6 = false;
  std::array<uint8_t, 16> address{};
  uint16_t port = 0;
  bool operator==(const Place&) const = default;
  static std::optional<Place> of(const sockaddr* sa, socklen_t length);
};

/// About a packet of ours, which it quotes.
struct IcmpError {
  int error = 0;
  uint32_t mtu = 0;
  uint32_t seq = 0;
  Place from, to;  ///< of the quoted packet
};

/// `from`, `to`: the two ends of the connection, as its peer sees them.
struct Arrived {
  Place from, to;
  script::WireSegment segment;
  std::optional<IcmpError> icmp;
};

/// Nullopt: neither TCP nor an ICMP error about it.
std::optional<Arrived> parse_packet(std::span<const uint8_t> packet);
std::vector<uint8_t> build_packet(const Place& from, const Place& to,
                                  const script::WireSegment& segment);

}  // namespace vireo::packetdrill
