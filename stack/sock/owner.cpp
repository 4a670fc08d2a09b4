// The page that is zeroed in a child.
#include "stack/sock/owner.h"

#include <sys/mman.h>
#include <unistd.h>

namespace vireo {
namespace {

constexpr size_t kPage = 4096;

}  // namespace

Owner::Owner() noexcept : pid_(::getpid()) {
  void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (::madvise(page, kPage, MADV_WIPEONFORK) != 0) {  // before Linux 4.14
    ::munmap(page, kPage);
    return;
  }
  mark_ = static_cast<std::atomic<uint32_t>*>(page);
  mark_->store(1, std::memory_order_relaxed);
}

Owner::~Owner() {
  if (mark_ != &kUnmarked) ::munmap(mark_, kPage);
}

void Owner::move_here() noexcept {
  pid_.store(::getpid(), std::memory_order_relaxed);
  if (mark_ != &kUnmarked) mark_->store(1, std::memory_order_relaxed);
}

bool Owner::ask() const noexcept {
  const bool is_here = pid_.load(std::memory_order_relaxed) == ::getpid();
  if (is_here && t_child == Child::kWaitedFor) t_child = Child::kNone;
  return is_here;
}

}  // namespace vireo
