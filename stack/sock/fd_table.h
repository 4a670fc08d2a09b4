// Descriptor number -> File: one array load. The array and the Files are reserved once for the hard
// RLIMIT_NOFILE (at most 2^20) and mapped when first touched.
// Owner: process (static storage). Thread: find() any, lock-free; the rest take the table's lock, a
// leaf.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "core/fd.h"
#include "core/lock.h"
#include "core/result.h"
#include "stack/sock/file.h"
#include "stack/sock/owner.h"

namespace vireo {

struct SendReports;  // stack/sock/send_reports.h

class FdTable {
 public:
  static constexpr uint32_t kMaxFiles = 1U << 20;

  /// Reserves address space. May be called again. Errors: ENOMEM.
  Result<void> init();

  /// The File of `fd`, or an empty Handle: the kernel's.
  Handle find(int fd) const noexcept {
    if (static_cast<uint32_t>(fd) >= slots_count_) [[unlikely]]
      return {};
    // Pairs with the release in install(): the File is initialized.
    const uint64_t w = slots_[fd].load(std::memory_order_acquire);
    if (w == 0) return {};
    if (Owner::may_be_child()) [[unlikely]]
      return find_if_ours(w, fd);
    return Handle{&files_[static_cast<uint32_t>(w)], static_cast<uint32_t>(w >> 32), fd};
  }

  /// In a child of vfork(2): the File that the parent has there. Nothing of it may be changed.
  Handle find_parents(int fd) const noexcept {
    const uint64_t w =
        static_cast<uint32_t>(fd) < slots_count_ ? slots_[fd].load(std::memory_order_acquire) : 0;
    if (w == 0) return {};
    return Handle{&files_[static_cast<uint32_t>(w)], static_cast<uint32_t>(w >> 32), fd};
  }

  /// A File without a descriptor, refs = 0, all members reset. Errors: ENFILE, EMFILE (the number
  /// would be beyond the table).
  Result<File*> allocate();
  /// Whether the table has a slot for `fd`: it is below the RLIMIT_NOFILE at the table's creation.
  bool has_place(int fd) const noexcept { return static_cast<uint32_t>(fd) < slots_count_; }
  /// Makes `fd` a descriptor of `f`: one more reference. `fd` must have no File.
  Result<void> install(int fd, File& f);
  /// Makes `to` another descriptor of `from`'s File. @return false: `from` has none.
  bool duplicate(int from, int to);
  /// Removes `fd`. The caller owns the reference it held and must release() it (calls.h close).
  Handle remove(int fd);
  /// Frees a File whose last reference is gone; increments the generation first if the caller has
  /// not.
  void free(File& f);

  /// One past the highest number ever installed; the loop bound for close_range and fork.
  int end() const noexcept { return end_.load(std::memory_order_acquire); }
  /// Every File in use, once each (fork, exit). `f(File&)`; no other thread may open or close.
  template <class F>
  void for_each_file(F&& f) VIREO_NO_THREAD_ANALYSIS {
    for (uint32_t i = 1; i < files_used_; ++i)
      if (files_[i].kind.load(std::memory_order_relaxed) != FileKind::kNone) f(files_[i]);
  }
  /// Frees what closed Files keep for reuse. No other thread may use the table.
  void reclaim();
  /// Its constant index in the array.
  uint32_t index_of(const File& f) const noexcept { return static_cast<uint32_t>(&f - files_); }
  /// What is reported of its sends; null: nothing so far. Kept when the File is closed, for the
  /// next, and so outside of it: few have any.
  SendReports* reports_of(const File& f) const noexcept {
    return reports_ == nullptr ? nullptr : static_cast<SendReports*>(reports_[index_of(f)]);
  }
  void keep_reports(const File& f, SendReports* reports) noexcept {
    if (reports_ != nullptr) reports_[index_of(f)] = reports;
  }
  /// One past the highest index. The table's lock held, or no other thread opens one.
  uint32_t files_end() const noexcept VIREO_NO_THREAD_ANALYSIS { return files_used_; }
  /// The open File of that index and generation, by one of its numbers; or empty.
  Handle find_file(uint32_t index, uint32_t generation) const noexcept;
  /// A private dup of the kernel descriptor beneath it; empty: it is closed, or no number is free.
  UniqueFd dup_of(uint32_t index, uint32_t generation) noexcept;
  /// How many descriptors `f` has (fork).
  uint32_t count_names(const File& f) const noexcept;
  Lock& lock() { return lock_; }
  /// Around fork(2): lets the child see the table. In other children (clone(2), _Fork(3)), for
  /// which no handler runs, it is empty: every descriptor is the kernel's.
  void show_to_child(bool yes) noexcept;

 private:
  uint64_t word_of(const File& f) const noexcept;
  /// In a child of vfork(2) every descriptor is the kernel's.
  Handle find_if_ours(uint64_t word, int fd) const noexcept;

  std::atomic<uint64_t>* slots_ = nullptr;  ///< generation << 32 | index of the File; 0 = no File
  uint32_t slots_count_ = 0;
  std::atomic<int> end_{0};
  Lock lock_;
  File* files_ = nullptr;                       ///< index 0 is never used
  LastingPtr<SendReports>* reports_ = nullptr;  ///< by the same index
  uint32_t files_used_ VIREO_GUARDED_BY(lock_) = 1;
  uint32_t free_ VIREO_GUARDED_BY(lock_) = 0;
};

/// The process's table.
extern constinit FdTable g_fd_table;
inline FdTable& fd_table() { return g_fd_table; }

}  // namespace vireo
