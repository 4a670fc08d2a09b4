// ICMP errors about packets that we sent: kind, flow, and the errno that Linux reports. The error
// is not trusted: TCP also checks that the quoted sequence number is in flight (RFC 5927).
// Owner: none (values). Thread: any. Source: RFC 792, RFC 1191, RFC 4443; errnos and hardness as
// Linux's icmp_err_convert and icmpv6_err_convert.
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
  kProhibited,  ///< administratively, or by policy
  kTooBig,      ///< `mtu`: MTU of the next hop
  kTimeExceeded,
  kParameterProblem,
};

struct IcmpError {
  IcmpErrorKind kind = IcmpErrorKind::kNetUnreachable;
  IpProto proto = IpProto::kTcp;  ///< of the quoted packet: TCP or UDP
  bool hard = false;              ///< ends a connection attempt, reported to a connected UDP
                                  ///< socket; false: only a hint
  uint8_t type = 0;               ///< as received, for IP_RECVERR
  uint8_t code = 0;
  int error = 0;         ///< errno
  uint32_t mtu = 0;      ///< kTooBig: at least the family's minimum, see below
  uint32_t tcp_seq = 0;  ///< sequence number of the quoted segment
  Endpoint local;        ///< source of the quoted packet: this host
  Endpoint remote;       ///< its destination
  IpAddr reporter;       ///< source of the error
};

/// The least MTU accepted (Linux: ip_rt_min_pmtu; RFC 8200 §5): a lower one is raised to this.
inline constexpr uint32_t kMinPathMtuV4 = 552;
inline constexpr uint32_t kMinPathMtuV6 = 1280;

/// Parses an ICMP or ICMPv6 error from an accepted frame; verifies its checksum. nullopt: not an
/// error that we handle (queries, redirects, source quench), malformed, not about TCP or UDP, or
/// about a packet that the receiver of the error did not send.
std::optional<IcmpError> parse_icmp_error(const wire::ParsedFrame& f) noexcept;

}  // namespace vireo::ip
