// Where a received datagram came from and went to, read from the headers in front of it.
// Owner: none (functions). Guard: what guards the packet.
#pragma once

#include "core/address.h"
#include "core/packet.h"
#include "stack/engine/flow.h"
#include "stack/wire/parse.h"
#include "stack/wire/plain.h"

namespace vireo {

struct DatagramEnds {
  Endpoint source, destination;  ///< without scope
};

/// `first`: its first buffer.
inline DatagramEnds ends_of(const PacketBuf& first) noexcept {
  if (first.cookie == wire::kPlainUdp4Headers) [[likely]] {
    const std::byte* const payload = first.data();
    const auto end = [](uint32_t address, uint16_t port) {
      return Endpoint{IpAddr::v4(std::bit_cast<be32>(address)), std::byteswap(port), 0};
    };
    return {end(wire::plain_udp4_src(payload), wire::plain_udp4_src_port(payload)),
            end(wire::plain_udp4_dst(payload), wire::plain_udp4_dst_port(payload))};
  }
  const unsigned head = header_bytes(first);
  const auto p = wire::parse_frame({first.data() - head, head + first.length}, UINT16_MAX);
  if (!p) return {};  // it was parsed before
  return {{p.src(), p.src_port, 0}, {p.dst(), p.dst_port, 0}};
}

}  // namespace vireo
