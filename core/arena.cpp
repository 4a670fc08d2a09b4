#include "core/arena.h"

#include <sys/mman.h>

#include <cstdint>
#include <utility>

namespace vireo {
namespace {

// Anonymous, not a memfd: shared memory gets huge pages only if an administrator enabled it
// (shmem_enabled, "never" by default), anonymous memory wherever MADV_HUGEPAGE asks for it.
std::byte* map_anonymous(size_t size, int flags) {
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
}

/// Maps `size` bytes at a multiple of the huge page size.
std::byte* map_aligned(size_t size) {
  constexpr size_t kAlign = Arena::kHugePageBytes;
  std::byte* const wide = map_anonymous(size + kAlign, 0);
  if (wide == nullptr) return nullptr;
  const size_t before = (kAlign - reinterpret_cast<uintptr_t>(wide) % kAlign) % kAlign;
  if (before != 0) munmap(wide, before);
  munmap(wide + before + size, kAlign - before);
  return wide + before;
}

}  // namespace

Result<Arena> Arena::create(size_t bytes, bool want_huge) {
  const size_t size = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  Arena a;
  a.size_ = size;
  if (want_huge) {
    // Populated huge pages fail here with ENOMEM instead of later with SIGBUS.
    a.base_ = map_anonymous(size, MAP_HUGETLB | MAP_POPULATE);
    if (a.base_ != nullptr) a.pages_ = PageKind::kHuge;
  }
  if (a.base_ == nullptr) {
    a.base_ = map_aligned(size);
    if (a.base_ == nullptr) return fail_errno("mmap arena");
    a.pages_ =
        madvise(a.base_, size, MADV_HUGEPAGE) == 0 ? PageKind::kTransparent : PageKind::kSmall;
  }
  madvise(a.base_, size, MADV_DONTFORK);
  madvise(a.base_, size, MADV_DONTDUMP);
  return a;
}

Arena& Arena::operator=(Arena&& o) noexcept {
  std::swap(base_, o.base_);
  std::swap(size_, o.size_);
  std::swap(pages_, o.pages_);
  return *this;
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, size_);
}

}  // namespace vireo
