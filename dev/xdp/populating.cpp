#include "dev/xdp/populating.h"

#include <sys/mman.h>

#include <algorithm>

#include "core/arena.h"
#include "core/own_thread.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace vireo::xdp {

Populating::Populating(std::span<std::byte> memory) noexcept : memory_(memory) {
  is_running_ = start_own_thread(thread_, run, this) == 0;
}

Populating::~Populating() {
  if (!is_running_) return;
  is_over_.store(true, std::memory_order_relaxed);
  int before;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE,
                         &before);  // pthread_join() is a cancellation point
  pthread_join(thread_, nullptr);
  pthread_setcancelstate(before, nullptr);
}

void* Populating::run(void* self) noexcept {
  auto& me = *static_cast<Populating*>(self);
  for (auto left = me.memory_; !left.empty() && !me.is_over_.load(std::memory_order_relaxed);) {
    const size_t piece = std::min(left.size(), Arena::kHugePageBytes);
    if (madvise(left.data(), piece, MADV_POPULATE_WRITE) != 0) break;
    left = left.subspan(piece);
  }
  return nullptr;
}

}  // namespace vireo::xdp
