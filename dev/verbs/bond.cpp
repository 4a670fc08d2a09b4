#include "dev/verbs/bond.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace vireo::verbs {
namespace {

/// Reads a sysfs file, without its newlines at the end; empty if it cannot be read.
std::string read_text(const std::string& path) {
  const auto fd =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd < 0) return {};
  char text[4096];
  const auto n = syscall(SYS_read, fd, text, sizeof text);
  syscall(SYS_close, fd);
  std::string out(text, n > 0 ? static_cast<size_t>(n) : 0);
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_there(const std::string& path) {
  return syscall(SYS_faccessat, AT_FDCWD, path.c_str(), F_OK) == 0;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

/// PCI domain, bus and slot of the target of `link`, the same for all functions of a card; empty:
/// not on PCI.
std::string slot_of(const std::string& link) {
  char to[512];
  const auto n = syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), to, sizeof to);
  if (n <= 0) return {};
  const std::string target(to, static_cast<size_t>(n));
  const std::string last = target.substr(target.find_last_of('/') + 1);
  const size_t dot = last.find('.');
  const bool is_pci = last.find(':') != std::string::npos && dot != std::string::npos;
  return is_pci ? last.substr(0, dot) : std::string();
}

std::string folder_of(std::string_view bond, std::string_view sysfs) {
  return std::string(sysfs) + "/class/net/" + std::string(bond) + "/bonding/";
}

}  // namespace

std::optional<Bond> read_bond(std::string_view interface, std::string_view sysfs) {
  if (interface.empty()) return std::nullopt;
  const std::string folder = folder_of(interface, sysfs);
  const std::string mode = read_text(folder + "mode");  // "active-backup 1"
  if (mode.empty()) return std::nullopt;
  Bond b;
  b.name = interface;
  b.members = words_of(read_text(folder + "slaves"));
  b.has_backups = mode.starts_with("active-backup");
  if (b.has_backups) b.active = active_member(interface, sysfs);
  return b;
}

std::string active_member(std::string_view bond, std::string_view sysfs) {
  return read_text(folder_of(bond, sysfs) + "active_slave");
}

std::vector<std::string> receivers(const Bond& bond) {
  if (!bond.has_backups) return bond.members;
  return bond.active.empty() ? std::vector<std::string>() : std::vector{bond.active};
}

bool is_common(const Bond& bond, const DevicePlace& device, std::string_view sysfs) {
  const std::string path(device.path);
  // While the ports receive separately, the device shows several ports.
  if (bond.members.empty() || path.empty() || is_there(path + "/ports/2")) return false;
  const std::string slot = slot_of(path + "/device");
  return !slot.empty() && std::ranges::all_of(bond.members, [&](const std::string& member) {
    const std::string function = std::string(sysfs) + "/class/net/" + member + "/device";
    // A member with an RDMA device of its own does not share this one.
    return slot_of(function) == slot &&
           (!is_there(function + "/infiniband") ||
            is_there(function + "/infiniband/" + std::string(device.name)));
  });
}

const char* refusal_of(const Bond& bond, const DevicePlace& device, std::string_view sysfs) {
  if (bond.members.empty()) return "bond without members";
  if (is_common(bond, device, sysfs)) return nullptr;
  if (bond.has_backups) return bond.active.empty() ? "bond without an active member" : nullptr;
  if (bond.members.size() == 1) return nullptr;
  return "bond whose members receive by devices of their own";
}

}  // namespace vireo::verbs
