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
  int64_t queued_at;  ///< when it became due for sending, ns of CLOCK_REALTIME
  int64_t left_at;    ///< when the device had it
};

}  // namespace vireo
