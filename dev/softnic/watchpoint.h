// Tells of a store: a debug register of the processor watches an address, and the kernel turns its
// trap into a signal of the thread that stored, taken before its next instruction. So a doorbell is
// a call, in the thread that rings it, and nobody needs to look.
// A processor has few of them (four on x86), and debuggers want them too; not every kernel grants
// one. Owner: the register that is watched. Thread: setup any; the call comes in whichever thread
// of the process stored, on its stack, with no lock of ours; one that blocks SIGTRAP is not told.
// Source: perf_event_open(2) (PERF_TYPE_BREAKPOINT, sigtrap), sigaction(2) (TRAP_PERF).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/fd.h"

namespace vireo::softnic {

class Watchpoint {
 public:
  Watchpoint() = default;
  /// Of the eight bytes at `at`, in every thread that there is and those that they start. Without
  /// effect, and false, where it is refused.
  Watchpoint(const std::byte* at, void (*call)(void* of), void* of);
  Watchpoint(Watchpoint&& o) noexcept
      : events_(std::move(o.events_)), slot_(std::exchange(o.slot_, -1)) {}
  Watchpoint& operator=(Watchpoint&& o) noexcept {
    std::swap(events_, o.events_);
    std::swap(slot_, o.slot_);
    return *this;
  }
  ~Watchpoint();
  explicit operator bool() const { return slot_ >= 0; }

 private:
  bool watch_threads(uintptr_t at);

  std::vector<UniqueFd> events_;  ///< one for each thread
  int slot_ = -1;
};

}  // namespace vireo::softnic
