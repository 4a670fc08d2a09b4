// Finds the RDMA device and port of a network interface, from two sources. Sysfs links a device to
// the interfaces of its PCI function. The GID table links a port to every interface with an address
// there, also a VLAN or bond above it, and covers devices that sysfs does not show.
// Owner: none (functions). Thread: any, after load_libibverbs(). Source: ibv_get_device_list(3),
// ibv_query_gid_table(3); Linux, Documentation/ABI/stable/sysfs-class-infiniband and
// testing/sysfs-class-net (dev_port).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/types.h"

namespace vireo::verbs {

/// The devices of the host. The pointers stay valid while one of the devices is open.
class DeviceList {
 public:
  DeviceList();
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList();
  std::span<ibv_device*> all() const {
    return {list_, list_ != nullptr ? static_cast<size_t>(count_) : 0};
  }

 private:
  int count_ = 0;
  ibv_device** list_;
};

/// nullopt: sysfs does not link the interface to the device. Opens nothing.
std::optional<uint8_t> port_by_sysfs(const ibv_device& device, std::string_view interface);

/// nullopt: no GID of the device has the interface's index.
std::optional<uint8_t> port_by_gid(ibv_context* context, IfIndex ifindex);

}  // namespace vireo::verbs
