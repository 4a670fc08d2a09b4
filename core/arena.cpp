#include "core/arena.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

Result<UniqueFd> Arena::create_shared(size_t bytes, bool want_huge) {
  for (const unsigned huge : {MFD_HUGETLB | MFD_HUGE_2MB, 0U}) {
    if (huge != 0 && !want_huge) continue;
    UniqueFd fd(memfd_create("vireo-packets", MFD_CLOEXEC | huge));
    if (!fd) continue;
    // fallocate() reserves: lack of memory shows here instead of later as SIGBUS.
    if (ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0 &&
        (huge == 0 || fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0))
      return fd;
  }
  return fail_errno("packet memory to share (memfd_create)");
}

Result<Arena> Arena::map_shared(int fd, const FrameOwners& owners) {
  struct stat info;
  if (fstat(fd, &info) != 0) return fail_errno("packet memory to share");
  Arena a;
  a.size_ = static_cast<size_t>(info.st_size);
  a.owners_ = owners;
  a.pages_ = static_cast<size_t>(info.st_blksize) >= kHugePageBytes ? PageKind::kHuge
                                                                    : PageKind::kTransparent;
  std::byte* const at = map_aligned(a.size_);
  if (at == nullptr) return fail_errno("mmap arena");
  if (mmap(at, a.size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int saved = errno;
    munmap(at, a.size_);
    return fail(saved, "mmap arena");
  }
  a.base_ = at;
  madvise(a.base_, a.size_, MADV_DONTFORK);
  madvise(a.base_, a.size_, MADV_DONTDUMP);
  return a;
}

Arena& Arena::operator=(Arena&& o) noexcept {
  std::swap(base_, o.base_);
  std::swap(size_, o.size_);
  std::swap(pages_, o.pages_);
  std::swap(owners_, o.owners_);
  return *this;
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, size_);
}

}  // namespace vireo
