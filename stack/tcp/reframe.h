// Moves unsent data between frames. Frames are filled when the program writes, and the segment size
// may differ when they are sent. Bytes are copied, so it is not for the common case. Owner: a Tcb.
// Thread: holder of its engine's lock.
#pragma once

#include <cstdint>

namespace vireo::tcp {

struct Tcb;

/// Makes the next frame to send `bytes` long, with unsent bytes of the frames behind it.
/// @return false: nothing was changed, because it is longer or partly sent, or no frame is free.
bool join_unsent(Tcb& t, uint32_t bytes);

/// Moves what the next frame to send has beyond `bytes` to the front of the frame behind it, if
/// that has room: otherwise every second segment would be tiny.
void pass_on_rest(Tcb& t, uint32_t bytes);

}  // namespace vireo::tcp
