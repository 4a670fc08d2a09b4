// The processes that share interfaces by AF_XDP, as a DeviceGroup. Owner: none. Thread: any; setup
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/result.h"
#include "dev/device_group.h"

namespace vireo {

/// Whether the kernel lets several processes have the rings of a queue. Before Linux 6.4 nobody can
/// map FILL and COMPLETION of a socket that is bound (EBUSY).
bool kernel_shares_queues() noexcept;

struct XdpGroupOptions {
  size_t group_bytes = 0;  ///< packet memory of a new group, pinned by its first interface
  size_t most_bytes = 0;   ///< most of it for this process
  uint32_t frame_bytes = 2048;
  bool huge_pages = false;
};

/// Enters the group of processes of this user and network namespace, or founds it. Interfaces that
/// are opened on its packet memory are shared. Errors: ETIMEDOUT its members do not answer, EBUSY
/// it is full, ENOMEM its packet memory is used up, ENOTSUP another version of the library, EEXIST
/// the process is a member.
Result<std::shared_ptr<DeviceGroup>> enter_xdp_group(const XdpGroupOptions& options);

}  // namespace vireo
