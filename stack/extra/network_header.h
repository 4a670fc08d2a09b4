// The headers of what a connected socket sends: get_socket_network_header of the extra API.
// Owner: none (functions). Thread: any. Locks: takes the engine's itself.
#pragma once

#include <cstddef>

#include "core/result.h"
#include "stack/sock/fd_table.h"

namespace vireo::extra {

/// Writes Ethernet, IP and UDP or TCP headers, with zeros for what each packet sets, to `out` of
/// `room` bytes; null: only tells their size. @return the size. Errors: ENOTCONN no peer, or
/// nothing was sent to it yet; ENOBUFS `room` is too small.
Result<size_t> network_header(Handle h, void* out, size_t room);

}  // namespace vireo::extra
