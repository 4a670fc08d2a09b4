// Cuts data that was never sent anew: frames are filled as the program writes, and the segment size
// may be another when they leave. Not for the common case: bytes are copied. Owner: a Tcb. Thread:
// holder of its engine's lock.
#pragma once

#include <cstdint>

namespace vireo::tcp {

struct Tcb;

/// The next frame to send gets as long as `bytes`, which are unsent, by those behind it.
/// @return false: nothing was changed, for it is longer, partly sent, or there is no frame.
bool join_unsent(Tcb& t, uint32_t bytes);

/// What the next frame to send has beyond `bytes` goes in front of the one behind it, if that has
/// room: else every second segment would be a tiny one.
void pass_on_rest(Tcb& t, uint32_t bytes);

}  // namespace vireo::tcp
