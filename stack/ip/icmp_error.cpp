#include "stack/ip/icmp_error.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

namespace vireo::ip {
namespace {

using wire::Icmp4Type;
using wire::Icmp6Type;
using Kind = IcmpErrorKind;

struct Meaning {
  Kind kind;
  int error;
  bool hard;
};

/// By code of ICMP type 3.
constexpr std::array<Meaning, 16> kUnreachableV4 = {{
    {Kind::kNetUnreachable, ENETUNREACH, false},
    {Kind::kHostUnreachable, EHOSTUNREACH, false},
    {Kind::kProtocolUnreachable, ENOPROTOOPT, true},
    {Kind::kPortUnreachable, ECONNREFUSED, true},
    {Kind::kTooBig, EMSGSIZE, false},
    {Kind::kNetUnreachable, EOPNOTSUPP, false},  // source route failed
    {Kind::kNetUnreachable, ENETUNREACH, true},  // network unknown
    {Kind::kHostUnreachable, EHOSTDOWN, true},   // host unknown
    {Kind::kHostUnreachable, ENONET, true},      // host isolated
    {Kind::kProhibited, ENETUNREACH, true},
    {Kind::kProhibited, EHOSTUNREACH, true},
    {Kind::kNetUnreachable, ENETUNREACH, false},    // for this type of service
    {Kind::kHostUnreachable, EHOSTUNREACH, false},  // for this type of service
    {Kind::kProhibited, EHOSTUNREACH, true},        // filtered
    {Kind::kProhibited, EHOSTUNREACH, true},        // precedence violation
    {Kind::kProhibited, EHOSTUNREACH, true},        // precedence cutoff
}};

/// By code of ICMPv6 type 1.
constexpr std::array<Meaning, 7> kUnreachableV6 = {{
    {Kind::kNetUnreachable, ENETUNREACH, false},
    {Kind::kProhibited, EACCES, true},
    {Kind::kHostUnreachable, EHOSTUNREACH, false},  // beyond the scope of the source address
    {Kind::kHostUnreachable, EHOSTUNREACH, false},
    {Kind::kPortUnreachable, ECONNREFUSED, true},
    {Kind::kProhibited, EACCES, true},  // source address failed policy
    {Kind::kProhibited, EACCES, true},  // reject route
}};

std::optional<Meaning> meaning_v4(uint8_t type, uint8_t code) {
  switch (static_cast<Icmp4Type>(type)) {
    case Icmp4Type::kUnreachable:
      if (code >= kUnreachableV4.size()) return std::nullopt;
      return kUnreachableV4[code];
    case Icmp4Type::kTimeExceeded:
      return Meaning{Kind::kTimeExceeded, EHOSTUNREACH, false};
    case Icmp4Type::kParameterProblem:
      return Meaning{Kind::kParameterProblem, EPROTO, true};
    case Icmp4Type::kSourceQuench:  // RFC 6633: ignored
    case Icmp4Type::kRedirect:
      break;  // handled by the kernel
  }
  return std::nullopt;
}

std::optional<Meaning> meaning_v6(uint8_t type, uint8_t code) {
  switch (static_cast<Icmp6Type>(type)) {
    case Icmp6Type::kUnreachable:
      if (code >= kUnreachableV6.size()) return Meaning{Kind::kHostUnreachable, EPROTO, true};
      return kUnreachableV6[code];
    case Icmp6Type::kTooBig:
      return Meaning{Kind::kTooBig, EMSGSIZE, false};
    case Icmp6Type::kTimeExceeded:
      return Meaning{Kind::kTimeExceeded, EHOSTUNREACH, false};
    case Icmp6Type::kParameterProblem:
      return Meaning{Kind::kParameterProblem, EPROTO, true};
  }
  return std::nullopt;
}

/// The next lower common MTU for a packet that did not fit (RFC 1191 §7.1): for routers that do not
/// report one.
uint32_t plateau_below(uint32_t size) {
  constexpr uint32_t kPlateaus[] = {32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296};
  for (const uint32_t p : kPlateaus)
    if (p < size) return p;
  return 68;
}

/// The beginning of the packet that the error quotes.
struct Quote {
  IpProto proto;
  IpAddr src;
  IpAddr dst;
  uint32_t total_bytes;
  std::span<const std::byte> l4;
};

std::optional<Quote> quote_v4(std::span<const std::byte> q) {
  if (q.size() < sizeof(wire::Ipv4Header)) return std::nullopt;
  const auto& ip = *reinterpret_cast<const wire::Ipv4Header*>(q.data());
  const unsigned header = ip.header_bytes();
  if (ip.version() != 4 || header < sizeof(wire::Ipv4Header) || q.size() < header)
    return std::nullopt;
  if ((ip.fragment & wire::Ipv4Header::kOffsetMask) != 0) return std::nullopt;  // no ports in it
  return Quote{static_cast<IpProto>(ip.protocol), IpAddr::v4(ip.src), IpAddr::v4(ip.dst),
               ip.total_length, q.subspan(header)};
}

std::optional<Quote> quote_v6(std::span<const std::byte> q) {
  if (q.size() < sizeof(wire::Ipv6Header)) return std::nullopt;
  const auto& ip = *reinterpret_cast<const wire::Ipv6Header*>(q.data());
  if (ip.version() != 6) return std::nullopt;
  // We send no extension headers: a quote with one is not of our packet.
  return Quote{static_cast<IpProto>(ip.next_header), std::bit_cast<IpAddr>(ip.src),
               std::bit_cast<IpAddr>(ip.dst),
               static_cast<uint32_t>(ip.payload_length + sizeof(wire::Ipv6Header)),
               q.subspan(sizeof(wire::Ipv6Header))};
}

uint32_t told_mtu(const wire::ParsedFrame& f, uint32_t quoted_bytes) {
  if (f.is_v6) return std::max<uint32_t>(f.icmp().rest, kMinPathMtuV6);
  const uint32_t told = f.icmp().rest & 0xffff;
  return std::max(told != 0 ? told : plateau_below(quoted_bytes), kMinPathMtuV4);
}

}  // namespace

std::optional<IcmpError> parse_icmp_error(const wire::ParsedFrame& f) noexcept {
  if (!f || (f.proto != IpProto::kIcmp && f.proto != IpProto::kIcmpV6)) return std::nullopt;
  const wire::IcmpHeader& h = f.icmp();
  const auto m = f.is_v6 ? meaning_v6(h.type, h.code) : meaning_v4(h.type, h.code);
  if (!m) return std::nullopt;
  const auto q = f.is_v6 ? quote_v6(f.payload()) : quote_v4(f.payload());
  if (!q || q->l4.size() < 8) return std::nullopt;
  if (q->proto != IpProto::kTcp && q->proto != IpProto::kUdp) return std::nullopt;
  // A genuine error goes to the source of the quoted packet; any other is forged.
  if (q->src != f.dst() || q->src.is_multicast() || q->dst.is_unspecified()) return std::nullopt;
  if (!wire::l4_checksum_ok(f)) return std::nullopt;

  // TCP and UDP both begin with their ports; TCP's sequence number completes the eight bytes (RFC
  // 792).
  be16 ports[2];
  be32 seq;
  std::memcpy(static_cast<void*>(ports), q->l4.data(), sizeof ports);
  std::memcpy(static_cast<void*>(&seq), q->l4.data() + 4, sizeof seq);
  IcmpError e;
  e.kind = m->kind;
  e.error = m->error;
  e.hard = m->hard;
  e.type = h.type;
  e.code = h.code;
  e.proto = q->proto;
  e.local = {q->src, ports[0], 0};
  e.remote = {q->dst, ports[1], 0};
  e.reporter = f.src();
  if (q->proto == IpProto::kTcp) e.tcp_seq = seq;
  if (m->kind == Kind::kTooBig) e.mtu = told_mtu(f, q->total_bytes);
  return e;
}

}  // namespace vireo::ip
