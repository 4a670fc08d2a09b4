// Is an XDP program attached to an interface? While ours is, the peers' answers would not reach the
// kernel. Owner: the mourner. Thread: one. Source: rtnetlink(7), linux/if_link.h.
#pragma once

#include <cstdint>

namespace vireo {

/// @return false also for an interface that is gone, and where the kernel does not say.
bool has_xdp(uint32_t ifindex);

}  // namespace vireo
