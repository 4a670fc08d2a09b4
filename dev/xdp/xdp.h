// The AF_XDP back end: any Linux network interface as a Device, with its queues as rings shared
// with the kernel. Owner: the caller of open_xdp. Thread: open_queue, steer and the removal of a
// rule may come from any thread (one internal lock, never held on the data path); a Queue belongs
// to the holder of its engine's lock. Source: Documentation/networking/af_xdp.rst, linux/if_xdp.h.
//
// After fork() the child may destroy its copies of Queue and Device if it first calls
// FlowRule::abandon() on its rules; that closes its descriptors without effect on the parent's.
// Until it does so, closes those descriptors otherwise (core/own_fds.h) or calls exec, it keeps the
// parent's sockets and program alive.
#pragma once

#include <cstdint>
#include <memory>

#include "core/arena.h"
#include "core/result.h"
#include "core/types.h"
#include "dev/device.h"

namespace vireo {

enum class XdpMode : uint8_t {
  kAuto,      ///< zero-copy if the driver supports it, else native copy, else generic
  kZeroCopy,  ///< the NIC accesses the arena directly; fail otherwise
  kNative,    ///< program in the driver, frames copied
  kGeneric,   ///< program in the stack: works on any interface
};

struct XdpOptions {
  XdpMode mode = XdpMode::kAuto;
  uint32_t rx_frames = 2048;      ///< RX and FILL ring entries, a power of two
  uint32_t tx_frames = 2048;      ///< TX and COMPLETION ring entries, a power of two
  uint32_t max_flows = 65536;     ///< exact rules per family
  uint32_t max_listeners = 4096;  ///< local and wildcard rules per family
  uint32_t busy_poll_us =
      0;  ///< > 0: idle rx_burst() runs the driver by a system call (SO_PREFER_BUSY_POLL)
  uint32_t busy_poll_budget = 64;  ///< most frames per busy poll
  bool need_wakeup = true;         ///< kick only if the kernel asks for it
  bool tags =
      false;  ///< pass FlowTags as XDP metadata; costs more than the look-up it saves (see bench)
};

/// Opens interface `ifindex` of the current network namespace and attaches the steering program.
/// Packets live in `arena`, which must outlive the device; devices on one arena share its
/// registration. Errors: EBUSY the interface has an XDP program already, EPERM (where names the
/// capability), ENODEV, ENOTSUP the mode or the kernel's AF_XDP is missing, ENOMEM. open_queue()
/// adds: EBUSY the queue is taken, ENOMEM (where names RLIMIT_MEMLOCK), EINVAL a pool outside the
/// arena.
Result<std::unique_ptr<Device>> open_xdp(IfIndex ifindex, Arena& arena, const XdpOptions& options);

}  // namespace vireo
