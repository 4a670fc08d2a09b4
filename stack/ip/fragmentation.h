// Cuts a packet into fragments (RFC 791 §3.2, RFC 8200 §4.5). Not for the wire, where Vireo sends
// no fragments: for a receiver that takes a long packet only so (Device::give_to_kernel()). Owner:
// none. Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stack/wire/parse.h"

namespace vireo::ip {

/// The frame `f`, which is in one piece, as frames with at most `data_bytes` (a multiple of 8) of
/// its data each. None: IPv6 with extension headers.
std::vector<std::vector<std::byte>> cut_packet(const wire::ParsedFrame& f, uint32_t id,
                                               uint32_t data_bytes);

}  // namespace vireo::ip
