#include "stack/wire/fragment.h"

namespace vireo::wire {
namespace {

/// RFC 8200 §4.5: all but the last are multiples of 8 bytes (IPv4's are cut to that, as in Linux).
/// With a large offset the end may exceed the largest packet.
bool is_sound(const Fragment& f) noexcept {
  return f.bytes != 0 && (!f.more || f.bytes % 8 == 0) && f.end() <= UINT16_MAX;
}

}  // namespace

std::optional<Fragment> parse_fragment(const ParsedFrame& f) noexcept {
  Fragment out;
  // parse_frame() has verified the IP header, and that the packet has its stated length.
  if (!f.is_v6) {
    const Ipv4Header& ip = f.ipv4();
    out.id = ip.id;
    out.proto = ip.protocol;
    out.more = (ip.fragment & Ipv4Header::kMoreFragments) != 0;
    out.offset = static_cast<uint16_t>((ip.fragment & Ipv4Header::kOffsetMask) * 8);
    out.bytes = static_cast<uint16_t>(ip.total_length - ip.header_bytes());
    if (out.more) out.bytes = static_cast<uint16_t>(out.bytes & 0xfff8);
    out.data_at = static_cast<uint16_t>(f.l3_at + ip.header_bytes());
  } else {
    constexpr size_t kHeaders = sizeof(Ipv6Header) + sizeof(Ipv6FragmentHeader);
    const Ipv6Header& ip = f.ipv6();
    if (static_cast<Ipv6Extension>(ip.next_header) != Ipv6Extension::kFragment ||
        ip.payload_length < sizeof(Ipv6FragmentHeader) || f.frame_bytes < f.l3_at + kHeaders)
      return std::nullopt;
    const auto& h = *reinterpret_cast<const Ipv6FragmentHeader*>(&ip + 1);
    out.id = h.id;
    out.proto = h.next_header;
    out.more = (h.fragment & Ipv6FragmentHeader::kMoreFragments) != 0;
    out.offset = static_cast<uint16_t>(h.fragment & Ipv6FragmentHeader::kOffsetMask);
    out.bytes = static_cast<uint16_t>(ip.payload_length - sizeof(Ipv6FragmentHeader));
    out.data_at = static_cast<uint16_t>(f.l3_at + kHeaders);
  }
  if (!is_sound(out) || out.data_at >= f.frame_bytes) return std::nullopt;
  return out;
}

}  // namespace vireo::wire
