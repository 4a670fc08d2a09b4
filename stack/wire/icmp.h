// ICMP headers of both families, the error types that matter to transports. Owner: none. Thread:
// any. Source: RFC 792, RFC 1191 §4 (next-hop MTU), RFC 4443 §2-3.
#pragma once

#include <cstdint>

#include "core/byteorder.h"

namespace vireo::wire {

/// The first 8 bytes of every error; the offending packet follows.
struct IcmpHeader {
  uint8_t type;
  uint8_t code;
  be16 checksum;
  be32 rest;  ///< v4 frag needed: MTU in the low 16 bits; v6 too big: MTU; else unused
};
static_assert(sizeof(IcmpHeader) == 8 && alignof(IcmpHeader) == 1);

enum class Icmp4Type : uint8_t {
  kUnreachable = 3,
  kSourceQuench = 4,
  kRedirect = 5,
  kTimeExceeded = 11,
  kParameterProblem = 12,
};

enum class Icmp4Unreachable : uint8_t {
  kNet = 0,
  kHost = 1,
  kProtocol = 2,
  kPort = 3,
  kFragNeeded = 4,
  kSourceRouteFailed = 5,
  kNetUnknown = 6,
  kHostUnknown = 7,
  kHostIsolated = 8,
  kNetProhibited = 9,
  kHostProhibited = 10,
  kNetTos = 11,
  kHostTos = 12,
  kAdminFiltered = 13,
  kPrecedenceViolation = 14,
  kPrecedenceCutoff = 15,
};

enum class Icmp6Type : uint8_t {
  kUnreachable = 1,
  kTooBig = 2,
  kTimeExceeded = 3,
  kParameterProblem = 4,
};

enum class Icmp6Unreachable : uint8_t {
  kNoRoute = 0,
  kAdminProhibited = 1,
  kBeyondScope = 2,
  kAddress = 3,
  kPort = 4,
  kPolicyFail = 5,
  kRejectRoute = 6,
};

}  // namespace vireo::wire
