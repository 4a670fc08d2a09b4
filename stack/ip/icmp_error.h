// ICMP errors about packets that we sent: what happened, to which flow, and the errno that Linux
// reports for it. The error is not trusted: TCP still checks that the quoted sequence number is in
// flight (RFC 5927). Owner: none (values). Thread: any. Source: RFC 792, RFC 1191, RFC 4443; errnos
// and hardness as Linux's icmp_err_convert and icmpv6_err_convert.
#pragma once

#include <cstdint>
#include <optional>

#include "core/address.h"
#include "stack/wire/parse.h"

namespace vireo::ip {

enum class IcmpErrorKind : uint8_t {
  kNetUnreachable,
  kHostUnreachable,
  kProtocolUnreachable,
  kPortUnreachable,
  kProhibited,  ///< by an administrator or policy
  kTooBig,      ///< `mtu` is what the next hop carries
  kTimeExceeded,
  kParameterProblem,
};

struct IcmpError {
  IcmpErrorKind kind = IcmpErrorKind::kNetUnreachable;
  IpProto proto = IpProto::kTcp;  ///< of the quoted packet: TCP or UDP
  bool hard =
      false;  ///< ends a connection attempt and is told to a connected UDP socket; soft: a hint
  uint8_t type = 0;  ///< as received, for IP_RECVERR
  uint8_t code = 0;
  int error = 0;         ///< errno
  uint32_t mtu = 0;      ///< kTooBig: at least the floor of the family, see below
  uint32_t tcp_seq = 0;  ///< sequence number of the quoted segment
  Endpoint local;        ///< source of the quoted packet: us
  Endpoint remote;       ///< its destination
  IpAddr reporter;       ///< who sent the error
};

/// The least MTU we believe (Linux: ip_rt_min_pmtu; RFC 8200 §5): a lower one is taken as this.
inline constexpr uint32_t kMinPathMtuV4 = 552;
inline constexpr uint32_t kMinPathMtuV6 = 1280;

/// Reads an ICMP or ICMPv6 error out of an accepted frame, its checksum included. nullopt: not an
/// error we act on (queries, redirects, source quench), malformed, not about TCP or UDP, or about a
/// packet that the receiver of the error did not send.
std::optional<IcmpError> parse_icmp_error(const wire::ParsedFrame& f) noexcept;

}  // namespace vireo::ip
