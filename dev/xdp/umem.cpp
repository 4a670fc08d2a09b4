#include "dev/xdp/umem.h"

#include <pthread.h>

#include <algorithm>
#include <memory>

namespace vireo::xdp {
namespace {

struct Registry {
  std::mutex lock;
  std::vector<std::weak_ptr<Umem>> umems;
};

Registry& registry() {
  static auto* const r = [] {
    // A forked child has none of the parent's UMEMs; another thread may have held the lock at the
    // fork.
    pthread_atfork(nullptr, nullptr, [] { std::construct_at(&registry()); });
    return new Registry;  // never destroyed: devices may end after static destructors
  }();
  return *r;
}

}  // namespace

std::shared_ptr<Umem> Umem::of(Arena& arena, const UmemShape& shape) {
  Registry& r = registry();
  const std::lock_guard hold(r.lock);
  std::erase_if(r.umems, [](const auto& w) { return w.expired(); });
  for (const auto& weak : r.umems) {
    auto umem = weak.lock();
    if (umem && &umem->arena() == &arena && umem->shape() == shape) return umem;
  }
  auto umem = std::make_shared<Umem>(arena, shape);
  r.umems.push_back(umem);
  return umem;
}

Result<Xsk> Umem::open(IfIndex ifindex, QueueId queue, const RingSizes& sizes) {
  const std::lock_guard hold(lock_);
  // A socket whose interface is gone is no longer bound (EBADF); one in zero-copy mode cannot share
  // with a driver without zero-copy. Then try the next one, and finally register anew.
  for (size_t i = bound_.size(); i-- > 0;) {
    auto shared = Xsk::open_shared(bound_[i], ifindex, queue, sizes);
    if (shared) {
      bound_.push_back(shared->fd());
      return shared;
    }
    if (const int code = shared.error().code; code == EBUSY || code == EPERM || code == ENODEV)
      return std::unexpected(shared.error());
  }
  auto first = Xsk::open_registering(arena_.bytes(), shape_.chunk_bytes, shape_.bind_flags, ifindex,
                                     queue, sizes);
  if (first) bound_.push_back(first->fd());
  return first;
}

void Umem::forget(int fd) {
  const std::lock_guard hold(lock_);
  std::erase(bound_, fd);
}

}  // namespace vireo::xdp
