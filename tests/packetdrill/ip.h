// IP packets with a TCP segment in them, as bytes: read, joined to larger ones, cut to smaller
// ones. Without an Ethernet header, as a tun device carries them.
// Owner: none (values and functions). Thread: any. Source: RFC 791, RFC 8200, RFC 9293 §3.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace vireo::packetdrill {

using Bytes = std::vector<uint8_t>;

inline constexpr uint8_t kFin = 0x01, kSyn = 0x02, kRst = 0x04, kPsh = 0x08;

/// Where things are in a packet, and what TCP says.
struct Segment {
  bool v6 = false;
  size_t tcp = 0;      ///< where the TCP header begins,
  size_t payload = 0;  ///< the data
  size_t end = 0;      ///< and where it ends
  uint16_t from_port = 0, to_port = 0;
  uint32_t seq = 0;
  uint8_t flags = 0;

  size_t bytes() const { return end - payload; }
};

/// Nullopt: no TCP segment, or cut off.
std::optional<Segment> read_segment(std::span<const uint8_t> packet);

/// `next` is what `first` would have gone on with: same ends, header and options, next byte.
bool continues(const Bytes& first, const Segment& f, const Bytes& next, const Segment& n);

/// Appends the data and flags of `next`.
void join(Bytes& first, Segment& f, const Bytes& next, const Segment& n);

/// The same data in packets of at most `mtu` bytes, FIN and PSH on the last.
std::vector<Bytes> cut(std::span<const uint8_t> packet, const Segment& s, size_t mtu);

/// Sets lengths and checksums.
void finish(Bytes& packet, const Segment& s);

}  // namespace vireo::packetdrill
