// The array of Files and the table of their descriptors.
#include "stack/sock/fd_table.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <new>

#include "stack/sock/send_reports.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/udp_socket.h"

namespace vireo {

namespace {

// Reserved, not touched: a page is mapped when a descriptor in it is first used.
void* reserve(size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

}  // namespace

constinit FdTable g_fd_table;

Result<void> FdTable::init() {
  const LockGuard guard(lock_);
  if (slots_ != nullptr) return {};
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto count =
      static_cast<uint32_t>(std::clamp<rlim_t>(limit.rlim_max, 1024, rlim_t{kMaxFiles}));
  void* slots = reserve(count * sizeof(std::atomic<uint64_t>));
  void* files = reserve((size_t{count} + 1) * sizeof(File));
  void* reports = reserve((size_t{count} + 1) * sizeof(LastingPtr<SendReports>));
  if (slots == nullptr || files == nullptr || reports == nullptr)
    return fail(ENOMEM, "address space for descriptors");
  files_ = static_cast<File*>(files);
  reports_ = static_cast<LastingPtr<SendReports>*>(reports);  // as below
  // Zeroed pages are atomics of value 0: none is constructed, so no page is touched.
  slots_ = static_cast<std::atomic<uint64_t>*>(slots);
  slots_count_ = count;
  show_to_child(false);
  return {};
}

void FdTable::show_to_child(bool yes) noexcept {
  if (slots_ == nullptr) return;
  // Fails before Linux 4.14: such children then see the table.
  ::madvise(slots_, slots_count_ * sizeof *slots_, yes ? MADV_KEEPONFORK : MADV_WIPEONFORK);
}

Handle FdTable::find_if_ours(uint64_t word, int fd) const noexcept {
  File& f = files_[static_cast<uint32_t>(word)];
  return f.stack->is_owner() ? Handle{&f, static_cast<uint32_t>(word >> 32), fd} : Handle{};
}

uint64_t FdTable::word_of(const File& f) const noexcept {
  return static_cast<uint64_t>(f.generation.load(std::memory_order_relaxed)) << 32 | index_of(f);
}

Result<File*> FdTable::allocate() {
  const LockGuard guard(lock_);
  uint32_t index = free_;
  if (index != 0) {
    free_ = files_[index].place.exchange(0, std::memory_order_relaxed);
  } else {
    if (files_used_ > slots_count_) return fail(ENFILE, "file array");
    index = files_used_++;
    File* f = new (&files_[index]) File;
    f->generation.store(1, std::memory_order_relaxed);
  }
  return &files_[index];
}

Result<void> FdTable::install(int fd, File& f) {
  if (!has_place(fd)) return fail(EMFILE, "descriptor table");
  const LockGuard guard(lock_);
  f.refs.fetch_add(1, std::memory_order_relaxed);
  // Pairs with the acquire in find(): the File is initialized before it can be found.
  slots_[fd].store(word_of(f), std::memory_order_release);
  if (fd >= end_.load(std::memory_order_relaxed)) end_.store(fd + 1, std::memory_order_release);
  return {};
}

bool FdTable::duplicate(int from, int to) {
  if (!has_place(to)) return false;
  const LockGuard guard(lock_);
  const Handle h = find(from);
  if (!h) return false;
  h->refs.fetch_add(1, std::memory_order_relaxed);
  slots_[to].store(word_of(*h.file), std::memory_order_release);  // as in install()
  if (to >= end_.load(std::memory_order_relaxed)) end_.store(to + 1, std::memory_order_release);
  return true;
}

Handle FdTable::remove(int fd) {
  if (!has_place(fd)) return {};
  const LockGuard guard(lock_);
  const Handle h = find(fd);
  if (h) slots_[fd].store(0, std::memory_order_release);  // publishes nothing
  return h;
}

void FdTable::reclaim() {
  const LockGuard guard(lock_);
  for (uint32_t i = 1; i < files_used_; ++i) {
    File& f = files_[i];
    if (f.kind.load(std::memory_order_relaxed) != FileKind::kNone) continue;
    delete static_cast<UdpSocket*>(f.udp);
    f.udp = nullptr;
    delete reports_of(f);
    keep_reports(f, nullptr);
  }
}

Handle FdTable::find_file(uint32_t index, uint32_t generation) const noexcept {
  const uint64_t word = static_cast<uint64_t>(generation) << 32 | index;
  for (int fd = 0; fd < end(); ++fd)
    if (slots_[fd].load(std::memory_order_acquire) == word) return find(fd);
  return {};
}

UniqueFd FdTable::dup_of(uint32_t index, uint32_t generation) noexcept {
  // A thread that closes a number removes it from the table first.
  const LockGuard guard(lock_);
  const Handle h = find_file(index, generation);
  return h ? dup_shadow(h.fd) : UniqueFd();
}

uint32_t FdTable::count_names(const File& f) const noexcept {
  uint32_t names = 0;
  for (int fd = 0; fd < end(); ++fd)
    names += slots_[fd].load(std::memory_order_relaxed) == word_of(f) ? 1 : 0;
  return names;
}

void FdTable::free(File& f) {
  const LockGuard guard(lock_);
  f.kind.store(FileKind::kNone, std::memory_order_relaxed);
  f.place.store(free_, std::memory_order_relaxed);
  free_ = index_of(f);
}

}  // namespace vireo
