// What the kernel reports about XDP on an interface, without opening anything: the attached program
// and the driver's features (netdev netlink family, linux/netdev.h; Linux 6.3 and up).
// Owner: none (functions). Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/types.h"

namespace vireo::doctor {

struct Attached {
  uint32_t program = 0;  ///< BPF program ID; 0: none
  std::string how;       ///< "native", "generic", "offloaded", "several"
};
Attached attached_program(IfIndex ifindex);

inline constexpr uint64_t kXdpBasic = 1;
inline constexpr uint64_t kXdpRedirect = 2;
inline constexpr uint64_t kXskZeroCopy = 8;
inline constexpr uint64_t kXdpRxSg = 32;
/// NETDEV_A_DEV_XDP_FEATURES; nullopt if the kernel does not report it.
std::optional<uint64_t> xdp_features(IfIndex ifindex);

/// Name of the driver (/sys/class/net/NAME/device/driver); empty for virtual interfaces.
std::string driver_of(const std::string& interface);

}  // namespace vireo::doctor
