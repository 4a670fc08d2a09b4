// A send whose frame goes nowhere: it brings code, headers, counters and a buffer into the caches,
// so that the next send finds them there (VMA_SND_FLAGS_DUMMY of the extra API). No state of the
// flow changes, and no device or peer notices.
// Owner: none (functions). Thread: holder of the engine's lock.
#pragma once

#include <sys/uio.h>

#include "core/clock.h"
#include "stack/engine/flow.h"

namespace vireo {

/// The first frame's worth of `data`, as to the flow's last destination. @return false: nothing was
/// done, as no egress is known, no buffer is free, or `data` is not readable.
bool warm_datagram(PacketPool& pool, UdpFlow& f, const iovec& data) noexcept;
/// The same for the first segment's worth on an established connection.
bool warm_segment(PacketPool& pool, TcpFlow& f, const iovec& data, Instant now) noexcept;

}  // namespace vireo
