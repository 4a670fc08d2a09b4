#include "core/arena.h"

#include <sys/mman.h>

#include <utility>

#include "core/high_fd.h"

namespace vireo {
namespace {

struct Mapping {
  UniqueFd fd;
  std::byte* base = nullptr;
};

Result<Mapping> map_memfd(size_t size, unsigned memfd_flags, int map_flags) {
  UniqueFd fd(to_high_number(memfd_create("vireo-arena", MFD_CLOEXEC | memfd_flags)));
  if (!fd) return fail_errno("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return fail_errno("ftruncate arena");
  // Populated huge pages fail here with ENOMEM instead of later with SIGBUS.
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | map_flags, fd.get(), 0);
  if (p == MAP_FAILED) return fail_errno("mmap arena");
  return Mapping{std::move(fd), static_cast<std::byte*>(p)};
}

}  // namespace

Result<Arena> Arena::create(size_t bytes, bool want_huge) {
  const size_t size = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  Arena a;
  a.size_ = size;
  if (want_huge) {
    if (auto huge = map_memfd(size, MFD_HUGETLB, MAP_POPULATE)) {
      a.fd_ = std::move(huge->fd);
      a.base_ = huge->base;
      a.pages_ = PageKind::kHuge;
    }
  }
  if (a.base_ == nullptr) {
    auto plain = map_memfd(size, 0, 0);
    if (!plain) return std::unexpected(plain.error());
    a.fd_ = std::move(plain->fd);
    a.base_ = plain->base;
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
  std::swap(fd_, o.fd_);
  std::swap(pages_, o.pages_);
  return *this;
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, size_);
}

}  // namespace vireo
