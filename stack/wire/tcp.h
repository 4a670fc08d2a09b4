// TCP header, laid over packet memory. Owner: none. Thread: any. Source: RFC 9293 §3.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/byteorder.h"
#include "core/seq.h"
#include "core/types.h"

namespace vireo::wire {

enum class TcpFlags : uint8_t {
  kNone = 0,
  kFin = 0x01,
  kSyn = 0x02,
  kRst = 0x04,
  kPsh = 0x08,
  kAck = 0x10,
  kUrg = 0x20,
  kEce = 0x40,
  kCwr = 0x80,
};

}  // namespace vireo::wire

template <>
inline constexpr bool vireo::kIsFlags<vireo::wire::TcpFlags> = true;

namespace vireo::wire {

struct TcpHeader {
  be16 src_port;
  be16 dst_port;
  be32 seq_raw;
  be32 ack_raw;
  uint8_t offset_reserved;  ///< data offset 4 (in 32-bit words), reserved 4
  uint8_t flag_bits;
  be16 window;
  be16 checksum;
  be16 urgent;

  Seq32 seq() const { return Seq32(seq_raw); }
  Seq32 ack() const { return Seq32(ack_raw); }
  unsigned header_bytes() const { return (offset_reserved >> 4) * 4U; }
  TcpFlags flags() const { return static_cast<TcpFlags>(flag_bits); }
  /// The option bytes; header_bytes() must have been checked against the packet.
  std::span<const uint8_t> options() const {
    return {reinterpret_cast<const uint8_t*>(this) + sizeof *this, header_bytes() - sizeof *this};
  }
};
static_assert(sizeof(TcpHeader) == 20 && alignof(TcpHeader) == 1);
static_assert(offsetof(TcpHeader, offset_reserved) == 12);

/// Sequence and acknowledgment number in one word, as stored in the header.
constexpr uint64_t segment_numbers(Seq32 seq, Seq32 ack) {
  return uint64_t{be32(ack.value()).raw()} << 32 | be32(seq.value()).raw();
}

}  // namespace vireo::wire
