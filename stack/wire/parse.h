// One pass over a received frame: Ethernet, up to two VLAN tags, IPv4 or IPv6, TCP, UDP or ICMP.
//
//   frame |Ethernet|tags|IP, options|L4 header|payload|padding|
//                       ^l3_at      ^l4_at    ^payload_at
//                                   |<----- l4_bytes ---->|
// The IP (and UDP) length excludes the padding.
// All offsets of an accepted frame are within the frame. Checksums are not verified here: the
// device may have done it, otherwise ipv4_header_ok() and l4_checksum_ok() do. Owner: none; borrows
// the frame. Thread: any. Source: RFC 791, RFC 8200, RFC 9293 §3.1, RFC 768.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/address.h"
#include "core/checksum.h"
#include "core/types.h"
#include "stack/wire/ethernet.h"
#include "stack/wire/icmp.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/ipv6.h"
#include "stack/wire/tcp.h"
#include "stack/wire/udp.h"

namespace vireo::wire {

enum class ParseError : uint8_t {
  kNone,
  kTruncated,        ///< shorter than its headers, or than its stated length
  kTooManyTags,      ///< three or more
  kNotIp,            ///< another EtherType
  kBadIpHeader,      ///< version, header length or total length is invalid
  kFragment,         ///< to be read by parse_fragment()
  kExtension,        ///< unsupported IPv6 extension header: source route, too many, unknown
  kUnknownProtocol,  ///< not TCP, UDP or the family's ICMP
  kBadL4Header,      ///< TCP data offset or UDP length is invalid
};
const char* parse_error_name(ParseError e) noexcept;

struct ParsedFrame {
  const std::byte* frame = nullptr;  ///< borrowed
  uint32_t frame_bytes = 0;          ///< in the first buffer, at `frame`
  ParseError error = ParseError::kTruncated;
  IpProto proto = IpProto::kTcp;
  bool is_v6 = false;
  uint8_t tags = 0;        ///< VLAN tags, 0 to 2
  uint16_t vlan_tci = 0;   ///< outer tag, if tags > 0
  uint16_t inner_tci = 0;  ///< inner tag, if tags > 1
  uint8_t ttl = 0;         ///< or hop limit
  uint8_t tos = 0;         ///< or traffic class, ECN bits included
  uint16_t l3_at = 0;
  uint16_t l4_at = 0;
  uint16_t l4_bytes = 0;    ///< L4 header and payload
  uint16_t payload_at = 0;  ///< for ICMP: after its 8 bytes
  uint16_t payload_bytes = 0;
  uint16_t src_port = 0;  ///< host order; 0 for ICMP
  uint16_t dst_port = 0;

  explicit operator bool() const { return error == ParseError::kNone; }
  const EthernetHeader& ethernet() const { return at<EthernetHeader>(0); }
  const Ipv4Header& ipv4() const { return at<Ipv4Header>(l3_at); }
  const Ipv6Header& ipv6() const { return at<Ipv6Header>(l3_at); }
  const TcpHeader& tcp() const { return at<TcpHeader>(l4_at); }
  const UdpHeader& udp() const { return at<UdpHeader>(l4_at); }
  const IcmpHeader& icmp() const { return at<IcmpHeader>(l4_at); }
  std::span<const std::byte> l4() const { return here(l4_at, l4_bytes); }
  std::span<const std::byte> payload() const { return here(payload_at, payload_bytes); }
  VlanId vlan() const { return VlanId(static_cast<uint16_t>(vlan_tci & 0x0fff)); }
  bool is_to_group_mac() const { return is_group(ethernet().dst); }
  Ecn ecn() const { return static_cast<Ecn>(tos & 3); }
  IpAddr src() const { return is_v6 ? address(ipv6().src) : address(ipv4().src); }
  IpAddr dst() const { return is_v6 ? address(ipv6().dst) : address(ipv4().dst); }
  /// The exact flow, with the destination as the local end. Scopes are 0.
  FlowKey flow() const {
    return {proto, is_v6, VlanId(), {dst(), dst_port, 0}, {src(), src_port, 0}};
  }

 private:
  /// The part in the first buffer: all of it, unless the packet has several.
  std::span<const std::byte> here(uint32_t at, uint32_t bytes) const {
    return {frame + at, std::min(bytes, frame_bytes - at)};
  }
  template <class H>
  const H& at(unsigned offset) const {
    static_assert(alignof(H) == 1);
    return *reinterpret_cast<const H*>(frame + offset);
  }
  static IpAddr address(const std::array<uint8_t, 16>& a) { return std::bit_cast<IpAddr>(a); }
  static IpAddr address(be32 a) {
    const uint32_t words[4] = {0, 0, be32(0xffff).raw(), a.raw()};
    return std::bit_cast<IpAddr>(words);
  }
};

/// Parses the frame, which starts at its Ethernet header. If `error` is not kNone, only the fields
/// before the error are valid. `beyond`: bytes of the packet in further buffers (multi-buffer
/// devices); all headers must be in this one.
ParsedFrame parse_frame(std::span<const std::byte> frame, size_t beyond = 0) noexcept;

/// IPv4 header checksum; true for IPv6, which has none. Requires an accepted frame.
bool ipv4_header_ok(const ParsedFrame& f) noexcept;

/// TCP, UDP or ICMP checksum, in software. A UDP checksum of 0 means none for IPv4 (true) and is an
/// error for IPv6 (RFC 8200 §8.1). Requires an accepted frame.
bool l4_checksum_ok(const ParsedFrame& f) noexcept;
/// Sum of the pseudo-header, to be added to the sum over f.l4(): for packets in several buffers,
/// whose further buffers the caller adds with checksum::combine().
checksum::Sum pseudo_header_sum(const ParsedFrame& f) noexcept;

}  // namespace vireo::wire
