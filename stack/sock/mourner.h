// A companion process that resets the carried connections of a program that is killed. The kernel
// closes its own connections with FIN or RST, but it does not know ours. A peer that sends gets a
// reset, for its segments reach the kernel; a peer that only waits would wait for ever. So a
// process with carried TCP connections starts vireo-mourner, which sleeps until the process is
// gone, reads which connections were open (core/last_will.h), and makes the kernel reset them.
//
// The companion has an address space and a session of its own, the root directory, and four
// descriptors. It is no child of the program (its parent has ended), takes no signal but SIGKILL,
// and ends by itself. It learns of the program's end by a pipe whose other end only the program
// has; unlike a pidfd, that tells of exec(3) too, and every kernel has it. It cannot help if it is
// killed with the program (the end of a PID namespace, of a whole control group).
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
  /// Maps an empty will. @return null where that is refused; a line of the log says so.
  static std::unique_ptr<Mourner> create();
  ~Mourner();
  Mourner(const Mourner&) = delete;
  Mourner& operator=(const Mourner&) = delete;

  LastWill& will() { return *will_; }
  /// Starts the companion; again is harmless. About a millisecond. Where it cannot be had, a line
  /// of the log says why, and all else goes on. No lock above the leaves may be needed by others
  /// for that time but the caller's own.
  void start() noexcept;

 private:
  Mourner(UniqueFd fd, LastWill* will) : will_fd_(static_cast<UniqueFd&&>(fd)), will_(will) {}

  UniqueFd will_fd_;
  LastWill* will_;
  UniqueFd alive_;  ///< the pipe's end that ends with us
  std::atomic<bool> is_started_{false};
};

}  // namespace vireo
