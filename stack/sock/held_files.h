// Which Files of a process another one still has descriptors of: its child, to which fork(2) gave
// them; and which of them the process itself has closed since. Two words for each File, in memory
// of both processes.
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
  uint32_t end() const noexcept { return static_cast<uint32_t>(words_.size() / 2); }

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

  // ---- what the two alone have: the owner tells the holder when it closes it
  void tell_of(uint32_t file, uint32_t generation) noexcept;
  bool tells_of(uint32_t file, uint32_t generation) const noexcept {
    return file < end() && owners(file).load(std::memory_order_relaxed) == generation;
  }
  void closed_by_owner(uint32_t file) noexcept;
  bool is_closed_by_owner(uint32_t file) const noexcept {
    // acquire pairs with closed_by_owner().
    return file < end() && owners(file).load(std::memory_order_acquire) == kClosed;
  }

 private:
  /// First those of what is held: 0 not held, kSent, or the File's generation. Then those of the
  /// owner: 0 says nothing, the File's generation, or kClosed.
  using Word = std::atomic<uint32_t>;
  static constexpr uint32_t kSent = UINT32_MAX;
  static constexpr uint32_t kClosed = UINT32_MAX;

  HeldFiles(UniqueFd memory, std::span<Word> words) noexcept
      : memory_(std::move(memory)), words_(words) {}
  uint32_t word(uint32_t file) const noexcept {
    // acquire pairs with mark_sent() and drop() in the other process.
    return file < end() ? words_[file].load(std::memory_order_acquire) : 0;
  }
  Word& owners(uint32_t file) const noexcept { return words_[end() + file]; }

  UniqueFd memory_;
  std::span<Word> words_;
};

}  // namespace vireo
