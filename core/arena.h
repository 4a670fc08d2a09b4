// The packet memory of a process: one region, of huge pages if available, that devices register
// once. Owner: process. Thread: created and destroyed by one thread; the mapping is constant. Not
// inherited by fork (MADV_DONTFORK): frames that a device writes belong to one process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/fd.h"
#include "core/frame_owners.h"
#include "core/result.h"

namespace vireo {

enum class PageKind : uint8_t { kHuge, kTransparent, kSmall };

class Arena {
 public:
  static constexpr size_t kHugePageBytes = size_t{2} << 20;

  /// Maps at least `bytes` (rounded up to 2 MiB). Takes huge pages if `want_huge` and the pool has
  /// enough free ones, else ordinary pages that the kernel may merge into huge ones. @return
  /// ENOMEM, or the errno of mmap(2).
  static Result<Arena> create(size_t bytes, bool want_huge);
  /// Memory to share with other processes: a memfd of `bytes` (a multiple of 2 MiB). Takes huge
  /// pages if `want_huge` and the pool has enough free ones. Errors: ENOMEM, those of
  /// memfd_create(2).
  static Result<UniqueFd> create_shared(size_t bytes, bool want_huge);
  /// Maps the memory of create_shared(). `owners` says which frames are ours.
  static Result<Arena> map_shared(int fd, const FrameOwners& owners);

  Arena() = default;
  Arena(Arena&& o) noexcept { *this = static_cast<Arena&&>(o); }
  Arena& operator=(Arena&& o) noexcept;
  ~Arena();

  std::span<std::byte> bytes() const { return {base_, size_}; }
  PageKind pages() const { return pages_; }
  /// Who has its frames; empty: it is all ours.
  const FrameOwners& owners() const { return owners_; }

 private:
  std::byte* base_ = nullptr;
  size_t size_ = 0;
  PageKind pages_ = PageKind::kSmall;
  FrameOwners owners_;
};

}  // namespace vireo
