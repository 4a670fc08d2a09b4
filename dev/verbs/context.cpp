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

Opened find(const VerbsTarget& target) {
  const DeviceList list;
  for (ibv_device* d : list.all()) {
    if (!target.device.empty()) {
      if (target.device == d->name) return {library().open_device(d), 1};
    } else if (const auto port = port_by_sysfs(*d, target.interface)) {
      return {library().open_device(d), *port};
    }
  }
  if (!target.device.empty() || target.ifindex.value() == 0) return {};
  for (ibv_device* d : list.all()) {
    ibv_context* context = library().open_device(d);
    if (context == nullptr) continue;
    if (const auto port = port_by_gid(context, target.ifindex)) return {context, *port};
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

Result<std::shared_ptr<Context>> Context::open(const VerbsTarget& target, Arena& arena) {
  errno = 0;
  const Opened found = find(target);
  if (found.context == nullptr)
    return fail(errno == EPERM || errno == EACCES || errno == EIO ? errno : ENODEV,
                "no RDMA device of this interface");
  auto c = std::make_shared<Context>(found.context, found.port);
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
