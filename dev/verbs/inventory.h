// Lists the RDMA devices, what each reports, and the interfaces of its ports; for diagnostics, off
// any data path. Completion queues are created and destroyed; nothing else is changed.
// Owner: the caller (values). Thread: any. Source: ibv_query_device_ex(3), ibv_query_port(3),
// ibv_create_cq_ex(3), ibv_query_rt_values_ex(3).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/types.h"

namespace vireo::verbs {

struct NamedInterface {
  IfIndex index{};
  std::string name;
};

struct TiedInterface {
  NamedInterface interface;
  bool by_sysfs = false;  ///< else by the GID table
};

struct PortFacts {
  uint8_t number = 1;
  bool ethernet = false;  ///< link layer; else InfiniBand, whose raw packets are not Ethernet
  bool active = false;
  double gbits = 0;  ///< 0: unknown
  std::vector<TiedInterface> interfaces;
};

struct DeviceFacts {
  std::string name;      ///< "mlx5_0"
  std::string node;      ///< "/dev/infiniband/uverbs0"
  std::string sysfs;     ///< "/sys/class/infiniband/mlx5_0"; empty: not in sysfs
  int open_error = 0;    ///< errno; if not 0, the fields below are unknown
  std::string firmware;  ///< ibv_device_attr::fw_ver
  uint32_t vendor = 0, part = 0;
  uint32_t most_requests = 0, most_segments = 0;
  bool checksums = false;      ///< of raw IP packets, computed and verified
  uint32_t tso_max_bytes = 0;  ///< of raw-packet queue pairs; 0: none
  int extended_cq = 0;         ///< errno of creating one; 0: granted
  int tagged_cq = 0;           ///< likewise with the tags of flow rules
  int stamped_cq = 0;          ///< likewise with completion timestamps
  int clock = 0;               ///< errno of reading the device's clock
  uint64_t clock_khz = 0;      ///< 0: not reported
  std::vector<PortFacts> ports;
};

/// The path of the loaded libibverbs.so.1. Errors: ENOENT; libibverbs_failure() then has the
/// loader's message.
Result<std::string> libibverbs_file();
const std::string& libibverbs_failure();

/// Errors: as libibverbs_file(), or the errno of ibv_get_device_list(3).
Result<std::vector<DeviceFacts>> inventory(std::span<const NamedInterface> interfaces);

}  // namespace vireo::verbs
