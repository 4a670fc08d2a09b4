// ICMP headers of both families, and the error types that transports use. Owner: none. Thread: any.
// Source: RFC 792, RFC 1191 §4 (next-hop MTU), RFC 4443 §2-3.
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

enum class Icmp6Type : uint8_t {
  kUnreachable = 1,
  kTooBig = 2,
  kTimeExceeded = 3,
  kParameterProblem = 4,
};

}  // namespace vireo::wire
