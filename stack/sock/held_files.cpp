#include "stack/sock/held_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <utility>

#include "core/high_fd.h"

namespace vireo {
namespace {

void* map_shared(int fd, size_t bytes) noexcept {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : at;
}

}  // namespace

Result<HeldFiles> HeldFiles::make(uint32_t count) noexcept {
  const int made = static_cast<int>(::syscall(
      SYS_memfd_create, "vireo-held", static_cast<unsigned>(MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (made < 0) return fail_errno("memfd_create");
  UniqueFd memory(to_high_number(made));
  const size_t bytes = 2 * count * sizeof(Word);
  // Without the seal the other process could take the memory away (SIGBUS).
  void* const at = ::ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0 &&
                           ::syscall(SYS_fcntl, memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0
                       ? map_shared(memory.get(), bytes)
                       : nullptr;
  if (at == nullptr) return fail_errno("held files");
  // Zeroed pages are atomics of value 0: none is constructed, so no page is touched.
  return HeldFiles(std::move(memory), {static_cast<Word*>(at), 2 * count});
}

Result<HeldFiles> HeldFiles::map(UniqueFd memory) noexcept {
  struct stat s{};
  const long seals = ::syscall(SYS_fcntl, memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return fail(EINVAL, "held files");
  if (::fstat(memory.get(), &s) != 0 || s.st_size < static_cast<off_t>(2 * sizeof(Word)))
    return fail(EINVAL, "held files");
  const auto bytes = static_cast<size_t>(s.st_size);
  void* const at = map_shared(memory.get(), bytes);
  if (at == nullptr) return fail_errno("held files");
  return HeldFiles(UniqueFd(), {static_cast<Word*>(at), bytes / sizeof(Word)});
}

HeldFiles::HeldFiles(HeldFiles&& other) noexcept
    : memory_(std::move(other.memory_)), words_(std::exchange(other.words_, {})) {}

HeldFiles& HeldFiles::operator=(HeldFiles&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(words_, other.words_);
  return *this;
}

HeldFiles::~HeldFiles() {
  if (!words_.empty()) ::munmap(words_.data(), words_.size_bytes());
}

void HeldFiles::hold(uint32_t file, uint32_t generation) noexcept {
  if (file < end()) words_[file].store(generation, std::memory_order_relaxed);
}

bool HeldFiles::drop(uint32_t file) noexcept {
  return file < end() && words_[file].exchange(0, std::memory_order_acq_rel) == kSent;
}

bool HeldFiles::mark_sent(uint32_t file, uint32_t generation) noexcept {
  return file < end() &&
         words_[file].compare_exchange_strong(generation, kSent, std::memory_order_acq_rel);
}

void HeldFiles::unmark_sent(uint32_t file, uint32_t generation) noexcept {
  if (file >= end()) return;
  uint32_t sent = kSent;
  (void)words_[file].compare_exchange_strong(sent, generation, std::memory_order_acq_rel);
}

void HeldFiles::tell_of(uint32_t file, uint32_t generation) noexcept {
  if (file < end()) owners(file).store(generation, std::memory_order_relaxed);
}

void HeldFiles::closed_by_owner(uint32_t file) noexcept {
  if (file < end()) owners(file).store(kClosed, std::memory_order_release);
}

}  // namespace vireo
