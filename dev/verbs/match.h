// Finds the port and RDMA device that belong to a network interface. Two sources agree or complete
// each other: sysfs ties a device to the interfaces of its PCI function; the GID table ties a port
// to every interface that has an address there, a VLAN or a bond above it too, and knows devices
// that sysfs does not show. Owner: none (functions). Thread: any, after load_libibverbs(). Source:
// ibv_get_device_list(3), ibv_query_gid_table(3); Linux, Documentation/ABI/stable/
// sysfs-class-infiniband and testing/sysfs-class-net (dev_port).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/types.h"

namespace vireo::verbs {

/// The devices of the host; they stay known for as long as one of them is open.
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

/// Nothing if sysfs does not tie the interface to the device. Costs no open.
std::optional<uint8_t> port_by_sysfs(const ibv_device& device, std::string_view interface);

/// Nothing if no GID of the device bears the interface's index.
std::optional<uint8_t> port_by_gid(ibv_context* context, IfIndex ifindex);

}  // namespace vireo::verbs
