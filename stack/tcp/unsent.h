// Appends to an unsent frame of the queue, and computes how much fits. Private to stack/tcp. Owner:
// a Tcb. Thread: holder of its engine's lock.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/checksum.h"
#include "stack/tcp/tcb.h"

namespace vireo::tcp {

/// Payload bytes of one segment that fit in a frame, at most `mss`.
inline uint32_t fits_frame(const Tcb& t, uint32_t mss) {
  return std::min<uint32_t>(mss, t.pool->frame_bytes() - PacketPool::kHeadroom);
}

/// The frame holds data, is not shared, and may be written.
inline bool is_unsent(const Tcb& t, const SendDesc& d) {
  return d.offset >= t.snd_max && d.packet != nullptr && d.packet->refs == 1;
}

/// Appends `n` bytes to the frame and adds them to its checksum. Requires room for them.
inline void add_text(PacketBuf& b, const void* data, uint32_t n) {
  const uint64_t s = checksum::copy_and_sum_unfolded(b.data() + b.length, data, n);
  b.sum = checksum::fold(checksum::add(b.sum, std::rotl(s, 8 * (b.length & 1))));
  b.length = static_cast<uint16_t>(b.length + n);
}

}  // namespace vireo::tcp
