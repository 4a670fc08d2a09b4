// Chooses the member whose device carries a bond, by sysfs. An RDMA device receives only the frames
// of its own port. So a bond is carried where all frames come by one port: by the active member, or
// by a card that has made one device of its ports (RoCE LAG, "mlx5_bond_0"; mlx4's port remap).
// Owner: none (values, functions). Thread: any. Source: Linux,
// Documentation/networking/bonding.rst; drivers/net/ethernet/mellanox/mlx5/core/lag and mlx4/intf.c
// (one RDMA device, of one port, while the ports of a card are bonded).
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
  std::string active;        ///< then, which; empty: none is
};

/// How libibverbs names a device: ibv_device::name and ::ibdev_path.
struct DevicePlace {
  std::string_view name;
  std::string_view path;
};

inline constexpr const char* kSysfs = "/sys";

/// nullopt: the interface is none.
std::optional<Bond> read_bond(std::string_view interface, std::string_view sysfs = kSysfs);

/// Who is the active one by now; empty: none, or no bond any more.
std::string active_member(std::string_view bond, std::string_view sysfs = kSysfs);

/// Members by whose devices frames come, as far as they have one each.
std::vector<std::string> receivers(const Bond& bond);

/// The device is that of every member, by whichever port frames come.
bool is_common(const Bond& bond, const DevicePlace& device, std::string_view sysfs = kSysfs);

/// Why the device that was found for a bond does not carry it, beginning with "bond"; nullptr: it
/// does.
const char* refusal_of(const Bond& bond, const DevicePlace& device,
                       std::string_view sysfs = kSysfs);

}  // namespace vireo::verbs
