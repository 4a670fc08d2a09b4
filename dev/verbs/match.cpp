#include "dev/verbs/match.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "dev/verbs/late_libibverbs.h"

namespace vireo::verbs {
namespace {

/// Reads a number from a sysfs file; 0 on failure.
unsigned read_number(const std::string& path) {
  const auto fd =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd < 0) return 0;
  char text[32] = {};
  const auto n = syscall(SYS_read, fd, text, sizeof text - 1);
  syscall(SYS_close, fd);
  return n > 0 ? static_cast<unsigned>(std::strtoul(text, nullptr, 0)) : 0;
}

}  // namespace

DeviceList::DeviceList() : list_(library().get_device_list(&count_)) {}

DeviceList::~DeviceList() {
  if (list_ != nullptr) library().free_device_list(list_);
}

std::optional<uint8_t> port_by_sysfs(const ibv_device& device, std::string_view interface) {
  if (device.ibdev_path[0] == '\0' || interface.empty()) return std::nullopt;
  const std::string dir = std::string(device.ibdev_path) + "/device/net/" + std::string(interface);
  if (syscall(SYS_faccessat, AT_FDCWD, dir.c_str(), F_OK) != 0) return std::nullopt;
  // dev_port numbers the interfaces of one function; older mlx4 used dev_id.
  return static_cast<uint8_t>(
      1 + std::max(read_number(dir + "/dev_port"), read_number(dir + "/dev_id")));
}

std::optional<uint8_t> port_by_gid(ibv_context* context, IfIndex ifindex) {
  if (library().query_gid_table == nullptr) return std::nullopt;
  // The kernel rejects a buffer too small for the whole table; a port has at most hundreds of
  // entries.
  for (const size_t most : {size_t{64}, size_t{1024}, size_t{16'384}}) {
    std::vector<ibv_gid_entry> entries(most);
    const ssize_t n =
        library().query_gid_table(context, entries.data(), most, 0, sizeof(ibv_gid_entry));
    if (n < 0) continue;
    for (const ibv_gid_entry& e : std::span(entries).first(static_cast<size_t>(n)))
      if (e.ndev_ifindex == ifindex.value()) return static_cast<uint8_t>(e.port_num);
    break;
  }
  return std::nullopt;
}

}  // namespace vireo::verbs
