// A companion process that resets the carried connections of a program that is killed. The kernel
// closes its own connections with FIN or RST, but it does not know Vireo's. A peer that sends gets
// a reset, because its segments then reach the kernel; a peer that only waits would wait for ever.
// So a process with carried TCP connections starts vireo-mourner, which sleeps until the process
// has ended, reads which connections were open (core/last_will.h), and makes the kernel reset them.
//
// The companion has its own address space and session, the root directory, and four descriptors. It
// is no child of the program (its parent has ended), accepts no signal but SIGKILL, and ends by
// itself. It detects the program's end by a pipe whose other end only the program has; unlike a
// pidfd, this also covers exec(3), and every kernel has pipes. It cannot help if it is killed with
// the program (the end of a PID namespace, of a whole control group).
//
// Owner: Stack. Thread: create() and destruction as the Stack; start() any.
#pragma once

#include <atomic>
#include <memory>

#include "core/fd.h"
#include "core/last_will.h"

namespace vireo {

class Mourner {
 public:
  /// Maps an empty will. @return null, with a log line, if that fails.
  static std::unique_ptr<Mourner> create();
  ~Mourner();
  Mourner(const Mourner&) = delete;
  Mourner& operator=(const Mourner&) = delete;

  LastWill& will() { return *will_; }
  /// Starts the companion; may be called again. Takes about a millisecond. On failure it logs the
  /// reason, and all else goes on. Meanwhile the caller may hold no lock above the leaves that
  /// other threads need, except its own.
  void start() noexcept;

 private:
  Mourner(UniqueFd fd, LastWill* will) : will_fd_(static_cast<UniqueFd&&>(fd)), will_(will) {}

  UniqueFd will_fd_;
  LastWill* will_;
  UniqueFd alive_;  ///< this process's end of the pipe, closed when the process ends
  std::atomic<bool> is_started_{false};
};

}  // namespace vireo
