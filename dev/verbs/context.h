// The objects of one open of an RDMA device: context, protection domain, the arena as a memory
// region.
// Owner: the Device and its queues, jointly. Thread: setup any; constant afterwards.
// Source: ibv_open_device(3), ibv_alloc_pd(3), ibv_reg_mr(3).
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/arena.h"
#include "core/result.h"
#include "dev/verbs/bond.h"
#include "dev/verbs/verbs.h"

namespace vireo::verbs {

/// Memory that the device may read and write.
class Region {
 public:
  Region() = default;
  explicit Region(ibv_mr* mr) : mr_(mr) {}
  Region(Region&& o) noexcept : mr_(std::exchange(o.mr_, nullptr)) {}
  Region& operator=(Region&& o) noexcept {
    std::swap(mr_, o.mr_);
    return *this;
  }
  ~Region();
  uint32_t lkey() const { return mr_->lkey; }
  void abandon() { mr_ = nullptr; }

 private:
  ibv_mr* mr_ = nullptr;
};

class Context {
 public:
  using Opener = ibv_context* (*)(ibv_device*);
  /// Finds the port, opens its device (`opener` null: by ibv_open_device(3)), registers the arena.
  static Result<std::shared_ptr<Context>> open(const VerbsTarget& target, Arena& arena,
                                               Opener opener = nullptr);
  Context(ibv_context* context, uint8_t port);
  ~Context();

  ibv_context* get() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  uint8_t port() const { return port_; }
  uint32_t arena_lkey() const { return arena_region_.lkey(); }
  /// Fields that the device does not report are zero.
  const ibv_device_attr_ex& limits() const { return limits_; }
  Result<Region> register_memory(std::span<std::byte> bytes);
  /// False once another member of the bond is active. Costs three system calls for an active-backup
  /// bond.
  bool is_receiving() const;
  /// False in a forked child, where the device must not be touched.
  bool is_ours() const;

 private:
  void follow(const Bond& bond, std::string_view sysfs);
  ibv_context* context_;
  uint8_t port_;
  pid_t owner_;
  ibv_pd* domain_ = nullptr;
  ibv_device_attr_ex limits_{};
  Region arena_region_;
  std::string bond_;      ///< the bond whose active member's device this is
  std::string followed_;  ///< that member; empty: the device does not depend on it
  std::string sysfs_;
};

}  // namespace vireo::verbs
