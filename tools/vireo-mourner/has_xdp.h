// Tells whether an XDP program is attached to an interface. While ours is, the peers' answers do
// not reach the kernel. Owner: the mourner. Thread: one. Source: rtnetlink(7), linux/if_link.h.
#pragma once

#include <cstdint>

namespace vireo {

/// @return false also if the interface is gone or the kernel does not report it.
bool has_xdp(uint32_t ifindex);

}  // namespace vireo
