#include "dev/verbs/context.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/own_fds.h"
#include "dev/verbs/late_libibverbs.h"

namespace vireo::verbs {
namespace {

/// The devices of the host.
class DeviceList {
 public:
  DeviceList() : list_(library().get_device_list(&count_)) {}
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (list_ != nullptr) library().free_device_list(list_);
  }
  std::span<ibv_device*> all() const {
    return {list_, list_ != nullptr ? static_cast<size_t>(count_) : 0};
  }

 private:
  int count_ = 0;
  ibv_device** list_;
};

/// Sysfs ties a device to the interfaces of its PCI function.
bool names_interface(const ibv_device& d, std::string_view interface) {
  if (d.ibdev_path[0] == '\0' || interface.empty()) return false;
  const std::string path = std::string(d.ibdev_path) + "/device/net/" + std::string(interface);
  return syscall(SYS_faccessat, AT_FDCWD, path.c_str(), F_OK) == 0;
}

/// A number from a file of sysfs, or 0.
unsigned read_number(const std::string& path) {
  const auto fd =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd < 0) return 0;
  char text[32] = {};
  const auto n = syscall(SYS_read, fd, text, sizeof text - 1);
  syscall(SYS_close, fd);
  return n > 0 ? static_cast<unsigned>(std::strtoul(text, nullptr, 0)) : 0;
}

/// Interfaces of one function count their ports in dev_port; mlx4 once did so in dev_id.
uint8_t port_of(std::string_view interface) {
  const std::string dir = "/sys/class/net/" + std::string(interface);
  return static_cast<uint8_t>(
      1 + std::max(read_number(dir + "/dev_port"), read_number(dir + "/dev_id")));
}

/// The port whose GID table names the interface; 0: none.
uint8_t port_by_gid(ibv_context* context, IfIndex ifindex) {
  if (library().query_gid_table == nullptr) return 0;
  ibv_gid_entry entries[64];
  const ssize_t n = library().query_gid_table(context, entries, 64, 0, sizeof entries[0]);
  for (ssize_t i = 0; i < n; ++i)
    if (entries[i].ndev_ifindex == ifindex.value())
      return static_cast<uint8_t>(entries[i].port_num);
  return 0;
}

struct Opened {
  ibv_context* context = nullptr;
  uint8_t port = 0;
};

Opened find(const VerbsTarget& target) {
  const DeviceList list;
  for (ibv_device* d : list.all()) {
    if (!target.device.empty()) {
      if (target.device == d->name) return {library().open_device(d), 1};
    } else if (names_interface(*d, target.interface)) {
      return {library().open_device(d), port_of(target.interface)};
    }
  }
  if (!target.device.empty() || target.ifindex.value() == 0) return {};
  for (ibv_device* d : list.all()) {
    ibv_context* context = library().open_device(d);
    if (context == nullptr) continue;
    if (const uint8_t port = port_by_gid(context, target.ifindex); port != 0)
      return {context, port};
    library().close_device(context);
  }
  return {};
}

void set_nonblocking(int fd) {
  const long flags = syscall(SYS_fcntl, fd, F_GETFL, 0);
  syscall(SYS_fcntl, fd, F_SETFL, flags | O_NONBLOCK);
}

}  // namespace

Region::~Region() {
  if (mr_ != nullptr) library().dereg_mr(mr_);
}

Context::Context(ibv_context* context, uint8_t port)
    : context_(context), port_(port), owner_(getpid()) {
  set_nonblocking(context->async_fd);
  add_own_fd(context->async_fd);
  add_own_fd(context->cmd_fd);
}

Context::~Context() {
  remove_own_fd(context_->async_fd);
  remove_own_fd(context_->cmd_fd);
  if (!is_ours()) {
    arena_region_.abandon();
    return;
  }
  arena_region_ = Region();
  if (domain_ != nullptr) library().dealloc_pd(domain_);
  library().close_device(context_);
}

bool Context::is_ours() const { return getpid() == owner_; }

Result<Region> Context::register_memory(std::span<std::byte> bytes) {
  ibv_mr* mr = library().reg_mr(domain_, bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE);
  if (mr == nullptr)
    return fail(errno, errno == ENOMEM ? "ibv_reg_mr: RLIMIT_MEMLOCK" : "ibv_reg_mr");
  return Region(mr);
}

/// As ibv_query_device_ex(), which verbs.h has inline and bound to the library.
bool Context::query_limits() {
  const verbs_context* extended = verbs_get_ctx_op(context_, query_device_ex);
  if (extended != nullptr &&
      extended->query_device_ex(context_, nullptr, &limits_, sizeof limits_) == 0)
    return true;
  limits_ = {};
  return library().query_device(context_, &limits_.orig_attr) == 0;
}

Result<std::shared_ptr<Context>> Context::open(const VerbsTarget& target, Arena& arena) {
  errno = 0;
  const Opened found = find(target);
  if (found.context == nullptr)
    return fail(errno == EPERM || errno == EACCES || errno == EIO ? errno : ENODEV,
                "no RDMA device of this interface");
  auto c = std::make_shared<Context>(found.context, found.port);
  if (!c->query_limits()) return fail(EIO, "ibv_query_device");
  if (c->port_ > c->limits_.orig_attr.phys_port_cnt) return fail(ENODEV, "RDMA port");
  c->domain_ = library().alloc_pd(c->context_);
  if (c->domain_ == nullptr) return fail_errno("ibv_alloc_pd");
  auto region = c->register_memory(arena.bytes());
  if (!region) return std::unexpected(region.error());
  c->arena_region_ = std::move(*region);
  return c;
}

}  // namespace vireo::verbs
