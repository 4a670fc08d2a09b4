// Waits for the kernel's receive path. Owner: none. Thread: any; may sleep.
#pragma once

namespace vireo::xdp {

/// Returns when no processor is in a receive path any more that it was in at the call: what was
/// removed from the steering program before has no effect from then on (an RCU grace period).
void wait_for_softirqs() noexcept;

}  // namespace vireo::xdp
