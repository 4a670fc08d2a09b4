#include "dev/verbs/context.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "core/own_fds.h"
#include "dev/verbs/late_libibverbs.h"
#include "dev/verbs/limits.h"
#include "dev/verbs/match.h"
#include "dev/verbs/prove.h"

namespace vireo::verbs {
namespace {

struct Opened {
  ibv_context* context = nullptr;
  uint8_t port = 0;
};

Opened find_by_name(const DeviceList& list, std::string_view device, Context::Opener open) {
  for (ibv_device* d : list.all())
    if (device == d->name) return {open(d), 1};
  return {};
}

Opened find_by_sysfs(const DeviceList& list, std::string_view interface, Context::Opener open) {
  for (ibv_device* d : list.all())
    if (const auto port = port_by_sysfs(*d, interface)) return {open(d), *port};
  return {};
}

Opened find_by_gid(const DeviceList& list, IfIndex ifindex, Context::Opener open) {
  if (ifindex.value() == 0) return {};
  for (ibv_device* d : list.all()) {
    ibv_context* context = open(d);
    if (context == nullptr) continue;
    if (const auto port = port_by_gid(context, ifindex)) return {context, *port};
    library().close_device(context);
  }
  return {};
}

DevicePlace place_of(const ibv_device& d) { return {d.name, d.ibdev_path}; }

/// A bond has no device of its own: looks among its members.
Result<Opened> find_for_bond(const DeviceList& list, const VerbsTarget& target, const Bond& bond,
                             Context::Opener open) {
  Opened found;
  for (const std::string& member : receivers(bond))
    if (found = find_by_sysfs(list, member, open); found.context != nullptr) break;
  // A device shared by several ports may be listed under another port; the bond's addresses are in
  // its GID table.
  if (found.context == nullptr) found = find_by_gid(list, target.ifindex, open);
  if (found.context == nullptr) {
    if (receivers(bond).empty()) return fail(ENOTSUP, refusal_of(bond, {}, target.sysfs));
    return found;
  }
  const DevicePlace place = place_of(*found.context->device);
  if (const char* why = refusal_of(bond, place, target.sysfs); why != nullptr) {
    library().close_device(found.context);
    return fail(ENOTSUP, why);
  }
  if (is_common(bond, place, target.sysfs)) found.port = 1;
  return found;
}

Result<Opened> find(const VerbsTarget& target, const std::optional<Bond>& bond,
                    Context::Opener open) {
  errno = 0;
  const DeviceList list;
  Opened found;
  if (!target.device.empty()) {
    found = find_by_name(list, target.device, open);
  } else if (bond) {
    auto opened = find_for_bond(list, target, *bond, open);
    if (!opened) return opened;
    found = *opened;
  } else {
    found = find_by_sysfs(list, target.interface, open);
    if (found.context == nullptr) found = find_by_gid(list, target.ifindex, open);
  }
  if (found.context == nullptr)
    return fail(errno == EPERM || errno == EACCES || errno == EIO ? errno : ENODEV,
                "no RDMA device of this interface");
  return found;
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

void Context::follow(const Bond& bond, std::string_view sysfs) {
  bond_ = bond.name;
  followed_ = bond.active;
  sysfs_ = sysfs;
}

bool Context::is_receiving() const {
  if (followed_.empty()) return true;
  const std::string active = active_member(bond_, sysfs_);
  // While no member is active, no other device receives either.
  return active.empty() || active == followed_;
}

bool Context::is_ours() const { return getpid() == owner_; }

Result<Region> Context::register_memory(std::span<std::byte> bytes) {
  ibv_mr* mr = library().reg_mr(domain_, bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE);
  if (mr == nullptr)
    return fail(errno, errno == ENOMEM ? "ibv_reg_mr: RLIMIT_MEMLOCK" : "ibv_reg_mr");
  return Region(mr);
}

Result<std::shared_ptr<Context>> Context::open(const VerbsTarget& target, Arena& arena,
                                               Opener opener) {
  const auto bond =
      target.device.empty() ? read_bond(target.interface, target.sysfs) : std::nullopt;
  const auto found = find(target, bond, opener != nullptr ? opener : library().open_device);
  if (!found) return std::unexpected(found.error());
  auto c = std::make_shared<Context>(found->context, found->port);
  if (bond && bond->has_backups &&
      !is_common(*bond, place_of(*found->context->device), target.sysfs))
    c->follow(*bond, target.sysfs);
  if (!query_limits(c->context_, c->limits_)) return fail(EIO, "ibv_query_device");
  if (c->port_ > c->limits_.orig_attr.phys_port_cnt) return fail(ENODEV, "RDMA port");
  c->domain_ = library().alloc_pd(c->context_);
  if (c->domain_ == nullptr) return fail_errno("ibv_alloc_pd");
  auto region = c->register_memory(arena.bytes());
  if (!region) return std::unexpected(region.error());
  c->arena_region_ = std::move(*region);
  if (target.prove)
    if (auto good = prove(c, target.mac); !good) return std::unexpected(good.error());
  return c;
}

}  // namespace vireo::verbs
