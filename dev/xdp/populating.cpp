#include "dev/xdp/populating.h"

#include <sys/mman.h>

#include <algorithm>

#include "core/arena.h"
#include "core/own_thread.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace vireo::xdp {

Populating::Populating(const Arena& arena) noexcept
    : memory_(arena.bytes()), is_shared_(bool{arena.owners()}) {
  is_running_ = start_own_thread(thread_, run, this) == 0;
}

Populating::~Populating() {
  if (!is_running_) return;
  // Shared memory has no huge pages by itself, and once it is registered it gets none.
  is_over_.store(!is_shared_, std::memory_order_relaxed);
  int before;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE,
                         &before);  // pthread_join() is a cancellation point
  pthread_join(thread_, nullptr);
  pthread_setcancelstate(before, nullptr);
}

/// Makes a huge page of it (Linux 6.1), whatever shmem_enabled says. Needs a page to begin with.
void Populating::collapse(std::span<std::byte> piece) noexcept {
  std::atomic_ref(*reinterpret_cast<unsigned char*>(piece.data()))
      .fetch_or(0, std::memory_order_relaxed);
  (void)madvise(piece.data(), piece.size(), MADV_COLLAPSE);
}

void* Populating::run(void* self) noexcept {
  auto& me = *static_cast<Populating*>(self);
  for (auto left = me.memory_; !left.empty() && !me.is_over_.load(std::memory_order_relaxed);) {
    const size_t piece = std::min(left.size(), Arena::kHugePageBytes);
    if (me.is_shared_)
      collapse(left.first(piece));
    else if (madvise(left.data(), piece, MADV_POPULATE_WRITE) != 0)
      break;
    left = left.subspan(piece);
  }
  return nullptr;
}

}  // namespace vireo::xdp
