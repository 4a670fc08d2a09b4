// The arena as the kernel's UMEM: registered (pinned) by the first socket, shared by all later
// ones. Owner: the devices on one arena, jointly. Thread: any, guarded by its own lock; setup only.
// Source: af_xdp.rst, XDP_UMEM_REG and XDP_SHARED_UMEM.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/arena.h"
#include "core/result.h"
#include "dev/xdp/xsk.h"

namespace vireo::xdp {

/// Sockets that differ in these cannot share a registration: the kernel copies them from the first.
struct UmemShape {
  uint32_t chunk_bytes = 0;
  uint16_t bind_flags = 0;  ///< XDP_COPY, XDP_ZEROCOPY, XDP_USE_NEED_WAKEUP, XDP_USE_SG
  bool operator==(const UmemShape&) const = default;
};

class Umem {
 public:
  /// The registration of `arena` with `shape`, done at the first bind; the same object as long as
  /// it is referenced.
  static std::shared_ptr<Umem> of(Arena& arena, const UmemShape& shape);

  Umem(Arena& arena, const UmemShape& shape) : arena_(arena), shape_(shape) {}

  /// Opens a socket bound to `queue` of `ifindex`, with its rings mapped. Errors: those of
  /// open_queue(), see xdp.h.
  Result<Xsk> open(IfIndex ifindex, QueueId queue, const RingSizes& sizes);
  /// Call before a socket from open() is closed.
  void forget(int fd);

  Arena& arena() const { return arena_; }
  const UmemShape& shape() const { return shape_; }

 private:
  Arena& arena_;
  const UmemShape shape_;
  std::mutex lock_;
  std::vector<int> bound_;  ///< sockets to share with: any that is still bound
};

}  // namespace vireo::xdp
