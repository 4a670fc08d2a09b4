// A frame with payload that a watched flow gave to its device, as the socket layer is told.
// Owner: the caller; everything here ends with the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/packet.h"
#include "core/seq.h"
#include "core/types.h"

namespace vireo {

struct LeftFrame {
  std::span<const std::byte> head;    ///< headers, from Ethernet's on
  std::span<const PacketSlice> text;  ///< payload
  uint32_t bytes;                     ///< of payload
  StreamOffset offset;                ///< TCP: of the first of them
  IfIndex interface;
  /// Right before the device got it, ns of CLOCK_REALTIME. Not after: by then the peer may have it.
  int64_t time;
};

}  // namespace vireo
