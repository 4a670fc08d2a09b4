#include "stack/wire/parse.h"

#include "core/checksum.h"

namespace vireo::wire {
namespace {

constexpr unsigned kMaxExtensions = 8;

/// Reads headers from the frame, never beyond its end.
struct Cursor {
  std::span<const std::byte> frame;
  size_t packet_bytes;  ///< including further buffers

  template <class H>
  const H* at(size_t offset) const {
    static_assert(alignof(H) == 1);
    if (frame.size() < offset || frame.size() - offset < sizeof(H)) return nullptr;
    return reinterpret_cast<const H*>(frame.data() + offset);
  }
};

/// Parses Ethernet and tags. Sets `inside` to the EtherType after them, and l3_at.
ParseError parse_ethernet(const Cursor& c, ParsedFrame& f, EtherType& inside) {
  const auto* eth = c.at<EthernetHeader>(0);
  if (eth == nullptr) return ParseError::kTruncated;
  inside = eth->type();
  f.l3_at = sizeof(EthernetHeader);
  while (inside == EtherType::kVlan || inside == EtherType::kServiceVlan) [[unlikely]] {
    const auto* tag = c.at<VlanTag>(f.l3_at);
    if (tag == nullptr) return ParseError::kTruncated;
    if (f.tags == 2) return ParseError::kTooManyTags;
    (f.tags == 0 ? f.vlan_tci : f.inner_tci) = tag->tci;
    ++f.tags;
    f.l3_at = static_cast<uint16_t>(f.l3_at + sizeof(VlanTag));
    inside = static_cast<EtherType>(static_cast<uint16_t>(tag->ether_type));
  }
  return ParseError::kNone;
}

ParseError parse_ipv4(const Cursor& c, ParsedFrame& f, uint8_t& protocol) {
  const auto* ip = c.at<Ipv4Header>(f.l3_at);
  if (ip == nullptr) return ParseError::kTruncated;
  const unsigned header = ip->header_bytes();
  const unsigned total = ip->total_length;
  if (ip->version() != 4 || header < sizeof(Ipv4Header) || total < header)
    return ParseError::kBadIpHeader;
  if (total > c.packet_bytes - f.l3_at) return ParseError::kTruncated;
  if (ip->is_fragment()) return ParseError::kFragment;
  f.ttl = ip->ttl;
  f.tos = ip->tos;
  f.l4_at = static_cast<uint16_t>(f.l3_at + header);
  f.l4_bytes = static_cast<uint16_t>(total - header);
  protocol = ip->protocol;
  return ParseError::kNone;
}

/// Skips options that do not concern a receiver; refuses those that would change the destination.
ParseError walk_extensions(const Cursor& c, ParsedFrame& f, uint8_t& protocol) {
  for (unsigned i = 0; i <= kMaxExtensions; ++i) {
    switch (static_cast<Ipv6Extension>(protocol)) {
      case Ipv6Extension::kFragment:
        return ParseError::kFragment;
      case Ipv6Extension::kHopByHop:
      case Ipv6Extension::kRouting:
      case Ipv6Extension::kDestination:
        break;
      default:
        return ParseError::kNone;
    }
    if (f.l4_bytes < 8) return ParseError::kTruncated;
    const auto* x = c.at<Ipv6ExtensionHeader>(f.l4_at);
    // The whole header must be in this buffer, or the next one would be read outside it.
    if (x == nullptr || x->bytes() > f.l4_bytes || x->bytes() > c.frame.size() - f.l4_at)
      return ParseError::kTruncated;
    if (protocol == static_cast<uint8_t>(Ipv6Extension::kRouting) && x->segments_left != 0)
      return ParseError::kExtension;
    if (protocol == static_cast<uint8_t>(Ipv6Extension::kHopByHop) && i != 0)
      return ParseError::kExtension;  // RFC 8200 §4.1: only directly after the IPv6 header
    protocol = x->next_header;
    f.l4_at = static_cast<uint16_t>(f.l4_at + x->bytes());
    f.l4_bytes = static_cast<uint16_t>(f.l4_bytes - x->bytes());
  }
  return ParseError::kExtension;
}

/// An IPv4-mapped address (RFC 4291 §2.5.5.2): invalid on the wire, and internally it would be
/// taken for the IPv4 address.
bool is_mapped(const std::array<uint8_t, 16>& a) { return std::bit_cast<IpAddr>(a).is_v4(); }

ParseError parse_ipv6(const Cursor& c, ParsedFrame& f, uint8_t& protocol) {
  const auto* ip = c.at<Ipv6Header>(f.l3_at);
  if (ip == nullptr) return ParseError::kTruncated;
  if (ip->version() != 6 || is_mapped(ip->src) || is_mapped(ip->dst))
    return ParseError::kBadIpHeader;
  const unsigned payload = ip->payload_length;
  if (payload > c.packet_bytes - f.l3_at - sizeof(Ipv6Header)) return ParseError::kTruncated;
  f.is_v6 = true;
  f.ttl = ip->hop_limit;
  f.tos = ip->traffic_class();
  f.l4_at = static_cast<uint16_t>(f.l3_at + sizeof(Ipv6Header));
  f.l4_bytes = static_cast<uint16_t>(payload);
  protocol = ip->next_header;
  if (protocol == static_cast<uint8_t>(IpProto::kTcp) ||
      protocol == static_cast<uint8_t>(IpProto::kUdp)) [[likely]]
    return ParseError::kNone;
  return walk_extensions(c, f, protocol);
}

ParseError parse_tcp(const Cursor& c, ParsedFrame& f) {
  if (f.l4_bytes < sizeof(TcpHeader)) return ParseError::kTruncated;
  const auto* tcp = c.at<TcpHeader>(f.l4_at);
  if (tcp == nullptr) return ParseError::kTruncated;
  const TcpHeader& h = *tcp;
  const unsigned header = h.header_bytes();
  if (header < sizeof(TcpHeader) || header > f.l4_bytes) return ParseError::kBadL4Header;
  if (header > c.frame.size() - f.l4_at) return ParseError::kTruncated;
  f.src_port = h.src_port;
  f.dst_port = h.dst_port;
  f.payload_at = static_cast<uint16_t>(f.l4_at + header);
  f.payload_bytes = static_cast<uint16_t>(f.l4_bytes - header);
  return ParseError::kNone;
}

ParseError parse_udp(const Cursor& c, ParsedFrame& f) {
  if (f.l4_bytes < sizeof(UdpHeader)) return ParseError::kTruncated;
  const auto* udp = c.at<UdpHeader>(f.l4_at);
  if (udp == nullptr) return ParseError::kTruncated;
  const UdpHeader& h = *udp;
  const unsigned length = h.length;
  // As Linux: a datagram may be shorter than its IP packet; the rest is cut. Length 0 (a jumbogram)
  // is refused.
  if (length < sizeof(UdpHeader) || length > f.l4_bytes) return ParseError::kBadL4Header;
  f.src_port = h.src_port;
  f.dst_port = h.dst_port;
  f.l4_bytes = static_cast<uint16_t>(length);
  f.payload_at = static_cast<uint16_t>(f.l4_at + sizeof(UdpHeader));
  f.payload_bytes = static_cast<uint16_t>(length - sizeof(UdpHeader));
  return ParseError::kNone;
}

ParseError parse_icmp(const Cursor& c, ParsedFrame& f) {
  if (f.l4_bytes < sizeof(IcmpHeader)) return ParseError::kTruncated;
  if (c.at<IcmpHeader>(f.l4_at) == nullptr) return ParseError::kTruncated;
  // Errors quote some hundred bytes; one that continues in another buffer is not read.
  if (f.l4_bytes > c.frame.size() - f.l4_at) return ParseError::kTruncated;
  f.payload_at = static_cast<uint16_t>(f.l4_at + sizeof(IcmpHeader));
  f.payload_bytes = static_cast<uint16_t>(f.l4_bytes - sizeof(IcmpHeader));
  return ParseError::kNone;
}

ParseError parse(const Cursor& c, ParsedFrame& f) {
  EtherType inside{};
  if (const auto e = parse_ethernet(c, f, inside); e != ParseError::kNone) return e;
  uint8_t protocol = 0;
  ParseError e = ParseError::kNotIp;
  if (inside == EtherType::kIpv4)
    e = parse_ipv4(c, f, protocol);
  else if (inside == EtherType::kIpv6)
    e = parse_ipv6(c, f, protocol);
  if (e != ParseError::kNone) return e;
  f.proto = static_cast<IpProto>(protocol);
  switch (f.proto) {
    case IpProto::kTcp:
      return parse_tcp(c, f);
    case IpProto::kUdp:
      return parse_udp(c, f);
    case IpProto::kIcmp:
      return f.is_v6 ? ParseError::kUnknownProtocol : parse_icmp(c, f);
    case IpProto::kIcmpV6:
      return f.is_v6 ? parse_icmp(c, f) : ParseError::kUnknownProtocol;
  }
  return ParseError::kUnknownProtocol;
}

}  // namespace

ParsedFrame parse_frame(std::span<const std::byte> frame, size_t beyond) noexcept {
  ParsedFrame f;
  f.frame = frame.data();
  f.frame_bytes = static_cast<uint32_t>(frame.size());
  f.error = parse(Cursor{frame, frame.size() + beyond}, f);
  return f;
}

bool ipv4_header_ok(const ParsedFrame& f) noexcept {
  if (f.is_v6) return true;
  const std::byte* const ip = f.frame + f.l3_at;
  const unsigned n = f.l4_at - f.l3_at;
  // Without options the length is constant, and the sum takes five loads.
  return checksum::is_good(n == sizeof(Ipv4Header) ? checksum::sum(ip, sizeof(Ipv4Header))
                                                   : checksum::sum(ip, n));
}

bool l4_checksum_ok(const ParsedFrame& f) noexcept {
  if (f.proto == IpProto::kUdp && f.udp().checksum.raw() == 0) return !f.is_v6;
  return checksum::is_good(pseudo_header_sum(f) + checksum::sum(f.l4()));
}

checksum::Sum pseudo_header_sum(const ParsedFrame& f) noexcept {
  if (f.is_v6) return checksum::pseudo_v6(&f.ipv6().src, &f.ipv6().dst, f.proto, f.l4_bytes);
  if (f.proto == IpProto::kIcmp) return 0;
  return checksum::pseudo_v4(f.ipv4().src, f.ipv4().dst, f.proto, f.l4_bytes);
}

const char* parse_error_name(ParseError e) noexcept {
  switch (e) {
    case ParseError::kNone:
      return "none";
    case ParseError::kTruncated:
      return "truncated";
    case ParseError::kTooManyTags:
      return "too many VLAN tags";
    case ParseError::kNotIp:
      return "not IP";
    case ParseError::kBadIpHeader:
      return "bad IP header";
    case ParseError::kFragment:
      return "fragment";
    case ParseError::kExtension:
      return "extension header";
    case ParseError::kUnknownProtocol:
      return "unknown protocol";
    case ParseError::kBadL4Header:
      return "bad transport header";
  }
  return "?";
}

}  // namespace vireo::wire
