// Who is in the group: a page of memory that all members map, and record locks on its memfd, by
// which the kernel tells who lives. A member locks the byte of its slot; the kernel unlocks it with
// the process, even if it is killed, and a forked child does not inherit it. When the lock is gone
// the process no longer writes to shared memory, but some of its descriptors may be open for a
// moment longer (exit_mm precedes exit_files in do_exit, kernel/exit.c).
//
// A process loses all its record locks of a file as soon as it closes any descriptor of that file
// (fcntl(2)). So a process has exactly one descriptor of this memfd, and therefore is in a group
// only once (group.cpp).
//
// Owner: a Group. Thread: any; what changes `used` only under the control lock.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "core/fd.h"
#include "core/flow_hash.h"
#include "core/result.h"

namespace vireo::xdp {

inline constexpr unsigned kGroupSlots = 64;

class Table {
 public:
  /// The memfd of an empty one.
  static Result<UniqueFd> create();
  /// Maps the table of `memfd`, which the caller keeps.
  static Result<Table> map(int memfd);
  Table(Table&& o) noexcept : memfd_(o.memfd_), memory_(std::exchange(o.memory_, nullptr)) {}
  ~Table();

  /// Slots that are not free: of members, and of dead ones not yet buried.
  uint64_t used() const noexcept;
  FlowHashKey secret() const noexcept { return memory_->secret; }
  pid_t pid(unsigned slot) const noexcept;
  /// Takes a free slot for this process. Errors: EBUSY.
  Result<unsigned> take_slot() noexcept;
  /// Of this process, or of a dead one.
  void free_slot(unsigned slot) noexcept;
  /// Whether another process holds the slot. One system call.
  bool is_held_by_other(unsigned slot) const noexcept;

  /// The control lock, as far as other processes go.
  bool try_lock() noexcept;
  void unlock() noexcept;

  /// A number not given before. Under the control lock.
  uint64_t next_number() noexcept;

 private:
  struct Memory {
    std::atomic<uint64_t> used;
    std::atomic<uint64_t> last_number;
    FlowHashKey secret;  ///< constant
    std::atomic<pid_t> pids[kGroupSlots];
  };
  Table(int memfd, Memory* memory) : memfd_(memfd), memory_(memory) {}

  int memfd_;
  Memory* memory_;
};

}  // namespace vireo::xdp
