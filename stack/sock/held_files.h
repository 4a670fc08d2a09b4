// Which Files of a process another one still has descriptors of: its child, to which fork(2) gave
// them. One word for each File, in memory of both processes.
// Owner: who holds the object, in each process. Thread: any; each call is one atomic access.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "core/fd.h"
#include "core/result.h"

namespace vireo {

class HeldFiles {
 public:
  HeldFiles() = default;  ///< holds none
  /// Memory for Files of an index below `count`; a child of fork(2) shares it. Errors: EMFILE,
  /// ENOMEM.
  static Result<HeldFiles> make(uint32_t count) noexcept;
  /// The memory of another process. Errors: EINVAL, ENOMEM.
  static Result<HeldFiles> map(UniqueFd memory) noexcept;
  HeldFiles(HeldFiles&& other) noexcept;
  HeldFiles& operator=(HeldFiles&& other) noexcept;
  HeldFiles(const HeldFiles&) = delete;
  HeldFiles& operator=(const HeldFiles&) = delete;
  ~HeldFiles();

  /// To pass it on; shut it when that is done.
  UniqueFd& memory() noexcept { return memory_; }

  /// One past the highest File.
  uint32_t end() const noexcept { return static_cast<uint32_t>(words_.size()); }

  // ---- the holder
  void hold(uint32_t file, uint32_t generation) noexcept;
  bool holds(uint32_t file) const noexcept { return word(file) != 0; }
  /// The owner has sent the socket, or is about to.
  bool is_sent(uint32_t file) const noexcept { return word(file) == kSent; }
  /// Its last descriptor is closed. @return is_sent().
  bool drop(uint32_t file) noexcept;

  // ---- the owner
  bool holds(uint32_t file, uint32_t generation) const noexcept { return word(file) == generation; }
  /// Before it sends the socket. @return false: it is not held any more.
  bool mark_sent(uint32_t file, uint32_t generation) noexcept;
  /// It could not be sent, or received.
  void unmark_sent(uint32_t file, uint32_t generation) noexcept;

 private:
  using Word = std::atomic<uint32_t>;  ///< 0 not held, kSent, or the File's generation
  static constexpr uint32_t kSent = UINT32_MAX;

  HeldFiles(UniqueFd memory, std::span<Word> words) noexcept
      : memory_(std::move(memory)), words_(words) {}
  uint32_t word(uint32_t file) const noexcept {
    // acquire pairs with mark_sent() and drop() in the other process.
    return file < words_.size() ? words_[file].load(std::memory_order_acquire) : 0;
  }

  UniqueFd memory_;
  std::span<Word> words_;
};

}  // namespace vireo
