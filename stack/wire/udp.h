// UDP header, laid over packet memory. Owner: none. Thread: any. Source: RFC 768.
#pragma once

#include <cstdint>

#include "core/byteorder.h"

namespace vireo::wire {

struct UdpHeader {
  be16 src_port;
  be16 dst_port;
  be16 length;    ///< header and payload
  be16 checksum;  ///< 0 = none (IPv4 only)
};
static_assert(sizeof(UdpHeader) == 8 && alignof(UdpHeader) == 1);

}  // namespace vireo::wire
