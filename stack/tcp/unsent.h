// Appends to the last frame of the queue, or to one not sent, and tells how much it still takes.
// Private to stack/tcp. Owner: a Tcb. Thread: holder of its engine's lock.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/checksum.h"
#include "stack/tcp/tcb.h"

namespace vireo::tcp {

/// Bytes of one segment that a frame holds, of at most `mss`.
inline uint32_t fits_frame(const Tcb& t, uint32_t mss) {
  return std::min<uint32_t>(mss, t.pool->frame_bytes() - PacketPool::kHeadroom);
}

/// `packet` is of text, ours alone, and may be written.
inline bool is_unsent(const Tcb& t, const SendDesc& d) {
  return d.offset >= t.snd_max && d.packet != nullptr && d.packet->refs == 1;
}

/// Copies `n` bytes behind what is in the frame, and into its sum. Requires room for them.
inline void add_text(PacketBuf& b, const void* data, uint32_t n) {
  const uint64_t s = checksum::copy_and_sum_unfolded(b.data() + b.length, data, n);
  b.sum = checksum::fold(checksum::add(b.sum, std::rotl(s, 8 * (b.length & 1))));
  b.length = static_cast<uint16_t>(b.length + n);
}

}  // namespace vireo::tcp
