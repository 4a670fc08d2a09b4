// Chooses the RDMA device that carries a bond, by sysfs. An RDMA device receives only the frames of
// its own port. So a bond is carried if all frames come through one port: that of the active
// member, or that of a card which joins its ports into one device (RoCE LAG, "mlx5_bond_0"; mlx4's
// port remap).
// Owner: none (values, functions). Thread: any. Source: Linux,
// Documentation/networking/bonding.rst; drivers/net/ethernet/mellanox/mlx5/core/lag and mlx4/intf.c
// (one RDMA device with one port, while the ports of a card are bonded).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vireo::verbs {

struct Bond {
  std::string name;
  std::vector<std::string> members;
  bool has_backups = false;  ///< mode active-backup: one member at a time
  std::string active;        ///< the active member in that mode; empty: none
};

/// The libibverbs identity of a device: ibv_device::name and ::ibdev_path.
struct DevicePlace {
  std::string_view name;
  std::string_view path;
};

inline constexpr const char* kSysfs = "/sys";

/// nullopt: the interface is not a bond.
std::optional<Bond> read_bond(std::string_view interface, std::string_view sysfs = kSysfs);

/// The member that is active now; empty: none, or no longer a bond.
std::string active_member(std::string_view bond, std::string_view sysfs = kSysfs);

/// The members through whose devices frames arrive, if they have one each.
std::vector<std::string> receivers(const Bond& bond);

/// True if all members share this device, whichever port receives.
bool is_common(const Bond& bond, const DevicePlace& device, std::string_view sysfs = kSysfs);

/// Why the device found for a bond cannot carry it; the text begins with "bond". nullptr: it can.
const char* refusal_of(const Bond& bond, const DevicePlace& device,
                       std::string_view sysfs = kSysfs);

}  // namespace vireo::verbs
